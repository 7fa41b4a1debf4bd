"""A function of this repository as its source has it, found by name: what lessons show of the real code."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tools import paths
from tools.shell import BuildError

MOST_LINES = 60


def source(path: Path, name: str) -> tuple[int, str]:
    """First line's number, and the source, of a function or class (`name`, `Class.method`) of any language in the repository."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    if path.suffix == ".py":
        scope: list = ast.parse(text).body
        for part in name.split("."):
            found = next((node for node in scope if getattr(node, "name", None) == part or part in _assigned(node)), None)
            if found is None:
                raise BuildError(f"{path.relative_to(paths.REPO)} has no {name}.")
            scope = getattr(found, "body", [])
        first = min([found.lineno, *(decorator.lineno for decorator in getattr(found, "decorator_list", []))])
        return first, _clipped(lines[first - 1 : found.end_lineno])
    opening = re.compile(rf"^[^/\n]*\b{re.escape(name)}\b[^;\n]*[({{=]")
    first = next((at for at, line in enumerate(lines) if opening.search(line) and not line.lstrip().startswith(("*", "return", "if"))), None)
    if first is None:
        raise BuildError(f"{path.relative_to(paths.REPO)} has no {name}.")
    depth, last = 0, first
    for last in range(first, min(len(lines), first + 4 * MOST_LINES)):  # noqa: B007 - where it ends
        depth += sum(lines[last].count(mark) for mark in "{(") - sum(lines[last].count(mark) for mark in "})")
        if depth <= 0 and ("}" in lines[last] or lines[last].rstrip().endswith(";")):
            break
    return first + 1, _clipped(lines[first : last + 1])


def _assigned(node: ast.AST) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _clipped(lines: list[str]) -> str:
    more = len(lines) - MOST_LINES
    return "\n".join([*lines[:MOST_LINES], f"… {more} more lines"] if more > 0 else lines)
