"""docs/corrections.md tells every setting with the value that it has."""

import re
from pathlib import Path

import pytest

from posttrainllm.configs import load

pytestmark = pytest.mark.native_only(reason="reads the clone")
PAGE = (Path(__file__).parents[3] / "docs" / "corrections.md").read_text("utf-8") if (Path(__file__).parents[3] / "docs").is_dir() else ""


@pytest.mark.parametrize("part", load("continual"))
def test_every_setting_is_told_with_its_value(part):
    told = PAGE.split(f"\n## {part}\n", 1)[1].split("\n## ", 1)[0]
    for name, value in load("continual")[part].items():
        shown = {"base": '"base"', "None": "null"}.get(str(value)) or (", ".join(value) if isinstance(value, list) else f"{value:,}")
        assert re.search(rf"`{name}` {re.escape(shown)}", told), f"{name} {shown}"
