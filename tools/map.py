"""docs/map.md: every source file with its own first sentence, so that the map cannot say what a file does not.

`python -m tools.map` writes it; tests/test_map.py holds it to the files as they are.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tools import paths

ROOTS = ("pysrc/posttrainllm", "ext", "shaders", "app", "static", "tools", "bench", "docs/learn")
KINDS = (".py", ".cpp", ".h", ".wgsl", ".mjs", ".js", ".css", ".md", ".sh")
TARGET = paths.REPO / "docs" / "map.md"
HEAD = "# Map\n\nEvery source file with its own first sentence. Made by `python3 -m tools.map`; a test compares it with the files.\n"


def first_sentence(path: Path) -> str:
    """What a file says of itself: its docstring's, comment's or heading's first sentence; "" where it says nothing."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        said = ast.get_docstring(ast.parse(text)) or ""
    elif path.suffix == ".md":
        said = (re.search(r"^# (.+)$", text, re.MULTILINE) or [""])[0].lstrip("# ")
    elif path.suffix == ".css":
        said = (re.match(r"\s*/\*(.+?)\*/", text, re.DOTALL) or ["", ""])[1]
    else:
        lines = []
        for line in text.splitlines():
            if line.startswith(("#!", "enable ")) or (not line.strip() and not lines):
                continue
            mark = re.match(r"\s*(?://+|#)\s?(.*)", line)
            if not mark or (line.startswith("#") and path.suffix != ".sh"):
                break
            lines.append(mark[1])
        said = " ".join(lines)
    said = " ".join(said.split("\n\n")[0].split())
    ended = re.match(r".*?[.;](?=\s|$)", said)
    return (ended[0].rstrip(".;") if ended else said).strip() or _beside(path)


def _beside(path: Path) -> str:
    """What the header beside a C++ file says, or the op that a kernel or shader is of."""
    header, op = path.with_suffix(".h"), paths.PACKAGE / "ops" / f"{path.stem}.py"
    if path.suffix == ".wgsl" and not op.exists():
        op = op.with_name(path.stem.partition("_")[0] + ".py")  # a part of an op's shader
    if path.suffix == ".cpp" and header.exists():
        return first_sentence(header)
    return first_sentence(op) if path.suffix in (".cpp", ".wgsl") and op.exists() else ""


def files() -> dict[str, list[tuple[str, str]]]:
    """folder -> [(file, what it says)], in order; files that are built, hidden or empty are left out."""
    found: dict[str, list[tuple[str, str]]] = {}
    for root in ROOTS:
        for path in sorted((paths.REPO / root).rglob("*")):
            parts = path.relative_to(paths.REPO).parts
            if path.suffix not in KINDS or "__pycache__" in parts or any(part.startswith(".") for part in parts) or not path.read_bytes().strip():
                continue
            found.setdefault("/".join(parts[:-1]), []).append((parts[-1], first_sentence(path)))
    return found


def render() -> str:
    """The whole map as Markdown."""
    lines = [HEAD]
    for folder, rows in sorted(files().items()):
        lines.append(f"## {folder}\n")
        lines += [f"- [{name}](../{folder}/{name})" + (f": {said}" if said else "") for name, said in rows]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    TARGET.write_text(render(), encoding="utf-8")
