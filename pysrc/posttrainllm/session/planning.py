"""What a run would cost before it begins: parameters, memory, time, and what should be known of text and size. Event: planned."""

from __future__ import annotations

import time
from dataclasses import replace

from ..compile.tape import address
from ..errors import DataError
from ..model.choosing import cheapest, choices, in_words, planned
from ..model.config import GPTConfig
from ..model.program import LOSS, Program, training_step
from ..model.saving import PLAIN, Saving
from ..train.settings import default_learning_rate, training_settings

LARGE_SAVE_BYTES = 1 << 30
"""A browser is asked whether it has room from here on."""


class Planning:
    """Answers `plan`, by the speed that the engine in use has shown."""

    def __init__(self, session) -> None:
        self._session = session

    def handlers(self) -> dict:
        """Request kinds and what handles them."""
        return {"plan": self.plan}

    async def plan(self, identity, preset=None, config=None, training=None, saving=None) -> None:
        """plan: what these choices would cost, before anything is made; and what else could be chosen to save memory."""
        session = self._session
        chosen = session.config_of(preset, config)
        settings = training_settings(training, chosen.channels)
        used = saving_for(session, chosen, saving)
        program = Program(chosen, saving=used)
        fits, reason = True, None
        reach = session.host.reach_of(program)
        memory = program.memory() if reach and reach.reason else session.host.memory_of(program)
        possible = choices(chosen, None, lambda each: session.host.fits(chosen, None, each), self._held(chosen, program, memory["total_bytes"]))
        if reach is not None:
            fits = False
            reason = reach.reason or (
                f"This needs {reach.need_bytes / 1e6:,.0f} MB, and this page can use {reach.limit_bytes / 1e6:,.0f} MB. "
                "Choose a smaller size or a smaller batch."
            )
            fitting = next((each for each in possible if each.fits), None)
            if fitting is not None:
                reason = f"{reason.removesuffix('Choose a smaller size or a smaller batch.')}It fits with {in_words(fitting.saving)}."
        seconds = program.step.flops() / session.rate_flops if session.rate_flops else None
        warnings, corpus = [], session.tokens.text()
        if corpus is not None:
            warnings = corpus.advice(chosen)
            try:
                corpus.check(chosen)
            except DataError as error:
                warnings.append(str(error))
        warnings += await room_warnings(session.host, memory["weights_bytes"] + memory["moments_bytes"])
        step_tokens = chosen.batch * chosen.context
        session.emit(
            "planned",
            reply_to=identity,
            parameters=chosen.parameter_count(),
            memory=memory,
            saving=used.to_dict(),
            layers=chosen.layers,
            batch=chosen.batch,
            choices=[each.to_dict() for each in possible],
            fits=fits,
            reason=reason,
            ms_per_step_estimate=seconds and 1000 * seconds,
            seconds_estimate=seconds and seconds * settings["steps"],
            tokens_per_step=step_tokens,
            default_learning_rate=default_learning_rate(chosen.channels),
            passes_over_corpus=corpus and settings["steps"] * step_tokens / max(1, len(corpus.train)),
            warnings=warnings,
        )

    def _held(self, config: GPTConfig, program: Program, total_bytes: int):
        """What the engine would hold with a Saving, where with the program's it holds total_bytes. On a CPU that is as much beside each
        plan. A GPU lends otherwise and writes nothing in place: what it keeps is foreseen for each, but for moments, which are its plan's
        (0.5 s for behemoth or gpt2 natively, once)."""
        host, reckoned = self._session.host, planned(config, None, program.saving).total_bytes

        def held(saving: Saving) -> int:
            total = planned(config, None, saving).total_bytes
            whole = replace(saving, moments="f32")
            if host.on_gpu:
                return host.training_bytes(config, whole) + total - planned(config, None, whole).total_bytes
            return total + total_bytes - reckoned

        return held


async def room_warnings(host, save_bytes: int) -> list[str]:
    """What to know of the disk before a run whose saves take so many bytes. What a browser says of it is not always so: a warning
    and no more, for the write that fails is the truth."""
    room = await host.room_bytes() if save_bytes >= LARGE_SAVE_BYTES else None
    if room is None or room >= 2 * save_bytes:
        return []
    told = f"A save of this run takes {save_bytes / 1e9:.1f} GB, and the browser says that it has room for {room / 1e9:.1f} GB"
    if room < save_bytes:
        return [f"{told}: it could not be saved here. Free disk space, or delete other runs."]
    return [f"{told}. Two are kept, in turn: where there is no room for the second, the run goes on unsaved and the first stays."]


def saving_for(session, config: GPTConfig, asked, start: Saving = PLAIN) -> Saving:
    """The Saving that a request asks for: an object, or with "auto" or nothing the cheapest that fits the engine in use, moments as in
    `start`; where none fits as in `start` too. Raises ConfigError."""
    if isinstance(asked, dict):
        found = Saving.from_dict({"moments": start.moments} | asked)
        found.require_fit(config)
        return found
    return cheapest(config, lambda saving: session.host.fits(config, None, saving), start) or start


async def rate_of(machine) -> float:
    """FLOP/s that a step of this machine reaches, from one step of `small` (about 2.4 GFLOP). 0 where it cannot say."""
    if machine.name == "reference":
        return 0.0
    step = training_step(GPTConfig.preset("small", batch=4))
    machine.allocate(step.plan.region_bytes)
    for value in (step.tokens, step.targets):
        machine.upload(address(value), bytes(value.nbytes))
    waits = hasattr(machine, "load_all_async")
    loaded = (await machine.load_all_async([step.tape]))[0] if waits else machine.load(step.tape)
    best = float("inf")
    for _ in range(3):
        began = time.perf_counter()
        machine.replay(loaded)
        await machine.download_async(address(LOSS), 4) if waits else machine.download(address(LOSS), 4)
        best = min(best, time.perf_counter() - began)
    return step.plan.graph.flops() / best
