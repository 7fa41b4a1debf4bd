"""How the lens sharpened over the live run's snapshots, for the Inside view: on an engine beside the live model's, which stays as it is.

Event: inside.sharpening.
"""

from __future__ import annotations

from ..model.live import GPT
from ..model.program import Program
from .messages import finite


class Sharpening:
    """One request; nothing is kept between two."""

    def __init__(self, session) -> None:
        self._session = session

    def handlers(self) -> dict:
        """Request kinds and what handles them."""
        return {"inside.sharpening": self._sharpening}

    async def _sharpening(self, identity, text: str) -> None:
        """inside.sharpening: `loss_nats` and `probability` of the tokens that came, [S][L+1]: a row for each of `steps`, a number for
        each of `rows` (the embedding, then each block). The last is the live model as it stands, and the only one where the run keeps no
        snapshots; `adapter`: whether one is on there, of which no snapshots are kept; `damaged` are steps that were left out. Raises
        DataError for a text of one token."""
        from ..study import logit_lens_async
        from ..study.sharpen import require_next

        session = self._session
        model, tokens = await session.inside.ready(text)
        require_next(tokens)
        live, step = await logit_lens_async(model, tokens, 1), self._step(model)
        found, states = None, session.runs.states_before(step)
        if states:
            found = await self._beside(model, states, tokens)
        losses, shares = [live.loss_nats], [live.probability[:, :-1].mean(1)]
        if found is not None:
            losses, shares = [*found.loss_nats, *losses], [*found.probability, *shares]
        session.inside.tell(
            "sharpening", identity, model, tokens, steps=[*(found.steps if found else []), step], rows=live.layers,
            loss_nats=[_plain(row) for row in losses], probability=[_plain(row) for row in shares], damaged=found.damaged if found else [],
            adapter=model.lora is not None and model.strength != 0,
        )  # fmt: skip

    def _step(self, model) -> int:
        trainer = self._session.training.trainer
        if trainer is not None and trainer.model is model:
            return trainer.step
        save = self._session.runs.last_save()
        return save.step if save is not None else 0

    async def _beside(self, model, states, tokens):
        """The snapshots one after the other on a second engine, which is closed again."""
        from ..study.sharpen import need_bytes, over_async

        machine = await self._session.host.open_beside(need_bytes(model.config, len(tokens)))
        try:
            other = GPT(model.config, machine, Program(model.config, False))
            other.tokenizer = model.tokenizer
            return await over_async(other, states, tokens)
        finally:
            machine.close()


def _plain(row) -> list:
    return [finite(float(each)) for each in row]
