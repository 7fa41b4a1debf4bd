"""Which engine a Session runs on: the first choice, another one in mid-run, and going on after a GPU went away.

Events: engine (another one is used now), preparing (pipelines compile), recovered (the run goes on after a fault).
"""

from __future__ import annotations

from ..errors import ConfigError, DeviceError, DeviceLostError, PostTrainError
from ..train.state import saved_precision
from . import standing

PRECISIONS = ("f32", "f16")
MOST_RECOVERIES = 2
"""In one run: the first time on a fresh device where it was lost, after that on the cpu engine."""


class Engines:
    """Describes the machine in use, and moves a live model from one machine to another."""

    def __init__(self, session) -> None:
        self._session = session
        self.recoveries = 0

    def describe(self, machine) -> dict:
        """The engine as the page shows it."""
        return {
            "name": machine.name,
            "description": machine.description,
            "precision": getattr(machine, "precision", "f32"),
            "features": sorted(getattr(machine, "features", ())),
            "chosen": True,
            "why": self._session.host.why(machine),
        }

    def all(self) -> list[dict]:
        """The engine in use first, then the others that this host has or has not, each with why."""
        chosen = self._session.engine
        return [chosen, *(offer for offer in self._session.host.offers() if offer["name"] != chosen.get("name"))]

    async def use(self, identity, name: str, precision: str = "f32") -> None:
        """engine.use: go on with another engine; a run in progress goes on from the step it is at. Nothing changes where the
        engine cannot be had."""
        session, host = self._session, self._session.host
        if precision not in PRECISIONS:
            raise ConfigError("engine", f"precision is one of {', '.join(PRECISIONS)}", f"{precision!r} came", "choose one")
        before = host.preference
        host.prefer(name, precision)
        try:
            machine = await host.open_machine(session.need_bytes())
            if machine.name != name:
                reason = host.why(machine)
                machine.close()
                raise DeviceError("engine", f"{name} runs here", reason, "the engine in use stays")
            try:
                await self._move(machine)
            except BaseException:
                machine.close()
                raise
        except BaseException:
            host.prefer(*before)
            host.using(session.model.machine if session.model else None)
            raise
        self.tell(identity)

    def follow(self, checkpoint) -> str:
        """Before a run goes on: take the precision that it was trained in, where the engine in use has it. "" or a sentence on why not."""
        session, wanted = self._session, saved_precision(checkpoint)
        if wanted == "f32" or session.engine.get("precision") == wanted:
            return ""
        if session.engine.get("name") == "webgpu" and "shader-f16" in session.engine.get("features", ()):
            session.host.prefer("webgpu", wanted)
            return ""
        return "It was trained in half precision (f16), which this engine does not have: it goes on in single precision (f32)."

    def tell(self, identity=None) -> None:
        """Say which engine is in use now."""
        session = self._session
        trainer = session.training.trainer
        session.emit(
            "engine", reply_to=identity, engine=session.engine, engines=self.all(), step=trainer.step if trainer else None,
            memory=session.model.memory() if session.model else None, presets=session.presets(),
        )

    async def _move(self, machine) -> None:
        """The live model and its run, from the machine it is on to this one."""
        session, old = self._session, self._session.model
        if old is None:
            session.engine = self.describe(machine)
            await session.measure(machine)
            machine.close()
            return
        await standing.settle_on(session, machine, await standing.now(session))
        for part in (session.tuning, session.adapters):
            part.let_go()
        session.rate_flops = 0.0  # until it has trained a little here
        _close(old)

    # After a fault

    async def recover(self, error: Exception) -> bool:
        """After a GPU's fault: go on from the last save on a fresh device or on the cpu engine. False where that is not to be."""
        session, model, tuning = self._session, self._session.model, self._session.tuning.active
        if not isinstance(error, DeviceError) or model is None or model.machine.name != "webgpu" or self.recoveries >= MOST_RECOVERIES:
            return False
        found, chosen = await standing.saved(session), (session.adapters.chosen, session.adapters.strength)
        if found is None:
            return False
        self.recoveries += 1
        if not isinstance(error, DeviceLostError) or self.recoveries > 1:
            session.host.prefer("cpu", "f32")
        try:
            need_bytes = session.need_bytes()
            self.drop_broken()
            machine = await session.host.open_machine(need_bytes)
            try:
                await standing.settle_on(session, machine, found)
            except BaseException:
                machine.close()
                raise
        except PostTrainError as another:
            session.fail(another)
            return False
        if found.adapter is not None or tuning:
            session.adapters.chosen, session.adapters.strength = chosen
        step, trainer = found.step, found.trainer
        where = "a fresh GPU device" if session.engine["name"] == "webgpu" else "the CPU engine"
        came = error.parts[2] or str(error).rstrip(".")
        message = f"The GPU had a fault: {came}. The {'tune' if tuning else 'run'} goes on from its last save, step {step:,}, on {where}."
        kind, lost_steps = "tune.recovered" if tuning else "recovered", trainer.step - step if trainer else 0
        session.emit(kind, message=message, step=step, lost_steps=lost_steps, engine=session.engine)
        self.tell()
        return True

    def drop_broken(self) -> None:
        """Let go of a live model whose machine failed, and may fail again when it is closed."""
        try:
            self._session.drop_model()
        except Exception:  # noqa: BLE001 - it is gone either way
            self._session.model = None


def _close(model) -> None:
    """Close a model whose machine may have failed."""
    try:
        model.close()
    except Exception:  # noqa: BLE001 - it is gone either way
        pass
