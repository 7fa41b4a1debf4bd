"""docs/map.md is what the files say of themselves."""

import pytest

pytestmark = pytest.mark.native_only(reason="reads the clone")


def test_the_map_is_the_files_own_words():
    from tools import map as source_map

    assert source_map.TARGET.read_text("utf-8") == source_map.render(), "run: python3 -m tools.map"


def test_every_file_says_what_it_is():
    from tools import map as source_map

    silent = [f"{folder}/{name}" for folder, rows in source_map.files().items() for name, said in rows if not said]
    assert not silent
