"""The course keeps its word: every cell and command prints what its lesson says, links lead somewhere, figures are the project's own."""

import asyncio
import contextlib
import doctest
import io
import os
import re
import shlex

import pytest

pytest.importorskip("markdown_it", reason="the course is built natively")
pytest.importorskip("typer", reason="the command line is native")

from posttrainllm.session.cell_code import run

from tools import lessons, paths

from ..calling import call
from .facts import names

pytestmark = pytest.mark.native_only(reason="reads the clone; e2e/test_learn.py runs the cells in the page")

LESSONS = lessons.lessons()
each = pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)
PROSE_NUMBER = re.compile(r"(?<![\w.,/-])(?:\d{1,3}(?:,\d{3})+|\d+\.\d+)(?![\w/])")


def same(wanted, got):
    """Whether an output is the expected one, with ... for anything."""
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    return doctest.OutputChecker().check_output(wanted.strip() + "\n", got.strip() + "\n", flags)


@each
def test_a_lesson_has_all_its_parts(lesson):
    titles = [section["title"] for section in lesson.sections]
    assert tuple(titles) == lessons.SECTIONS
    assert lesson.title and lessons.plain(lesson.lead)
    assert lesson.cells and lesson.commands and lesson.questions and lesson.instruments
    assert any(link.startswith("https://") for link in lesson.links), "a place to learn it"
    assert any("#" in link and not link.startswith("https:") for link in lesson.links), "a function of the repository"
    assert len(lessons.plain(lesson.sections[0]["body"]).split()) > 60, "a real reason"
    for code, output in (*lesson.cells, *lesson.commands):
        assert re.search(r"\w", output), f"an output that cannot be wrong: {code}"


def test_they_are_numbered_and_named_once():
    assert [lesson.number for lesson in LESSONS] == sorted({lesson.number for lesson in LESSONS})
    assert len({lesson.name for lesson in LESSONS}) == len(LESSONS)


@each
def test_its_instruments_are_there(lesson):
    for instrument in lesson.instruments:
        path = paths.REPO / "app" / "instruments" / f"{instrument['name']}.py"
        assert path.exists() and "def build(place, settings)" in path.read_text("utf-8"), instrument["name"]


@each
def test_links_have_a_links_shape(lesson):
    for link in lesson.links:
        assert re.fullmatch(r"https://[a-z0-9.-]+\.[a-z]{2,}(/[\w./?=&%#:+~-]*)?|[\w./-]+(#[\w.]+)?", link), link
        assert "utm_" not in link


@each
def test_figures_are_the_projects_own(lesson):
    for said, expression in lesson.facts:
        value = eval(expression, names())  # noqa: S307 - our own text
        value = f"{value:,}" if isinstance(value, int) else str(value)
        assert re.search(rf"(?<![\d.,]){re.escape(value)}\W*$", said), f"{said[-40:]!r} is not {value} ({expression})"


@each
def test_a_figure_in_the_prose_says_where_it_comes_from(lesson):
    """Numbers like 842,496 or 5.55 in running text carry a fact's comment, or the words "about" or "say" before them."""
    prose = re.sub(r"```.*?```", "", lesson.path.read_text("utf-8"), flags=re.DOTALL)
    prose = re.sub(r"`[^`]*`|\]\([^)]*\)", "", prose)
    for found in PROSE_NUMBER.finditer(prose):
        before, after = prose[: found.start()].split()[-2:], prose[found.end() :].lstrip()
        assert re.match(r"\W{0,3}(?:[\w%]+ ){0,2}\W{0,3}<!-- is ", after) or {"about", "say"} & set(before), f"{found[0]} in {lesson.path.name}"


@each
def test_cells_print_what_the_lesson_says(lesson, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    space = {"__name__": "__main__"}
    exec("import posttrainllm as pt", space)  # noqa: S102 - as the page does
    for code, wanted in lesson.cells:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            value = asyncio.run(run(code, space))
            if value is not None:
                print(repr(value))
        assert same(wanted, out.getvalue()), f"{code}\nprinted\n{out.getvalue()}\nand not\n{wanted}"


@each
def test_commands_print_what_the_lesson_says(lesson, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for code, wanted in lesson.commands:
        printed = ""
        for line in code.replace("\\\n", " ").splitlines():
            program, *arguments = shlex.split(line, comments=True) or [""]
            assert program in ("posttrainllm", ""), f"{line}: lessons run posttrainllm only"
            if program:
                printed += call(*arguments)[0]
        assert same(wanted, printed), f"{code}\nprinted\n{printed}\nand not\n{wanted}"


def test_a_lesson_that_says_something_else_fails(tmp_path):
    assert not same("True", "False")
    assert same("loss 5.5...", "loss 5.54")
    from tools.shell import BuildError

    wrong = {
        "<b>no</b>": "HTML is no part",
        "[gone](../../pysrc/gone.py#there)": "a link leads",
        "[gone](../../tools/lessons.py#gone)": "has no gone",
        "```output\n1\n```": "output follows",
        "```question\nWhy?\n(x) Because | Yes.\n```": "one right answer",
    }
    for words, rule in wrong.items():
        (path := tmp_path / "01-wrong.md").write_text(f"# Wrong\n\n{words}\n")
        with pytest.raises(BuildError, match=rule):
            lessons.read(path)


def test_the_words_are_explained_once():
    found = lessons.glossary()
    forms = [form.lower() for entry in found.values() for form in entry["forms"]]
    assert len(forms) == len(set(forms))
    assert os.path.isfile(paths.REPO / "docs" / "learn" / "glossary.md")
