"""Which weights the live model has just now: what is learned of some (a tuned lens, features, scores of heads) is of no others."""

from __future__ import annotations

from dataclasses import dataclass

from .standing import trainer_on


@dataclass(frozen=True)
class Weights:
    """Two that are equal, of one model object, are the same numbers.

    step: the base's, None where nothing tells it. tuned: the step of a tune in progress. adapter and strength: of the one that is on.
    """

    step: int | None
    tuned: int | None
    adapter: str | None
    strength: float | None

    def trained_to(self, now: Weights) -> bool:
        """Whether training lies between."""
        return (self.step, self.tuned) != (now.step, now.tuned)

    def beside(self, now: Weights) -> str:
        """A sentence's part: what these are of, and what the model is by now."""
        if self.step != now.step and self.step is not None and now.step is not None:
            return f"these are of step {self.step:,}, and the model is at step {now.step:,}"
        if (self.adapter, self.strength) != (now.adapter, now.strength):
            return "these are of the model with another adapter, or at another strength"
        return "the model has been trained since"


def weights_now(session) -> Weights:
    """Of the session's live model. A comparison, which takes the adapter away for a while, changes nothing here."""
    trainer, tuning, adapters = trainer_on(session), session.tuning, session.adapters
    step = trainer.step if trainer is not None else adapters.base_step
    tuned = tuning.trainer.step if tuning.active else None
    chosen = adapters.chosen
    return Weights(step, tuned, chosen, adapters.strength if chosen is not None else None)
