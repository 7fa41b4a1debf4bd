"""The tests and the bench: what they need beyond the build, and how each kind is run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tools import debian, downloads, fuzz, paths, runtime, venv
from tools.shell import BuildError, run, say

KINDS = ("native", "pyodide", "browser")
LARGE = "large"
"""Behemoth in Chromium: only where it is named, since it takes some 12 GB of memory, 15 GB of disk and several minutes."""
ENDURANCE = "endurance"
"""Whatever is marked so, at its full length: fuzzing, kills, soaks. Hours; only where it is named."""
PEERS = ("peers-cpu", "peers")
NO_TESTS = 5  # pytest's exit code when it found none


def split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """The kinds named at the start (all when none is), and the rest, which goes to pytest."""
    count = 0
    while count < len(arguments) and arguments[count] in (*KINDS, LARGE, ENDURANCE):
        count += 1
    return arguments[:count] or list(KINDS), arguments[count:]


def steps(arguments: list[str]) -> list:
    kinds, _ = split(arguments)
    wanted = [("A Vulkan driver", vulkan)] if "native" in kinds else []
    if {"native", "browser"} & set(kinds):  # a run goes from the browser's tab into PyTorch and back
        wanted.append(("PyTorch, transformers, peft, gguf", test_peers))
    if {"native", ENDURANCE} & set(kinds):
        wanted.append(("clang with its sanitizers", fuzz.need))
    if ENDURANCE in kinds:
        wanted.append(("atheris", fuzz.python))
    if "browser" in kinds:
        wanted.append(("Firefox", firefox))
    return wanted + ([("Chromium", browser)] if {"browser", "pyodide", LARGE, ENDURANCE} & set(kinds) else [])


def vulkan() -> bool:
    """Mesa's lavapipe, a GPU played by the CPU, for tests/gpu; False where there is one, or where apt cannot install it:
    the tests then use what driver there is, or skip and say why."""
    return on_debian() and debian.need("libvulkan1", "mesa-vulkan-drivers")


def peers() -> bool:
    """What judges files, gradients and speed: with PyTorch without CUDA where pip knows such a wheel, else PyPI's."""
    return venv.extra(*PEERS)


def test_peers() -> bool:
    """`peers`; where they cannot be had the tests that need them skip and say why."""
    try:
        return peers()
    except BuildError as error:
        say(f"      not to be had here, and the tests that need them are skipped: {error}")
        return True


def on_debian() -> bool:
    """Whether packages can be installed: as root on Debian."""
    return debian.has_apt() and "ID=debian" in Path("/etc/os-release").read_text().split()


def chromium() -> str | None:
    """Debian's Chromium, or None where Playwright's own is used."""
    return next((path for path in ("/usr/bin/chromium", "/usr/bin/chromium-browser") if Path(path).exists()), None)


def browser() -> bool:
    """A Chromium for the tests; False when there is one."""
    if chromium():
        return False
    if on_debian():
        return debian.need("chromium", "fonts-dejavu-core")
    run([str(venv.python()), "-m", "playwright", "install", "chromium"], "playwright")
    return True


def firefox() -> bool:
    """Debian's Firefox for its tests; elsewhere they take the one that is there, or skip and say so."""
    return on_debian() and debian.need("firefox-esr", "fonts-dejavu-core")


def environment() -> dict[str, str]:
    """What test and bench scripts are told: where the built site, Pyodide, Node and the browser are."""
    node = downloads.node()
    told = {
        "PTL_CACHE": str(paths.cache()),
        "PTL_DIST": str(paths.DIST),
        "PTL_PYODIDE": str(paths.DIST / runtime.name()),
        "PTL_ENGINE": str(paths.DIST / "engine"),
        "PTL_NODE": node,
        "PTL_CHROMIUM": chromium() or "",
        "PYTHONPATH": str(paths.REPO),
        "PTL_GPU_REQUIRED": "1" if debian.installed("mesa-vulkan-drivers") else "",
        "PTL_PEERS_REQUIRED": "1" if venv.has(*PEERS) else "",
    }
    path = [str(paths.venv() / "bin"), os.environ.get("PATH", ""), str(Path(node).parent)]
    return {**os.environ, **told, "PATH": ":".join(path)}


def call(command: list[str], told: dict[str, str] | None = None) -> int:
    say("\n$ " + " ".join(str(part).replace(str(paths.REPO) + "/", "") for part in command))
    return subprocess.run(command, cwd=paths.REPO, env=environment() | (told or {})).returncode


def pytest(folder: str, more: list[str], told: dict[str, str] | None = None) -> int:
    return call([str(venv.python()), "-m", "pytest", folder, *more], told)


def native(more: list[str]) -> int:
    return pytest("tests", more)


def pyodide(more: list[str]) -> int:
    """tests/run_in_pyodide.py or .mjs, which runs the same pytest files under Pyodide in Node."""
    python, node = (paths.REPO / "tests" / f"run_in_pyodide.{kind}" for kind in ("py", "mjs"))
    if python.exists():
        return call([str(venv.python()), str(python), *more])
    if node.exists():
        return call([downloads.node(), str(node), *more])
    say("tests/run_in_pyodide is not there.")
    return NO_TESTS


def browser_tests(more: list[str]) -> int:
    if not (paths.REPO / "e2e").exists():
        say("e2e/ is not there.")
        return NO_TESTS
    return pytest("e2e", more)


def large(more: list[str]) -> int:
    """Behemoth trains, saves and goes on; what was measured goes into bench/results/behemoth.json."""
    return pytest("e2e/test_behemoth.py", ["-s", *more], {"PTL_LARGE": "1"})


def endurance(more: list[str]) -> int:
    """What is marked endurance, natively and in browsers; records go into bench/results/."""
    codes = [pytest(folder, ["-m", ENDURANCE, "--timeout", "0", *more], {"PTL_ENDURANCE": "1"}) for folder in ("tests", "e2e")]
    if set(codes) == {NO_TESTS}:
        return NO_TESTS
    return next((code for code in codes if code not in (0, NO_TESTS)), 0)


def main(arguments: list[str]) -> int:
    """Run the kinds asked for, all of them even after a failure; 0 only when each passed. pytest has the last line."""
    kinds, more = split(arguments)
    runs = {"native": native, "pyodide": pyodide, "browser": browser_tests, LARGE: large, ENDURANCE: endurance}
    codes = {kind: runs[kind](more) for kind in kinds}
    failed = {kind: code for kind, code in codes.items() if code}
    if failed:
        say("\nNot passed: " + ", ".join(f"{kind} (exit code {code})" for kind, code in failed.items()))
    return next(iter(failed.values()), 0)


def bench_needs() -> bool:
    """Chromium; jax-js; PyTorch."""
    downloads.package("@jax-js/jax")
    fresh = [browser(), peers()]
    return any(fresh)


def bench(arguments: list[str]) -> int:
    if not (paths.REPO / "bench" / "__main__.py").exists():
        raise BuildError("bench/__main__.py is not there.")
    jax = {"PTL_JAX_JS": str(downloads.package("@jax-js/jax"))}
    os.chdir(paths.REPO)
    return subprocess.run([str(venv.python()), "-m", "bench", *arguments], env={**environment(), **jax}).returncode
