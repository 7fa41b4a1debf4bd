"""Coverage-guided fuzzers of the C++ engine: clang's libFuzzer with the address and undefined-behaviour sanitizers.

What they do with an input, and what must hold, is in tests/fuzz/*_fuzzer.cpp; tests/fuzz/test_engine.py runs them.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from tools import debian, paths, venv
from tools.shell import BuildError, run, say

PACKAGES = ("clang-19", "libclang-rt-19-dev")
"""In both Debian 12 and 13, which sign them; elsewhere any clang with libFuzzer will do."""
HOW = f"install clang with its sanitizers and libFuzzer (on Debian: {' '.join(PACKAGES)})"
SANITIZERS = "address,undefined"
COMPILE = ["-std=c++20", "-O1", "-g1", f"-fsanitize=fuzzer-no-link,{SANITIZERS}", "-fno-sanitize-recover=undefined", "-ffp-contract=off",
           "-fno-math-errno", "-Wall", "-Wextra", "-Wno-psabi", "-Iext"]  # fmt: skip
BUILDS = {"sse2": ["-msse2"], "avx2": ["-mavx2"], "avx512": ["-mavx512f", "-mavx512vl", "-mavx512dq", "-mavx512bw", "-mprefer-vector-width=512"]}
ONCE = {"tape": ("engine", "pool", "registry"), "bpe": ("bpe", "bpe_text", "bpe_train")}
KERNELS = ("gemm", "gemm_pack", "gemm_tile", "table", "bench_peak")


@cache
def compiler() -> str | None:
    """A clang++ that links libFuzzer, or None."""
    for name in ("clang++-19", "clang++"):
        if shutil.which(name):
            probe = [name, "-x", "c++", "-", f"-fsanitize=fuzzer,{SANITIZERS}", "-o", os.devnull]
            source = 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }'
            if not subprocess.run(probe, input=source.encode(), capture_output=True).returncode:
                return name
    return None


def need() -> bool:
    """Have a clang; False where there is one, or where apt cannot install it: the fuzzers then skip and say why."""
    if compiler() or not debian.has_apt():
        return False
    try:
        done = debian.need(*PACKAGES)
    except BuildError as error:
        say(f"      no clang to be had here, and the fuzzers of the engine are skipped: {error}")
        return True
    compiler.cache_clear()
    return done


def python() -> bool:
    """atheris, which fuzzes Python by its coverage; where there is no wheel of it for this Python the parsers have hypothesis alone."""
    try:
        return venv.extra("fuzz")
    except BuildError as error:
        say(f"      no atheris to be had here, and the parsers are fuzzed by hypothesis alone: {error}")
        return True


def build(name: str, mutant: tuple[str, str, str] | None = None) -> Path:
    """The fuzzer "tape" or "bpe" as a program, made once for each state of the sources. `mutant` is (a file of ext/, text, what stands there
    instead), to see that the fuzzer finds it. Raises BuildError."""
    clang = compiler()
    if clang is None:
        raise BuildError(f"No clang with libFuzzer here: {HOW}.")
    sources = [*paths.REPO.glob("ext/*.cpp"), *paths.REPO.glob("ext/*.h"), *paths.REPO.glob("ext/kernels/*.cpp"), paths.REPO / f"tests/fuzz/{name}_fuzzer.cpp"]
    total = hashlib.sha256(repr([clang, COMPILE, BUILDS, mutant]).encode())
    for file in sorted(sources):
        total.update(file.name.encode() + b"\0" + file.read_bytes())
    folder = paths.cache() / "fuzz" / f"{name}-{total.hexdigest()[:12]}"
    program = folder / name
    if program.exists():
        return program
    folder.mkdir(parents=True, exist_ok=True)
    jobs = {folder / f"{stem}.o": ([], f"ext/{stem}.cpp") for stem in ONCE[name]}
    jobs[folder / "fuzzer.o"] = ([], f"tests/fuzz/{name}_fuzzer.cpp")
    if name == "tape":
        stems = [*KERNELS, *(f"kernels/{file.stem}" for file in sorted(paths.REPO.glob("ext/kernels/*.cpp")))]
        for isa, flags in BUILDS.items():
            jobs |= {folder / f"{isa}-{Path(stem).name}.o": (flags, f"ext/{stem}.cpp") for stem in stems}
    if mutant is not None:
        file, was, becomes = mutant
        text = (paths.REPO / "ext" / file).read_text()
        if was not in text:
            raise BuildError(f"ext/{file} does not have {was!r}: choose another mutant.")
        (folder / file).write_text(text.replace(was, becomes, 1))
        jobs[folder / f"{Path(file).stem}.o"] = ([], str(folder / file))

    def compiled(job: tuple[Path, tuple[list[str], str]]) -> None:
        target, (flags, source) = job
        run([clang, *COMPILE, *flags, "-c", source, "-o", str(target)], "clang")

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compiled, jobs.items()))
    made = folder / "linked"
    run([clang, f"-fsanitize=fuzzer,{SANITIZERS}", *map(str, jobs), "-lpthread", "-o", str(made)], "clang")
    for file in jobs:
        file.unlink()
    made.rename(program)  # whoever finds it finds it whole
    return program


def environment() -> dict[str, str]:
    """For a fuzzer: its reports name functions where a symbolizer is there."""
    found = next((path for path in map(shutil.which, ("llvm-symbolizer-19", "llvm-symbolizer", "addr2line")) if path), "")
    return {**os.environ, **({"ASAN_SYMBOLIZER_PATH": found} if found else {}), "UBSAN_OPTIONS": "print_stacktrace=1"}
