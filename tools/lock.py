"""One writer at a time: a lock file in the cache, released by the kernel even when a process is killed."""

from __future__ import annotations

import fcntl
from contextlib import contextmanager

from tools import paths
from tools.shell import say


@contextmanager
def held(name: str):
    """Hold the lock of that name; wait, and say so, while another run holds it."""
    folder = paths.cache()
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / f"{name}.lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"Another build.sh is at work on {name}; waiting for it.")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
