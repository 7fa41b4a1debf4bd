"""Two records of a tape as one dispatch: what follows a product is done as the product's sums are stored.

    linear, gelu                          writes both: backward needs what gelu was given
    linear, add of its result             the result itself is never written
    linear_backward_input, gelu_backward  the gradient between them is never written

A value is left unwritten only where the tape reads it no more and then puts something else in its place, so whatever a
caller may read after the tape (the plan's `keep`) is there.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...compile.tape import Record
from ...ops.spec import WRITTEN
from . import shader
from .dispatch import Operand, Span

NONE, GELU, RESIDUAL, GELU_BACKWARD = range(4)
"""The constant EPILOGUE of shaders/linear.wgsl."""


@dataclass
class Step:
    """A record, or two fused, with what each argument is. `other`: with GELU gelu's result, with RESIDUAL what is added,
    with GELU_BACKWARD what gelu was given."""

    record: Record
    uses: dict[str, Span | Operand]
    epilogue: int = NONE

    def written(self) -> list[Span | Operand]:
        """What it writes."""
        names = [a.name for a in self.record.kernel.args if a.role in WRITTEN] + ["other"] * (self.epilogue == GELU)
        return [self.uses[name] for name in names]

    def read(self) -> list[Span | Operand]:
        """What it only reads."""
        written = {id(each) for each in self.written()}
        return [each for each in self.uses.values() if id(each) not in written]


def fuse(steps: list[Step]) -> tuple[list[Step], set[Span]]:
    """Steps with pairs made one, and the values that are not written any more. Spans' lifetimes must be final."""
    if "const EPILOGUE" not in shader.text_of("linear"):
        return steps, set()
    out: list[Step] = []
    gone: set[Span] = set()
    index = 0
    while index < len(steps):
        pair = steps[index : index + 2]
        made = _pair(*pair, index) if len(pair) == 2 else None
        if made is None:
            out.append(pair[0])
            index += 1
            continue
        step, lost = made
        gone |= lost
        for use in step.uses.values():  # it reads and writes at once: nothing it uses may share memory
            if isinstance(use, Span):
                use.first, use.last = min(use.first, index), max(use.last, index + 1)
        out.append(step)
        index += 2
    return out, gone


def _pair(first: Step, second: Step, index: int) -> tuple[Step, set[Span]] | None:
    """Both as one step, and what it leaves unwritten; None where they cannot be."""
    names = first.record.kernel.name, second.record.kernel.name
    if names == ("linear", "gelu") and second.uses["x"] is first.uses["y"]:
        return Step(first.record, first.uses | {"other": second.uses["y"]}, GELU), set()
    if names == ("linear", "add"):
        y, a, b = first.uses["y"], second.uses["a"], second.uses["b"]
        if (a is y) != (b is y) and _dies(y, index + 1):
            uses = first.uses | {"y": second.uses["y"], "other": b if a is y else a}
            return Step(first.record, uses, RESIDUAL), {y}
    if names == ("linear_backward_input", "gelu_backward"):
        dx = first.uses["dx"]
        if second.uses["dy"] is dx and _dies(dx, index + 1):
            uses = first.uses | {"dx": second.uses["dx"], "other": second.uses["x"]}
            return Step(first.record, uses, GELU_BACKWARD), {dx}
    return None


def _dies(value: Span | Operand, index: int) -> bool:
    return isinstance(value, Span) and value.last == index
