"""What a model will hold on a GPU, before anything is made: regions in their parts, banks, halves, partial sums, sizes of dispatches,
and what a block of steps takes. The buffers are those that a host would make; none is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ...compile.tape import Tape
from .banks import place
from .dispatch import BANK, HALVES, SCRATCH, STATE, Call, Dispatch
from .flat import STATE_BYTES, adamw
from .halves import storage
from .kinds import by_kind
from .lower import ADAMW, LOWER
from .memory import Memory
from .options import Options

UNIFORM_STRIDE_BYTES = 256
BLOCK_ROWS = 64
"""Rows of inputs that a host's buffer for them has at least (webgpu_steps.py, gpu_steps.mjs): a block of steps has no more."""
BLOCKS = 3
"""Whose metrics are on their way back, about."""
METRIC_BYTES = 512


class Counted:
    """In a host's place: Memory counts."""

    def make_buffer(self, number: int, nbytes: int) -> None:
        """Nothing is made."""

    def copy_buffer(self, source: int, at: int, target: int, to: int, nbytes: int) -> None:
        """Nothing is copied."""

    def drop_buffer(self, number: int) -> None:
        """Nothing was there."""


@dataclass(frozen=True)
class Predictor:
    """For one device and precision, as a machine has them: it does not hold the machine."""

    options: Options

    def __call__(self, tapes: Iterable[Tape], region_bytes: dict[str, int], row_bytes: int = 0) -> dict[str, int]:
        """Bytes by kind, and in all, that a model with these regions holds once these tapes are loaded, and where row_bytes are given
        (of a step's inputs) trains. Raises DeviceLimitError where the device cannot hold or bind something."""
        tapes, memory = list(tapes), Memory(self.options.limits, Counted())
        memory.expect(tapes)
        memory.allocate(region_bytes)
        memory.resize(STATE, STATE_BYTES)
        beside = BLOCK_ROWS * (row_bytes + BLOCKS * METRIC_BYTES) if row_bytes else 0
        for tape in tapes:
            need, dispatches = needs(tape, replace(self.options, cuts=memory.cuts))
            for number, nbytes in need.items():
                memory.resize(number, nbytes)
            beside += UNIFORM_STRIDE_BYTES * dispatches
        return by_kind(memory.nbytes, sum(memory.nbytes.values()) + beside)


def needs(tape: Tape, options: Options) -> tuple[dict[int, int], int]:
    """(bytes of each buffer beside the regions, dispatches) of a tape. As Lowered has it; but of records that are alike, as most are
    in a deep model, one is lowered."""
    banks = place(tape, options)
    own = replace(options, cuts=banks.halves.cuts_beside(options.cuts))
    need = {BANK + bank: nbytes for bank, nbytes in enumerate(banks.bank_bytes) if nbytes}
    need |= {buffer: nbytes for buffer, _, nbytes in own.cuts.runs(HALVES, 0, banks.halves.nbytes) if nbytes}
    count, scratch, alike = len(banks.halves.refresh(own)), 0, {}
    for step in banks.steps:
        given = storage(own, step.record)
        key = step.record.kernel.name, tuple(step.record.sizes.items()), step.record.params, step.epilogue, given.precision
        if key not in alike:
            call = Call.of(step.record, step.uses, given, step.epilogue)
            made = list(adamw(call, banks.halves) if call.kernel.name in ADAMW else LOWER[call.kernel.name](call))
            alike[key] = len(made), max(map(_scratch_bytes, made), default=0)
        count, scratch = count + alike[key][0], max(scratch, alike[key][1])
    return need | ({SCRATCH: scratch} if scratch else {}), max(1, count + 1)


def _scratch_bytes(dispatch: Dispatch) -> int:
    return max((o.offset_bytes + o.nbytes for _, o, _ in dispatch.bindings if o.region == SCRATCH), default=0)
