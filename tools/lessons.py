"""The course: docs/learn/*.md, read into what the page shows and what the tests run.

A lesson is Markdown that reads well on its own, with a few fenced blocks that mean something:

    ```python cell          a cell: runs on the page, and in the tests; the cells of a lesson share their names, in order
    ```output               what the cell or command before it prints; ... stands for anything
    ```sh                   a command: runs natively, in an empty folder of the lesson's own
    ```question             a question that checks itself (see `question`)
    ```instrument NAME      something to turn, made by app/ui/instruments/; inside, in words, what it shows (and `name = value` lines)

A link to a file of this repository names a function behind the #; its source is then shown in place. A figure in the prose is
followed by <!-- is EXPRESSION --> where it comes from the project's own files (tests/learn/facts.py evaluates it).

`python -m tools.lessons FOLDER` writes index.json, glossary.json and one NAME.json a lesson. A node of their bodies is a text, or
[tag, attributes, children…] with tag one of TAGS, or an object with one key: cell, command, question, instrument, source.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

from markdown_it import MarkdownIt

from tools import how_fast, paths
from tools.excerpts import source
from tools.shell import BuildError

FOLDER = paths.REPO / "docs" / "learn"
TAGS = ("p", "ul", "ol", "li", "strong", "em", "code", "pre", "a", "h3", "table", "thead", "tbody", "tr", "th", "td", "blockquote", "br")
SECTIONS = ("Why here", "Learn it", "In the repo", "See it work", "You have got this when")
_FACT = re.compile(r"<!-- is (.+?) -->", re.DOTALL)


@dataclass
class Lesson:
    """One lesson. cells and commands are (code, output); facts are (text before the comment, expression, line)."""

    path: Path
    title: str = ""
    lead: list = field(default_factory=list)
    sections: list[dict] = field(default_factory=list)
    cells: list[tuple[str, str]] = field(default_factory=list)
    commands: list[tuple[str, str]] = field(default_factory=list)
    questions: list[dict] = field(default_factory=list)
    instruments: list[dict] = field(default_factory=list)
    facts: list[tuple[str, str]] = field(default_factory=list)
    links: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """softmax, for 03-softmax.md."""
        return self.path.stem.partition("-")[2]

    @property
    def number(self) -> int:
        return int(self.path.stem.partition("-")[0])

    def fail(self, rule: str, came: str) -> BuildError:
        return BuildError(f"{self.path.name}: {rule}; {came}.")

    def to_dict(self) -> dict:
        """As the page reads it."""
        return {
            "name": self.name, "number": self.number, "title": self.title, "lead": self.lead, "sections": self.sections,
            "cells": [{"code": code, "output": output} for code, output in self.cells],
            "commands": [{"code": code, "output": output} for code, output in self.commands],
        }  # fmt: skip


def lessons() -> list[Lesson]:
    """All lessons in order."""
    return [read(path) for path in sorted(FOLDER.glob("[0-9][0-9]-*.md"))]


def read(path: Path) -> Lesson:
    """A lesson from its file. BuildError names the file, the rule and what came."""
    return _Reader(Lesson(path)).read(path.read_text(encoding="utf-8"))


def question(text: str) -> dict:
    """A question from its block: its words, then answers a line, what is told after a bar.

    `(x) answer | told` is right and `( ) answer | told` wrong; or `= 5.55 within 0.01 | told` and `? | told where it is wrong`.
    """
    words, choices, number, wrong = [], [], None, ""
    for line in text.strip().splitlines():
        said, _, told = (part.strip() for part in line.partition("|"))
        if mark := re.match(r"\(([ x])\) (.+)", said):
            choices.append({"text": mark[2], "right": mark[1] == "x", "told": told})
        elif mark := re.match(r"= (-?[\d.]+)(?: within ([\d.]+))?$", said):
            number = {"value": float(mark[1]), "within": float(mark[2] or 0), "told": told}
        elif said == "?":
            wrong = told
        else:
            words.append(line.strip())
    right = [choice for choice in choices if choice["right"]]
    if not words or (number is None) == (not choices) or (choices and (len(right) != 1 or len(choices) < 2)):
        raise BuildError(f"A question has words, and one right answer among several or a number; {text!r} came.")
    if not all(choice["told"] for choice in choices) or (number is not None and not (wrong and number["told"])):
        raise BuildError(f"Every answer tells something after a bar; {text!r} came.")
    return {"words": " ".join(words), "choices": choices} if choices else {"words": " ".join(words), "number": number | {"wrong": wrong}}


def glossary() -> dict[str, dict]:
    """term -> {says, forms}, from glossary.md: `- **token** (tokens): what it is.`"""
    found = {}
    for line in (FOLDER / "glossary.md").read_text(encoding="utf-8").splitlines():
        if mark := re.match(r"- \*\*(.+?)\*\*(?: \((.+?)\))?: (.+)$", line):
            found[mark[1]] = {"says": mark[3], "forms": [mark[1], *(mark[2].split(", ") if mark[2] else [])]}
        elif line.startswith("-"):
            raise BuildError(f"glossary.md: a line is `- **term** (other forms): what it is`; {line!r} came.")
    return found


class _Reader:
    """Tokens of markdown-it into a lesson's nodes."""

    def __init__(self, lesson: Lesson) -> None:
        self.lesson = lesson
        self._pending: list | None = None  # the list that an output block belongs to

    def read(self, text: str) -> Lesson:
        lesson = self.lesson
        tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(text)
        stack: list[list] = [[]]
        for at, token in enumerate(tokens):
            if token.type == "heading_open" and token.tag in ("h1", "h2"):
                self._heading(token.tag, tokens[at + 1].content, stack)
            elif token.type in ("inline",) and tokens[at - 1].type == "heading_open" and tokens[at - 1].tag in ("h1", "h2"):
                continue
            elif token.type == "heading_close" and token.tag in ("h1", "h2"):
                continue
            elif token.type == "inline":
                stack[-1] += self._inline(token.children or [])
            elif token.type == "fence":
                self._fence(token.info.strip(), token.content, stack[-1])
            elif token.type == "html_block":
                self._fact(token.content, stack[-1])
            elif token.nesting == 1:
                if not token.hidden:
                    stack.append([self._tag(token.tag), None])
            elif token.nesting == -1:
                if not token.hidden:
                    node = stack.pop()
                    stack[-1].append(node)
            else:
                raise lesson.fail("plain Markdown only", f"{token.type} came")
        return lesson

    def _heading(self, tag: str, title: str, stack: list) -> None:
        lesson = self.lesson
        if tag == "h1":
            lesson.title = title
            stack[:] = [lesson.lead]
        else:
            lesson.sections.append({"title": title, "body": []})
            stack[:] = [lesson.sections[-1]["body"]]
        self._pending = None

    def _tag(self, tag: str) -> str:
        if tag not in TAGS:
            raise self.lesson.fail(f"tags are {', '.join(TAGS)}", f"{tag} came")
        return tag

    def _fence(self, info: str, content: str, place: list) -> None:
        lesson, (kind, *rest) = self.lesson, info.split() or [""]
        if info == "output":
            if self._pending is None:
                raise lesson.fail("output follows a cell or a command", repr(content[:40]))
            self._pending[-1] = (self._pending[-1][0], content)
            self._pending = None
            return
        if info == "python cell" or kind == "sh":
            self._pending = lesson.cells if info == "python cell" else lesson.commands
            self._pending.append((content, ""))
            place.append({"cell" if kind == "python" else "command": len(self._pending) - 1})
            return
        self._pending = None
        if kind == "question":
            lesson.questions.append(question(content))
            place.append({"question": lesson.questions[-1]})
        elif kind == "instrument" and len(rest) == 1:
            settings = dict(re.findall(r"^(\w+) = (.+)$", content, re.MULTILINE))
            words = " ".join(line for line in content.split("\n") if not re.match(r"\w+ = ", line)).strip()
            lesson.instruments.append({"name": rest[0], "settings": settings, "words": words})
            place.append({"instrument": lesson.instruments[-1]})
        elif info in ("", "text", "python", "cpp", "wgsl", "js", "json"):
            place.append(["pre", None, ["code", None, content.rstrip("\n")]])
        else:
            raise lesson.fail("blocks are python cell, output, sh, question, instrument NAME, or text", f"{info!r} came")

    def _inline(self, tokens: list) -> list:
        stack: list[list] = [[]]
        for token in tokens:
            if token.type == "text":
                stack[-1].append(token.content)
            elif token.type == "softbreak":
                stack[-1].append("\n")
            elif token.type == "hardbreak":
                stack[-1].append(["br", None])
            elif token.type == "code_inline":
                stack[-1].append(["code", None, token.content])
            elif token.type == "html_inline":
                self._fact(token.content, stack[-1])
            elif token.type == "link_open":
                stack.append(["a", {"href": token.attrs["href"]}])
            elif token.nesting == 1:
                stack.append([self._tag(token.tag), None])
            elif token.nesting == -1:
                node = stack.pop()
                stack[-1].append(self._link(node) if node[0] == "a" else node)
            else:
                raise self.lesson.fail("plain Markdown only", f"{token.type} came")
        return [part for part in stack[0] if part != ""]

    def _fact(self, comment: str, place: list) -> None:
        found = _FACT.fullmatch(comment.strip())
        if found is None:
            raise self.lesson.fail("HTML is no part of a lesson, but for <!-- is EXPRESSION -->", repr(comment[:60]))
        self.lesson.facts.append((plain(place), found[1]))

    def _link(self, node: list):
        href = node[1]["href"]
        self.lesson.links.append(href)
        if re.match(r"https://", href):
            return node
        address, _, name = href.partition("#")
        target = (FOLDER / address).resolve()
        if not target.is_relative_to(paths.REPO) or not target.exists():
            raise self.lesson.fail("a link leads to a file of this repository or to https://", f"{href} came")
        if target.parent == FOLDER and target.suffix == ".md":
            node[1]["href"] = "#learn/" + (target.stem.partition("-")[2] or target.stem)
            return node
        if not name:
            return ["code", None, plain(node[2:])]
        line, code = source(target, name)
        return {"source": {"path": str(target.relative_to(paths.REPO)), "name": name, "line": line, "code": code, "words": node[2:]}}


def plain(nodes: list) -> str:
    """The text of nodes."""
    parts = []
    for node in nodes:
        if isinstance(node, str):
            parts.append(node)
        elif isinstance(node, list):
            parts.append(plain(node[2:]))
        elif isinstance(node, dict) and "source" in node:
            parts.append(plain(node["source"]["words"]))
    return "".join(parts)


def write(folder: Path) -> None:
    """index.json, glossary.json and every lesson into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.json"):
        old.unlink()
    found = lessons()
    index = [{"name": lesson.name, "number": lesson.number, "title": lesson.title, "lead": plain(lesson.lead)} for lesson in found]
    files = {lesson.name: lesson.to_dict() for lesson in found} | {"index": index, "glossary": glossary(), "how-fast": how_fast.page()}
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
