"""Emscripten: the machine's own emcc when it is new enough, else Debian's, unpacked into a folder of the cache."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

from tools import debian, lock, paths
from tools.shell import BuildError, output, run, say

SUITE = "forky"
OLDEST_MAJOR = 4
HELP = (
    "No Emscripten >= 4 was found and Debian's could not be unpacked. Install it by hand: get emsdk "
    "(emscripten.org, 'Download and install'), run `emsdk install latest`, `emsdk activate latest`, "
    "`source emsdk_env.sh`, and start build.sh again from that shell."
)


def on_path() -> bool:
    """Whether the emcc on PATH is recent enough."""
    if not shutil.which("em++"):
        return False
    found = re.search(r"\b(\d+)\.\d+\.\d+", output(["emcc", "--version"]))
    return bool(found) and int(found[1]) >= OLDEST_MAJOR


def root() -> Path:
    """The folder that holds the unpacked Debian with Emscripten in it."""
    return paths.cache() / "emscripten" / SUITE


def ready() -> Path:
    """The file that says that root() is complete."""
    return root().with_name(SUITE + ".ready")


def version() -> str:
    """One line naming the compiler, for the build's hash."""
    if on_path():
        return output(["emcc", "--version"]).splitlines()[0]
    return ready().read_text().strip()


def setup() -> bool:
    """Make an Emscripten available; False when there is one already. Raises BuildError with the manual way."""
    if on_path() or ready().exists():
        return False
    with lock.held("emscripten"):
        for again in (True, False):
            if ready().exists():  # another run made it meanwhile
                return True
            try:
                unpack()
            except BuildError as error:
                if not again:
                    raise BuildError(f"{error}\n{HELP}") from error
                say("      Unpacking Debian failed; once more.")  # a mirror that hiccups costs a minute, not the set-up
    return True


def unpack() -> None:
    """debootstrap a minimal Debian that has Emscripten; about 1.2 GB, a minute or two."""
    debian.need("debootstrap", "ca-certificates", "debian-archive-keyring")
    target = root()
    if target.exists():  # an interrupted attempt
        shutil.rmtree(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    command = ["debootstrap", "--variant=minbase", "--include=emscripten", SUITE, target, debian.mirror()]
    scripts = Path("/usr/share/debootstrap/scripts")
    if not (scripts / SUITE).exists():  # Debian 12's debootstrap is older than the suite; every suite uses one script
        command.append(scripts / "sid")
    patience = target.parent / "wgetrc"  # debootstrap's wget waits 15 minutes for a server that has gone silent
    patience.write_text("timeout = 20\ntries = 8\nwaitretry = 2\n")
    run(command, "debootstrap", env={"WGETRC": str(patience)})
    for waste in ("var/cache/apt/archives", "var/lib/apt/lists", "usr/share/doc", "usr/share/man"):
        shutil.rmtree(target / waste, ignore_errors=True)
    text = output(["chroot", str(target), "emcc", "--version"])
    if not text:
        raise BuildError("The unpacked emcc does not run.")
    ready().write_text(text.splitlines()[0] + "\n")


if __name__ == "__main__":
    try:
        setup()
    except BuildError as error:
        sys.exit(str(error))
