"""A cell's code: compiled so that it may await at its top level, run in a namespace, its last expression's value handed back.

The page's cells, the scratch pad and the tests of the course run by these functions.
"""

from __future__ import annotations

import ast
import linecache
import traceback
from inspect import CO_COROUTINE


def compiled(code: str, name: str):
    """(code object of all but the last expression or None, code object of that expression or None). Raises SyntaxError.

    name: how tracebacks call the cell; its lines are shown in them.
    """
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    tree = ast.parse(code, name)
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr) and not code.rstrip().endswith(";"):
        last = ast.Expression(tree.body.pop().value)
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    head = compile(tree, name, "exec", flags) if tree.body else None
    return head, compile(last, name, "eval", flags) if last is not None else None


async def run(code: str, names: dict, name: str = "<cell>"):
    """Run a cell in `names`; the value of its last expression, None where it ends in a statement. Raises what the cell raises."""
    value = None
    for part in compiled(code, name):
        if part is not None:
            value = eval(part, names)  # noqa: S307 - the person's own code, in their own tab
            if part.co_flags & CO_COROUTINE:
                value = await value
    return value


def told(error: BaseException, name: str = "<cell>") -> tuple[str, int | None]:
    """A traceback as a person needs it, from the cell's own first line on, and the line of the cell where it went wrong (from 1)."""
    if isinstance(error, SyntaxError) and error.filename == name:
        return "".join(traceback.format_exception_only(error)).strip(), error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    first = next((at for at, frame in enumerate(frames) if frame.filename == name), len(frames))
    mine = [frame.lineno for frame in frames if frame.filename == name]
    lines = ["Traceback (most recent call last):\n", *traceback.format_list(frames[first:])] if mine else []
    return "".join([*lines, *traceback.format_exception_only(error)]).strip(), mine[-1] if mine else None
