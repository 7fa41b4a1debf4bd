"""Run a command with its output in a log file, a sign of life on the terminal, and the log's tail when it fails."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from tools import paths

BEAT_SECONDS = 20.0


class BuildError(Exception):
    """A step cannot be done; the text says what to do."""


def say(text: str) -> None:
    print(text, flush=True)


def run(
    command: list[str],
    log: str,
    *,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
    check: bool = True,
) -> int:
    """Run `command`, appending its output to the log of that name; raise BuildError with the tail when it fails."""
    path = paths.logs() / f"{log}.log"
    with open(path, "ab") as out:
        out.write(("$ " + " ".join(map(str, command)) + "\n").encode())
        out.flush()
        start = time.monotonic()
        beat = start + BEAT_SECONDS
        process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=cwd or paths.REPO,
            env=None if env is None else {**os.environ, **env},
        )
        try:
            while True:
                try:
                    code = process.wait(timeout=0.5)
                    break
                except subprocess.TimeoutExpired:
                    now = time.monotonic()
                    if now >= beat:
                        beat = now + BEAT_SECONDS
                        say(f"      … {log}: {now - start:.0f} s")
        except BaseException:
            process.terminate()
            process.wait()
            raise
    if code and check:
        tail = path.read_text(errors="replace").splitlines()[-25:]
        raise BuildError(
            f"{Path(command[0]).name} stopped with code {code}. The end of {path}:\n  " + "\n  ".join(tail)
        )
    return code


def output(command: list[str], **options: object) -> str:
    """What `command` prints, or "" when it is missing or fails."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, **options
        )
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


class Steps:
    """Numbered steps with the time each took, so that a person sees how far a set-up is."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.count = 0
        self.start = time.monotonic()

    def do(self, title: str, action, *arguments):
        """Run one step. `action` returns False when it found nothing to do; anything else is passed on."""
        self.count += 1
        begun = time.monotonic()
        show = f"[{self.count}/{self.total}] {title}"
        if sys.stdout.isatty():
            print(show + " …", end="\r", flush=True)
        result = action(*arguments)
        seconds = time.monotonic() - begun
        state = "up to date" if result is False else f"{seconds:.1f} s"
        say(f"{show}: {state} (at {time.monotonic() - self.start:.0f} s)")
        return result
