"""docs/survive.md names tests that are there, and says of every report what shows it or what is untried."""

import ast
import re
from pathlib import Path

import pytest

REPO = Path(__file__).parent.parent
pytestmark = pytest.mark.native_only(reason="reads the clone")


def rows():
    text = (REPO / "docs" / "survive.md").read_text("utf-8")
    return {int(row[1]): row[2].split(" | ") for row in re.finditer(r"^\| (\d+) \| (.+) \|$", text, re.MULTILINE)}


def test_every_test_named_is_there():
    named = re.findall(r"`((?:tests|e2e)/[\w/]+\.py)::(test_\w+)`", (REPO / "docs" / "survive.md").read_text("utf-8"))
    assert len(named) > 30
    for file, name in named:
        tree = ast.parse((REPO / file).read_text("utf-8"))
        assert name in {each.name for each in ast.walk(tree) if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))}, f"{file}::{name}"


def test_every_report_has_its_source_and_its_answer():
    found = rows()
    assert len(found) == 26
    for number, (source, fault, answer) in found.items():
        assert re.search(r"#\d+|tinygpt", source) and fault.endswith("."), number
        assert "::test_" in answer or "Untried:" in answer, number
