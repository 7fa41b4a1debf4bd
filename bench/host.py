"""What a record says about where it was made: the machine, the versions, how busy it was."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import time
from pathlib import Path


def facts() -> dict:
    """{"cpu": model, "cores": usable, "memory_gb", "os"}."""
    return {"cpu": cpu_model(), "cores": len(os.sched_getaffinity(0)), "memory_gb": memory_gb(), "os": os_name()}


def cpu_model() -> str:
    """The processor's name as the system tells it, with its vector extensions (some hosts hide the name)."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or platform.machine()
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    flags = re.search(r"^flags\s*:\s*(.+)$", text, re.MULTILINE)
    vectors = [name for name in ("avx2", "avx512f", "asimd") if flags and name in flags[1].split()]
    return " ".join([found[1].strip() if found else platform.machine(), *vectors])


def memory_gb() -> float:
    """Physical memory in GB (10^9 bytes)."""
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1)


def os_name() -> str:
    """Distribution and kernel."""
    try:
        pretty = platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        pretty = platform.system()
    return f"{pretty}, {platform.system()} {platform.release()}"


def load() -> float:
    """Processes that wanted to run, on average over the last minute. Above the bench's own use, others were running."""
    return round(os.getloadavg()[0], 2)


def output(*command: str) -> str:
    """A command's first line, or "" where it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return (done.stdout.strip().splitlines() or [""])[0]


def busy_cores(seconds: float = 1.0) -> float:
    """Cores that other work keeps busy while this process sleeps for `seconds`; 0 on a quiet machine."""
    def spent() -> tuple[int, int]:
        fields = [int(value) for value in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
        return sum(fields[:8]), fields[3] + fields[4]

    if not Path("/proc/stat").exists():
        return float("nan")
    before, idle_before = spent()
    time.sleep(seconds)
    after, idle_after = spent()
    return round((os.cpu_count() or 1) * (1 - (idle_after - idle_before) / max(1, after - before)), 2)


def commit(repo: Path) -> str:
    """The commit of the clone, with "+changes" where files differ from it."""
    found = output("git", "-C", str(repo), "rev-parse", "--short=12", "HEAD")
    return found + ("+changes" if output("git", "-C", str(repo), "status", "--porcelain", "-uno") else "")


def versions(chromium: str = "") -> dict:
    """Of everything that is measured here or measures."""
    import posttrainllm
    from importlib.metadata import PackageNotFoundError, version

    from tools import emscripten, paths

    def of(package: str) -> str:
        try:
            return version(package)
        except PackageNotFoundError:
            return ""

    jax_js = Path(os.environ.get("PTL_JAX_JS", ""), "package.json")
    return {
        "posttrainllm": posttrainllm.__version__,
        "commit": commit(paths.REPO),
        "python": platform.python_version(),
        "torch": of("torch"),
        "numpy": of("numpy"),
        "chromium": chromium,
        "emscripten": emscripten.version(),
        "jax_js": json.loads(jax_js.read_text())["version"] if jax_js.is_file() else "",
    }
