"""Constraints of a written text as a page asks for them: {kind, text, end, whitespace}. Event: checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import ConfigError, DataError

if TYPE_CHECKING:  # what constrains nothing pays nothing
    from ..decode.constrain import Constraint

KINDS = ("regex", "json_schema", "grammar")
WHITESPACE = ("compact", "spaced", "free")
FIELDS = {"kind": "regex", "text": "", "end": "model", "whitespace": "compact"}


class Rules:
    """Compiles a constraint, and keeps the one that was compiled last."""

    def __init__(self, session) -> None:
        self._session = session
        self._kept: tuple = (None, None, None)  # (kind, text, whitespace), tokenizer, constraint

    async def compiled(self, settings: dict, tokenizer) -> tuple[Constraint, str]:
        """(constraint, end) of a request's field. Raises ConfigError or DataError that says what is wrong in it."""
        from ..decode.constrain import ENDS, read, vocabulary_of

        chosen = FIELDS | settings
        for name, value in settings.items():
            if name not in FIELDS or not isinstance(value, str):
                raise ConfigError("constraint", f"its parts are the texts {', '.join(FIELDS)}", f"{name!r} came", "correct it")
        for name, allowed in (("kind", KINDS), ("end", ENDS), ("whitespace", WHITESPACE)):
            if chosen[name] not in allowed:
                raise ConfigError("constraint", f"{name} is one of {', '.join(allowed)}", f"{chosen[name]!r} came", "choose one of those")
        if not chosen["text"].strip():
            raise DataError("constraint", "a rule that the text keeps to", "an empty one came", "type one, or choose no rule")
        wanted = chosen["kind"], chosen["text"], chosen["whitespace"]
        if self._kept[0] != wanted or self._kept[1] is not tokenizer:
            if chosen["kind"] == "grammar":
                await self._session.host.load_lark()
            self._kept = (wanted, tokenizer, read(*wanted[:2], vocabulary_of(tokenizer), wanted[2]))
        return self._kept[2], chosen["end"]

    async def check(self, identity, constraint: dict, tokens: int | None = None) -> None:
        """write.check: compile it, and tell within how many tokens its shortest text ends; a failure says what is wrong."""
        session = self._session
        tokenizer = session.model.tokenizer if session.model is not None else session.tokens.tokenizer
        compiled, _ = await self.compiled(constraint, tokenizer)
        if tokens is not None:
            compiled.require(tokens)
        session.emit("checked", reply_to=identity, shortest_tokens=compiled.start().distance)

    def forget(self) -> None:
        """The model goes: its vocabulary and masks with it."""
        self._kept = (None, None, None)
