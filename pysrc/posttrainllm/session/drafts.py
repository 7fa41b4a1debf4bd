"""A saved run as the draft of speculative decoding: a second, small model beside the live one, kept until another is asked for."""

from __future__ import annotations

from ..backends.bpe import prepare
from ..errors import ConfigError
from ..model.config import GPTConfig
from ..model.live import RESERVE_BYTES
from ..model.program import Program
from ..train.state import model_of


class Drafts:
    """At most one is alive. It lives on an engine of its own, which Host.open_beside gives."""

    def __init__(self, session) -> None:
        self._session = session
        self._run: tuple = (None, None)  # id, when it was saved
        self._model = None

    async def model(self, run_id: str, target):
        """The run's model, as a draft for `target`. Raises ConfigError where it is none, and what opening a run raises."""
        session = self._session
        if run_id == session.runs.held_id:
            raise ConfigError("draft", "another run than the one that writes", "the same came", "choose a smaller run")
        row = next((row for row in await session.runs.rows() if row["run_id"] == run_id), None)
        wanted = run_id, row and row["updated"]
        if self._model is None or self._run != wanted:
            self.close()
            self._model = await self._opened(run_id)
            self._run = wanted
        ours, theirs = self._model.config.parameter_count(), target.config.parameter_count()
        if self._model.tokenizer.to_dict() != target.tokenizer.to_dict():
            self.close()
            raise ConfigError(
                "draft", "it has the tokenizer of the model that writes", "another came", "choose a run that was trained on the same tokens"
            )
        if ours >= theirs:
            self.close()
            raise ConfigError("draft", f"it is smaller than the model that writes, {theirs:,} parameters", f"it has {ours:,}", "choose a smaller run")
        return self._model

    async def _opened(self, run_id: str):
        run = await self._session.runs.store.open(run_id)
        try:
            checkpoint = run.load()
            await prepare()
            program = Program(GPTConfig.from_dict(checkpoint.config), False)
            machine = await self._session.host.open_beside(sum(program.region_bytes().values()) + RESERVE_BYTES)
            try:
                return model_of(checkpoint, machine=machine)
            except BaseException:
                machine.close()
                raise
        finally:
            run.close()

    def close(self) -> None:
        """Give its memory back."""
        self._run, model, self._model = (None, None), self._model, None
        if model is not None:
            model.close()
