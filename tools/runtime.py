"""Pyodide as the site serves it: its core, the wheels we use, a lock file that lists only those; and the memory snapshot
of it with our package imported."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path

from tools import downloads, paths
from tools.shell import BuildError, run

CORE = ["pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip"]
PACKAGES = ["numpy", "micropip", "packaging"]
PURE = ["lark"]  # wheels from PyPI without compiled parts, which Pyodide's release has not; loaded when they are first needed
CARRIER = "open_webui/frontend/pyodide/"  # a PyPI wheel that holds the very files of Pyodide's own release


def source() -> Path:
    """Pyodide's npm package."""
    return downloads.package("pyodide")


def name() -> str:
    """The folder's name on the site; it has the version because Pyodide finds its files by fixed names beside it."""
    return f"pyodide-{downloads.pins()['npm']['pyodide']['version']}"


def folder() -> Path:
    return paths.cache() / "site" / name()


def lock() -> dict:
    """Pyodide's lock, cut down to PACKAGES (a name it lists but the site lacks gives a misleading hash error), and PURE."""
    whole = json.loads((source() / "pyodide-lock.json").read_text())
    packages = {key: whole["packages"][key] for key in PACKAGES} | {key: pure(key) for key in PURE}
    return {**whole, "packages": packages}


def pure(key: str) -> dict:
    """A pure-Python wheel's entry in the lock, from its pin."""
    pin = downloads.pins()["wheels"][key]
    return {
        "name": key, "version": pin["version"], "file_name": f"{key}-{pin['version']}-py3-none-any.whl", "sha256": pin["sha256"],
        "install_dir": "site", "package_type": "package", "imports": [key], "depends": [], "unvendored_tests": False,
    }  # fmt: skip


def snapshot(package_zip: bytes) -> tuple[Path, Path]:
    """The snapshot for this package and the package with its bytecode, made anew when anything they depend on changed."""
    out = paths.BUILD / "snapshot"
    script, target, stamp = paths.REPO / "tools" / "snapshot.mjs", out / "snapshot.bin", out / "key"
    compiled = out / "compiled.zip"
    parts = (script.read_bytes(), downloads.node().encode(), name().encode(), package_zip)
    key = hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()
    if not (target.exists() and compiled.exists() and stamp.exists() and stamp.read_text() == key):
        out.mkdir(parents=True, exist_ok=True)
        stamp.unlink(missing_ok=True)
        (out / "package.zip").write_bytes(package_zip)
        run(
            [downloads.node(), str(script), str(folder()), str(out / "package.zip"), str(target), str(compiled)],
            "snapshot",
        )
        stamp.write_text(key)
    return target, compiled


def build() -> bool:
    """Fill folder(); False when it is complete. Raises BuildError when a wheel is not the one the lock names."""
    target = folder()
    stamp = target / ".key"
    text = json.dumps(lock(), sort_keys=True)
    key = hashlib.sha256((text + name()).encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == key:
        return False
    target.mkdir(parents=True, exist_ok=True)
    for file in CORE:
        (target / file).write_bytes((source() / file).read_bytes())
    (target / "pyodide-lock.json").write_text(text)
    with zipfile.ZipFile(downloads.wheel("open_webui")) as carrier:
        for key, entry in lock()["packages"].items():
            data = downloads.wheel(key).read_bytes() if key in PURE else carrier.read(CARRIER + entry["file_name"])
            if hashlib.sha256(data).hexdigest() != entry["sha256"]:
                raise BuildError(f"{entry['file_name']} is not the file that the lock names.")
            (target / entry["file_name"]).write_bytes(data)
    (target / "snapshot.bin").unlink(missing_ok=True)  # where versions before this one kept it
    stamp.write_text(key)
    return True
