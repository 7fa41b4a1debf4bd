"""What a Trainer does beside its steps: write a sample, keep a snapshot, save."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ..decode.generate import write_async
from ..errors import StoreError
from .reports import SampleReport, SavedReport, SaveFailedReport, SnapshotReport

if TYPE_CHECKING:
    from .snapshots import Kept
    from .trainer import Live


class Keeping:
    """A part of Trainer."""

    async def sample(self, live: Live) -> SampleReport:
        """What the model writes now."""
        pieces = write_async(self.model, live.sample_prompt, live.sample_tokens, seed=self.settings["seed"])
        text = "".join([piece.text async for piece in pieces])
        return SampleReport(self.step, live.sample_prompt, text)

    async def snapshot(self, kept: Kept) -> SnapshotReport | SaveFailedReport:
        """Keep the weights of this step beside the saves."""
        began = time.perf_counter()
        await self.model.fetch(("params",))
        try:
            nbytes = kept.keep(self.model, self.step)
        except StoreError as error:
            return SaveFailedReport(self.step, error.code, error.message)
        return SnapshotReport(self.step, nbytes, time.perf_counter() - began)

    async def saved(self, live: Live) -> SavedReport | SaveFailedReport:
        """Save now. A full disk must not end a run that is well."""
        began = time.perf_counter()
        await self.model.fetch()
        try:
            place, nbytes = live.save(self)
        except StoreError as error:
            return SaveFailedReport(self.step, error.code, error.message)
        return SavedReport(self.step, place, nbytes, time.perf_counter() - began)

    def _broken_sentence(self) -> str:
        return (
            f"step {self.step}: the validation loss is finite; {self.validation_loss_nats} came; this step was not saved, "
            "the save before it stays; start again with a lower learning rate."
        )
