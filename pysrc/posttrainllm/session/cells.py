"""Cells: a person's own Python, in the worker, on the live model, between two training steps.

Events: cell.started, cell.output (stream, text), cell.value (what the last expression is, see cell_values.py), cell.ended (ok, message,
line, stopped, seconds), cell.completions. Names are kept by space ("lesson:softmax", "scratch") until cells.reset. Each space has
`pt`, and as they are now `model`, `corpus` and `tokenizer` (None where there is none).
"""

from __future__ import annotations

import contextlib
import io
import rlcompleter
import time

from ..errors import ConfigError
from .cell_code import run, told
from .cell_values import shown

MOST_OUTPUT = 200_000
"""Characters that a cell may print; what is more is left out, and that is said."""
MOST_CODE = 100_000
MOST_SPACES = 8
MOST_COMPLETIONS = 60
_TURN_SECONDS = 0.05


class Cells:
    """The spaces of names, and the cell that runs."""

    def __init__(self, session) -> None:
        self._session = session
        self._spaces: dict[str, dict] = {}
        self._given: dict[str, dict] = {}  # what a space was given under the names of the page

    def handlers(self) -> dict:
        """Request kinds and what handles them."""
        return {"cells.run": self._run, "cells.reset": self._reset, "cells.complete": self._complete}

    def _space(self, name: str) -> dict:
        if name not in self._spaces:
            while len(self._spaces) >= MOST_SPACES:
                _let_go(self._spaces.pop(next(iter(self._spaces))), self._session.model)
            self._spaces[name] = {"__name__": "__main__", "__builtins__": __builtins__}
            exec("import posttrainllm as pt", self._spaces[name])  # noqa: S102
        self._spaces[name] = space = self._spaces.pop(name)  # the one used last goes last
        given, session = self._given.setdefault(name, {}), self._session
        for key, value in (("model", session.model), ("corpus", session.corpus), ("tokenizer", session.tokens.tokenizer)):
            if key not in space or space[key] is given.get(key):  # else the person gave the name another meaning
                space[key] = given[key] = value
        return space

    async def _run(self, identity, code: str, space: str = "scratch", cell: str = "") -> None:
        """cells.run: run a cell's code; it ends with cell.ended, whatever happens in it."""
        session = self._session
        if len(code) > MOST_CODE:
            raise ConfigError("cell", f"a cell has at most {MOST_CODE:,} characters", f"{len(code):,} came", "make it two")
        names = self._space(space)
        name = f"<{cell or 'cell'}>"
        out = _Stream(lambda text, stream: session.emit("cell.output", reply_to=identity, stream=stream, text=text))
        session.emit("cell.started", reply_to=identity)
        began, changes = time.perf_counter(), _changes(session.model)
        ok, message, line, stopped = True, "", None, False
        await session.job.settle()
        try:
            await session.host.before_cell(code)
            with contextlib.redirect_stdout(out.part("out")), contextlib.redirect_stderr(out.part("err")), session.host.interruptible():
                value = await run(code, names, name)
                found = shown(value)
            out.flush()
            if found is not None:
                names["_"] = value
                session.emit("cell.value", reply_to=identity, **found)
        except KeyboardInterrupt:
            ok, stopped, message = False, True, "Stopped."
        except SystemExit:
            ok, message = True, ""
        except BaseException as error:  # noqa: BLE001 - whatever a person's own code raises is shown beside it
            ok = False
            message, line = told(error, name)
        finally:
            out.flush()
        if session.model is not None and names.get("model") is session.model and _changes(session.model) != changes:
            await self._set_aside(identity)
        session.emit("cell.ended", reply_to=identity, ok=ok, message=message, line=line, stopped=stopped, seconds=time.perf_counter() - began)

    async def _set_aside(self, identity) -> None:
        """The cell changed the live model: what trains it, and the run that was saved of it, are not of these weights any more."""
        session = self._session
        if session.job.active:
            session.job.abort(ConfigError("cell", "a model that trains is changed by its run only", "a cell changed it", "open the last save under Runs"))
        session.training.trainer = None
        session.runs.let_go()
        session.emit(
            "cell.changed_model", reply_to=identity,
            message="The cell changed the open model. It stays as the cell left it until another is opened; the saved run is as it was: open it under Runs.",
        )  # fmt: skip
        await session.adapters.tell()

    async def _reset(self, identity, space: str = "scratch") -> None:
        """cells.reset: forget a space's names; models that it made give their memory back."""
        self._given.pop(space, None)
        _let_go(self._spaces.pop(space, {}), self._session.model)
        self._session.emit("cell.reset", reply_to=identity, space=space)

    async def _complete(self, identity, code: str, space: str = "scratch") -> None:
        """cells.complete: what the name or attribute at the end of `code` may go on as."""
        start = len(code)
        while start and (code[start - 1].isalnum() or code[start - 1] in "_."):
            start -= 1
        stem, found = code[start:], []
        names = self._space(space)
        completer = rlcompleter.Completer(names)
        with contextlib.suppress(Exception):  # an attribute that raises is none to offer
            while stem and len(found) < MOST_COMPLETIONS and (each := completer.complete(stem, len(found))) is not None:
                found.append(each.rstrip("()").rstrip())
        self._session.emit("cell.completions", reply_to=identity, start=start + stem.rfind(".") + 1, items=[each[each.rfind(".") + 1 :] for each in found])

    def close(self) -> None:
        """Let everything go."""
        for space in self._spaces.values():
            _let_go(space, self._session.model)
        self._spaces, self._given = {}, {}


def _changes(model) -> int:
    return -1 if model is None else model.changes


def _let_go(space: dict, live=None) -> None:
    """Close the models among a space's names: their engines have memory and threads of their own."""
    from ..model.live import GPT

    for value in list(space.values()):
        if isinstance(value, GPT) and value is not live:
            with contextlib.suppress(Exception):
                value.close()
    space.clear()


class _Stream:
    """What a cell prints, sent on a few times a second, and no more than MOST_OUTPUT of it."""

    def __init__(self, send) -> None:
        self._send, self._left, self._waiting, self._sent_at = send, MOST_OUTPUT, [], time.perf_counter()

    def part(self, stream: str):
        """A file to print to."""
        return _Part(self, stream)

    def write(self, stream: str, text: str) -> None:
        if self._left <= 0:
            return
        self._left -= len(text)
        if self._left <= 0:
            text = text[: len(text) + self._left] + "\n… what came after is left out: print less, or every hundredth line."
        if self._waiting and self._waiting[-1][0] == stream:
            self._waiting[-1] = (stream, self._waiting[-1][1] + text)
        else:
            self._waiting.append((stream, text))
        if time.perf_counter() - self._sent_at > _TURN_SECONDS:
            self.flush()

    def flush(self) -> None:
        for stream, text in self._waiting:
            self._send(text, stream)
        self._waiting, self._sent_at = [], time.perf_counter()


class _Part(io.TextIOBase):
    def __init__(self, whole: _Stream, stream: str) -> None:
        self._whole, self._stream = whole, stream

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self._whole.write(self._stream, text)
        return len(text)
