"""The gate: figures of a candidate beside the version in use and the base, and the bounds that decide whether it is promoted.

Getting better is asked beside the version in use: that is what it would replace. Not getting worse is asked beside the base alone,
since a small loss at every promotion would add up. A figure that is not a number keeps a candidate aside, whatever it is of.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

from ...train.reports import Report
from .settings import part_settings


@dataclass(frozen=True)
class Figures:
    """Losses in nats a token unless they say otherwise; None where there was nothing to measure.

    held_out_…: on the held-out corrections, of the base, the version in use (before) and the candidate (after); held_out_wins: the share
    of them that the candidate foresees better than the version in use. base_…: on the base's own held-out text. probe_…: on fixed passages of
    it (probe_sha256 tells which); worst: the passage that rose most. preference_accuracy: the share of held-out preferences whose chosen
    answer gained more on the version in use than the rejected one. recital_…: the share of beginnings from the training text that come back
    word for word; copied_…: bytes of the longest run that what is written after such beginnings, and unseen ones, shares with the training text,
    on average; answers_…: the same with the answers learnt.
    """

    held_out_rows: int
    held_out_base_nats: float
    held_out_before_nats: float
    held_out_after_nats: float
    held_out_after_nats_per_byte: float
    held_out_wins: float
    base_before_nats: float
    base_after_nats: float
    base_nats_per_byte: float
    probe_before_nats: float
    probe_after_nats: float
    probe_worst_rise_nats: float
    probe_sha256: str
    preferences: int = 0
    preference_accuracy: float | None = None
    recital_before: float | None = None
    recital_after: float | None = None
    copied_before_bytes: float | None = None
    copied_after_bytes: float | None = None
    answers_before_bytes: float | None = None
    answers_after_bytes: float | None = None

    def to_dict(self) -> dict:
        """JSON."""
        return asdict(self)


@dataclass(frozen=True)
class GateReport(Report):
    """What the gate says: figures, the bounds they were held to, whether all were kept, and a sentence for each that was not.
    notes: what could not be measured."""

    figures: Figures | None
    bounds: dict
    passed: bool
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict:
        """JSON."""
        return super().to_dict() | {"figures": None if self.figures is None else self.figures.to_dict(), "reasons": list(self.reasons), "notes": list(self.notes)}


def judge(figures: Figures, bounds: dict | None = None) -> tuple[str, ...]:
    """A sentence for each bound that the figures do not keep; none: it is promoted. bounds: changes to configs/continual.json's "gate"."""
    b, f, said = part_settings("gate", bounds), figures, []
    broken = [name for name, value in asdict(f).items() if isinstance(value, float) and not math.isfinite(value)]
    if broken:
        return (f"Figures are numbers; {', '.join(broken)} {'is' if len(broken) == 1 else 'are'} none: the weights are broken.",)
    gain = f.held_out_before_nats - f.held_out_after_nats
    if gain < b["held_out_margin_nats"]:
        said.append(
            f"Held-out corrections: better by at least {b['held_out_margin_nats']:g} nats a token is asked; "
            f"{f.held_out_before_nats:.3f} before and {f.held_out_after_nats:.3f} after came ({gain:+.3f})."
        )
    if f.held_out_wins < b["held_out_wins"]:
        said.append(
            f"Held-out corrections: at least {b['held_out_wins']:.0%} of them better foreseen is asked; {f.held_out_wins:.0%} of {f.held_out_rows} came."
        )
    above = f.held_out_after_nats_per_byte - f.base_nats_per_byte
    if above > b["held_out_above_base_nats_per_byte"]:
        said.append(
            f"Held-out corrections: after learning at most {b['held_out_above_base_nats_per_byte']:g} nats a byte above the base's own text "
            f"({f.base_nats_per_byte:.3f}) is asked, else there is no rule in them to learn; {f.held_out_after_nats_per_byte:.3f} came."
        )
    if f.preference_accuracy is not None and f.preference_accuracy < b["preference_accuracy"]:
        said.append(
            f"Held-out preferences: the better answer gaining more in at least {b['preference_accuracy']:.0%} is asked; "
            f"{f.preference_accuracy:.0%} of {f.preferences} came."
        )
    for name, before, after, bound in (
        ("The base's held-out text", f.base_before_nats, f.base_after_nats, b["base_rise_nats"]),
        ("The fixed passages", f.probe_before_nats, f.probe_after_nats, b["probe_rise_nats"]),
    ):
        if after - before > bound:
            said.append(f"{name}: a loss at most {bound:g} nats a token above the base's is asked; {before:.3f} before and {after:.3f} after came ({after - before:+.3f}).")
    if f.probe_worst_rise_nats > b["probe_worst_rise_nats"]:
        said.append(
            f"The fixed passages: none more than {b['probe_worst_rise_nats']:g} nats a token worse is asked; one is by {f.probe_worst_rise_nats:.3f}."
        )
    if f.recital_after is not None and f.recital_after - f.recital_before > b["recital_rise"]:
        said.append(
            f"Reciting: at most {b['recital_rise']:.0%} more of the training text's beginnings coming back word for word is asked; "
            f"{f.recital_before:.0%} before and {f.recital_after:.0%} after came."
        )
    for what, before, after, bound in (
        ("Copying: runs out of the training text", f.copied_before_bytes, f.copied_after_bytes, b["copied_rise_bytes"]),
        ("Reciting what was learnt: runs out of the answers, after text that asks for none,", f.answers_before_bytes, f.answers_after_bytes, b["answers_rise_bytes"]),
    ):
        if after is not None and after - before > bound:
            said.append(f"{what} at most {bound:g} bytes longer on average are asked; {before:.1f} before and {after:.1f} after came.")
    return tuple(said)
