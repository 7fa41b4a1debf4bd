"""The site's list of licences: every file of it is ours or of a part that is listed, and the texts are there."""

import json
import sys

import pytest

if sys.platform == "emscripten":
    pytest.skip("the build's tools run on the machine, not in the tab", allow_module_level=True)

from tools import dist, licences, paths, runtime

pytestmark = pytest.mark.native_only(reason="looks at the built site")
MADE = {"posttrainllm.zip", "site.json", "licences.txt", "sbom.json", "precache.json", "codemirror.mjs", "index.html", "_headers"}


@pytest.fixture(scope="module")
def text():
    return (paths.DIST / "licences.txt").read_text(encoding="utf-8")


def test_every_file_is_ours_or_of_a_listed_part(text):
    own = {**dist.tree(paths.REPO / "static"), **dist.tree(paths.REPO / "app")}
    for name in [entry["url"] for entry in json.loads((paths.DIST / "precache.json").read_text())]:
        owner = next((owner for start, owner in licences.OWNERS.items() if name.startswith(start)), None)
        if owner is None:
            assert name in own or name in MADE or name.startswith(("engine/", "learn/")), f"whose is {name}?"
        else:
            assert owner in text, name


def test_every_wheel_is_listed(text):
    for name, entry in runtime.lock()["packages"].items():
        assert f"{name} {entry['version']}" in text


def test_the_texts_themselves_are_there(text):
    for words in ("Mozilla Public License Version 2.0", "Apache License", "uplot: LICENSE", "posttrainllm: LICENSE", "numpy: licenses/LICENSE.txt", "lark: licenses/LICENSE"):
        assert words in text, words


def test_it_is_stored_for_use_offline_and_linked_from_the_page():
    assert any(entry["url"] == "licences.txt" for entry in json.loads((paths.DIST / "precache.json").read_text()))
    assert 'href="licences.txt"' in (paths.DIST / "index.html").read_text(encoding="utf-8")
