"""What ./build.sh does, by subcommand."""

from __future__ import annotations

import argparse
import os
import sys

from tools import corpus, downloads, emscripten, lock, venv
from tools.shell import BuildError, Steps, say

USAGE = """usage: ./build.sh COMMAND [OPTIONS]

  setup                 install the tools, the virtual environment and the package
  build                 setup, then make dist/, the whole product for any static host
  serve [--port N] [--no-headers] [--path /sub/]
                        build, then serve dist/ on localhost
  test [native|pyodide|browser ...]
                        build, then run the tests (all three kinds unless named)
  bench [ARGS]          setup, then measure; one JSON
  train [ARGS]          setup, then `posttrainllm train ARGS`
  clean [--all]         remove what was built here; --all the cache folder as well
"""


def native_steps() -> list:
    """What the package under CPython needs."""
    return [
        ("Compiler", venv.compiler),
        ("Python packages", venv.requirements),
        ("The package and its C++ engine", venv.package),
        ("Shakespeare", corpus.build),
    ]


def all_steps() -> list:
    return [*native_steps(), ("Files from npm and PyPI", downloads.fetch), ("Emscripten", emscripten.setup)]


def perform(steps: list) -> None:
    """Run steps in order under the lock, with progress shown."""
    with lock.held("build"):
        progress = Steps(len(steps))
        for title, action in steps:
            progress.do(title, action)


def setup(arguments: list[str]) -> int:
    perform(all_steps())
    return 0


def train(arguments: list[str]) -> int:
    perform(native_steps())
    program = str(venv.program("posttrainllm"))
    os.chdir(os.environ.get("PTL_CALLER_CWD") or ".")
    os.execv(program, [program, "train", *arguments])


COMMANDS = {"setup": setup, "train": train}


def main() -> int:
    parser = argparse.ArgumentParser(usage=USAGE.removeprefix("usage: "), add_help=False)
    parser.add_argument("command", nargs="?")
    options, rest = parser.parse_known_args(sys.argv[1:2])
    if options.command not in COMMANDS:
        say(USAGE)
        return 0 if sys.argv[1:2] in ([], ["-h"], ["--help"], ["help"]) else 2
    try:
        return COMMANDS[options.command](sys.argv[2:])
    except BuildError as error:
        print(f"build.sh: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
