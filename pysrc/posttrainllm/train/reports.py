"""What a training run says, one dataclass a kind of event; page, command line and notebook read the same ones."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Report:
    """Any report; `event` is its name on the wire."""

    step: int

    @property
    def event(self) -> str:
        """One of "step", "skipped", "eval", "sample", "saved", "savefailed", "rolledback", "snapshot", "stopped"."""
        return type(self).__name__.removesuffix("Report").lower()

    def to_dict(self) -> dict:
        """JSON: {"event": …, fields…}."""
        return {"event": self.event} | asdict(self)


@dataclass(frozen=True)
class StepReport(Report):
    """One step: mean loss of its batch in nats, gradient norm before clipping, the rate used, its tokens and seconds.

    bits_per_byte is the loss by the training text's average bytes a token (exact where a token is a byte): it compares over tokenizers.
    """

    loss_nats: float
    gradient_norm: float
    learning_rate: float
    tokens: int
    seconds: float
    bits_per_byte: float


@dataclass(frozen=True)
class SkippedReport(Report):
    """In half precision: a gradient overflowed, so this step changed no weight and the loss scale was halved. The step counts."""


@dataclass(frozen=True)
class EvalReport(Report):
    """Mean loss in nats on the validation part; best is the lowest so far.

    bits_per_byte is exact: all nats of the tokens measured, over the bytes that those tokens stand for.
    """

    validation_loss_nats: float
    best: bool
    seconds: float
    bits_per_byte: float


@dataclass(frozen=True)
class SampleReport(Report):
    """What the model writes after `prompt` at this step."""

    prompt: str
    text: str


@dataclass(frozen=True)
class SavedReport(Report):
    """A save that is on the disk: where, its bytes, seconds taken."""

    place: str
    nbytes: int
    seconds: float


@dataclass(frozen=True)
class SaveFailedReport(Report):
    """A save that could not be written; the one before it is unharmed. code and message as in errors.py."""

    code: str
    message: str


@dataclass(frozen=True)
class RolledBackReport(Report):
    """Something went wrong (reason "nonfinite" or "spike", `what` in a sentence) and the run is back at `step`, where all was well.

    learning_rate is what it was, lowered what it is now (the same where the run stops here: goes_on False); returns counts them.
    """

    reason: str
    what: str
    learning_rate: float
    lowered: float
    returns: int
    goes_on: bool

    def sentence(self) -> str:
        """What happened and what was done, for a person."""
        happened = self.what.rstrip(".;, ") + "."
        if not self.goes_on:
            return f"{happened} The run is back at step {self.step:,}, where all was well."
        return f"{happened} The run is back at step {self.step:,}, where all was well, and goes on with half the learning rate, {self.lowered:.3g}."


@dataclass(frozen=True)
class SnapshotReport(Report):
    """The weights of this step are kept beside the run's saves (store/snapshots.py): bytes written, seconds taken."""

    nbytes: int
    seconds: float


TROUBLES = ("nonfinite", "spike")
"""Reasons of a run that ended by its own numbers."""


@dataclass(frozen=True)
class StoppedReport(Report):
    """The last report. reason: "finished", "stopped" (asked to), "nonfinite" or "spike"; message is a sentence."""

    reason: str
    message: str
