"""The virtual environment: pinned, hashed requirements, and the package itself with its native extension."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import sysconfig
from pathlib import Path

from tools import debian, paths
from tools.shell import run

LOCKS = paths.REPO / "tools"
PIP = ["-m", "pip", "--disable-pip-version-check", "--no-input"]


def python() -> Path:
    return paths.venv() / "bin" / "python"


def program(name: str) -> Path:
    return paths.venv() / "bin" / name


def digest(*files: Path) -> str:
    """One hash over names and contents of `files`, and the Python that runs this."""
    total = hashlib.sha256(sys.version.encode())
    for file in sorted(files):
        total.update(str(file.relative_to(paths.REPO)).encode() + b"\0")
        total.update(hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()


def stamped(name: str, key: str) -> bool:
    """Whether the stamp of that name in the environment holds `key`."""
    file = paths.venv() / f"{name}.stamp"
    return file.exists() and file.read_text() == key


def stamp(name: str, key: str) -> None:
    (paths.venv() / f"{name}.stamp").write_text(key)


def compiler() -> bool:
    """g++, and the headers of the Python that runs this; False when both are there."""
    if sys.platform != "linux":
        return False
    wanted = []
    if not shutil.which("g++") and not shutil.which("c++"):
        wanted.append("g++")
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        wanted.append("python3-dev")
    return debian.need(*wanted) if wanted else False


def requirements() -> bool:
    """Make the environment and install the locked requirements; False when that is done already."""
    lock = LOCKS / "requirements.txt"
    key = digest(lock)
    shortcut()
    if python().exists() and stamped("requirements", key):
        return False
    if not python().exists() or not (paths.venv() / "requirements.stamp").exists():
        shutil.rmtree(paths.venv(), ignore_errors=True)  # nothing, or what an interrupted run left
        prune()
        run([sys.executable, "-m", "venv", str(paths.venv())], "venv")
        (paths.venv() / "clone").write_text(str(paths.REPO))
    install("--require-hashes", "--only-binary", ":all:", "-r", str(lock))
    stamp("requirements", key)
    return True


def shortcut() -> None:
    """A name to type: CACHE/venv is the environment of the clone that was set up last. build.sh never reads it."""
    latest = paths.cache() / "venv"
    if not latest.is_symlink() or os.readlink(latest) != paths.venv().name:
        latest.unlink(missing_ok=True)
        latest.symlink_to(paths.venv().name)


def prune() -> None:
    """Remove the environments of clones that are gone."""
    for note in paths.cache().glob("venv-*/clone"):
        if not Path(note.read_text()).exists():
            shutil.rmtree(note.parent, ignore_errors=True)


def install(*arguments: str, check: bool = True) -> int:
    return run([str(python()), *PIP, "install", "-q", *arguments], "pip", check=check)


def has(*names: str) -> bool:
    """Whether one of these lock files is installed as it stands."""
    return any(stamped(name, digest(LOCKS / f"requirements-{name}.txt")) for name in names)


def extra(*names: str) -> bool:
    """Install the first of these lock files (node; peers-cpu or peers) that can be had; False when one is in already."""
    if has(*names):
        return False
    for name in names:
        lock = LOCKS / f"requirements-{name}.txt"
        last = name == names[-1]
        if install("--require-hashes", "--only-binary", ":all:", "-r", str(lock), check=last) == 0:
            stamp(name, digest(lock))
            return True
    raise AssertionError("the last of the names either installs or raises")


def native_sources() -> list[Path]:
    folder = paths.REPO / "ext"
    return [file for file in folder.rglob("*") if file.is_file()] if folder.exists() else []


def package() -> bool:
    """Install the package in editable form, its extension built from ext/; False when nothing there changed."""
    key = digest(paths.REPO / "pyproject.toml", *native_sources())
    if stamped("package", key):
        return False
    run(
        [str(python()), *PIP, "install", "-q", "--no-build-isolation", "--no-deps", "-e", str(paths.REPO)],
        "package",
        env={"PATH": f"{paths.venv() / 'bin'}:{os.environ.get('PATH', '')}"},
    )
    stamp("package", key)
    return True
