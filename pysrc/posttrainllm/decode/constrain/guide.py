"""Where a constrained text goes on and where it ends.

A vocabulary of bytes has no token for the end, so an end is chosen by one of three rules, where the text may end:
    model     a token is drawn from all, as without a constraint; one that may not come ends the text, any other is written
    first     it ends at once
    longest   it goes on as long as any token may come
Whatever the rule, the text ends where no token may come, and in time: with n tokens left only tokens are allowed after which
an end is in reach in n - 1.
"""

from __future__ import annotations

from ...errors import ConfigError
from .constraint import Constraint
from .states import State
from .vocabulary import token_bytes

ENDS = ("model", "first", "longest")


class Guide:
    """One constraint with one rule for the end. It keeps no place in the text: states go in and come out, so one can go back.

    `left` is the number of tokens that may still come.
    """

    def __init__(self, constraint: Constraint, end: str = "model") -> None:
        if end not in ENDS:
            raise ConfigError("write", f"end is one of {', '.join(ENDS)}", f"{end!r} came", "choose one of those")
        self.constraint, self.end = constraint, end

    def start(self, tokens: int, tokenizer) -> State:
        """The first state of a text of at most `tokens` tokens. Raises ConfigError where no text fits, or the vocabulary is another."""
        if token_bytes(tokenizer) != self.constraint.vocabulary.tokens:
            raise ConfigError(
                "write", "the constraint is made for the model's vocabulary",
                f"one for {len(self.constraint.vocabulary):,} other tokens came", "make it with vocabulary_of(model.tokenizer)",
            )  # fmt: skip
        self.constraint.require(tokens)
        return self.constraint.start()

    def ended(self, state: State, left: int) -> bool:
        """Whether the text ends here, before any token is drawn."""
        return state.accepts and (not left or self.end == "first" or not self.constraint.allowed(state, left))

    def allowed(self, state: State, left: int) -> tuple[int, ...] | None:
        """The tokens to draw from, in order; None for all of them."""
        return None if state.accepts and self.end == "model" else self.constraint.allowed(state, left)

    def take(self, state: State, token: int, left: int) -> State | None:
        """The state after the token that was drawn, or None where it ends the text and is not written."""
        after = self.constraint.advance(state, token)
        return after if after is not None and after.distance < left else None
