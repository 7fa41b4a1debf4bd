"""What ./build.sh does, by subcommand."""

from __future__ import annotations

import argparse
import os
import shutil
import sys

from tools import check, corpus, dist, downloads, emscripten, engine, lock, paths, runtime, serve, venv
from tools.shell import BuildError, Steps, say

USAGE = """usage: ./build.sh COMMAND [OPTIONS]

  setup                 install the tools, the virtual environment and the package
  build                 setup, then make dist/, the whole product for any static host
  serve [--port N] [--no-headers] [--path /sub/]
                        build, then serve dist/ on localhost
  test [native|pyodide|browser|large ...]
                        build, then run the tests (the first three kinds unless named; large: behemoth in Chromium, with
                        some 12 GB of memory, 15 GB of disk and several minutes)
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


def setup_steps() -> list:
    return [*native_steps(), ("Files from npm and PyPI", downloads.fetch), ("Emscripten", emscripten.setup)]


def build_steps() -> list:
    return [
        *setup_steps(),
        ("The engine as WebAssembly", engine.build),
        ("Pyodide", runtime.build),
        ("The site, dist/", dist.build),
    ]


def perform(steps: list) -> None:
    """Run steps in order under the lock, with progress shown."""
    with lock.held("build"):
        progress = Steps(len(steps))
        for title, action in steps:
            progress.do(title, action)


def setup(arguments: list[str]) -> int:
    perform(setup_steps())
    return 0


def build(arguments: list[str]) -> int:
    perform(build_steps())
    return 0


def serve_site(arguments: list[str]) -> int:
    if "-h" not in arguments and "--help" not in arguments:
        perform(build_steps())
    return serve.main(arguments)


def test(arguments: list[str]) -> int:
    perform([*build_steps(), *check.steps(arguments)])
    return check.main(arguments)


def bench(arguments: list[str]) -> int:
    perform([*build_steps(), ("What only the bench needs", check.bench_needs)])
    return check.bench(arguments)


def train(arguments: list[str]) -> int:
    perform(native_steps())
    program = str(venv.program("posttrainllm"))
    os.chdir(os.environ.get("PTL_CALLER_CWD") or ".")
    os.execv(program, [program, "train", *arguments])


def clean(arguments: list[str]) -> int:
    """Remove what was built in the clone and its environment; with --all the cache folder as well."""
    for folder in (paths.BUILD, paths.DIST, paths.venv()):
        shutil.rmtree(folder, ignore_errors=True)
    corpus.TARGET.unlink(missing_ok=True)
    if arguments == ["--all"]:
        shutil.rmtree(paths.cache(), ignore_errors=True)
    return 0


COMMANDS = {
    "setup": setup,
    "build": build,
    "serve": serve_site,
    "test": test,
    "bench": bench,
    "train": train,
    "clean": clean,
}


def main() -> int:
    parser = argparse.ArgumentParser(usage=USAGE.removeprefix("usage: "), add_help=False)
    parser.add_argument("command", nargs="?")
    options, _ = parser.parse_known_args(sys.argv[1:2])
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
