"""The C++ engine as WebAssembly: with threads for an isolated page, without for any other, and with threads and 64-bit
addresses (Memory64) for a model that needs more than 4 GiB.

All take their memory from the page (`wasmMemory`), because its size is chosen from the plan before a run and never
changes while threads run: growth raced with threads in several browsers. The growth flags below are only what makes
Emscripten accept a memory of any size; the loader gives initial == maximum.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tools import emscripten, paths
from tools.shell import run

OUT = paths.BUILD / "engine"
COMPILE = ["-O3", "-std=c++20", "-msimd128", "-ffp-contract=off", "-fno-rtti", "-DNDEBUG", "-Iext"]
LINK = [
    "--no-entry",
    "-sMODULARIZE",
    "-sEXPORT_ES6",
    "-sENVIRONMENT=web,worker,node",
    "-sFILESYSTEM=0",
    "-sIMPORTED_MEMORY",
    "-sALLOW_MEMORY_GROWTH",
    "-sINITIAL_MEMORY=16MB",
    "-sSTACK_SIZE=256KB",
    "-sDEFAULT_PTHREAD_STACK_SIZE=256KB",
    "-sINCOMING_MODULE_JS_API=wasmMemory,locateFile,print,printErr",
]
# The loader waits for this many workers before it hands over the module, so that starting a thread never has to wait for
# the page. It is read from the options given to the module's factory.
THREADS = [
    "-pthread",
    "-sPTHREAD_POOL_SIZE=Module['poolThreads']??1",
    "-Wno-pthreads-mem-growth",
    "-sEXPORTED_RUNTIME_METHODS=HEAPU8,UTF8ToString,PThread",
]
SINGLE = ["-sEXPORTED_RUNTIME_METHODS=HEAPU8,UTF8ToString"]
NARROW, WIDE = ["-sMAXIMUM_MEMORY=4GB"], ["-m64", "-sMAXIMUM_MEMORY=16GB"]
"""Addresses of 32 bits, and of 64: 16 GiB is the most that Chromium gives one memory."""
VARIANTS = {"engine-threads": [*THREADS, *NARROW], "engine-single": [*SINGLE, *NARROW], "engine-threads64": [*THREADS, *WIDE]}


def sources() -> list[Path]:
    """The C++ files of the engine, without the CPython binding."""
    ext = paths.REPO / "ext"
    return sorted(file for file in [*ext.glob("*.cpp"), *ext.glob("kernels/*.cpp")] if not file.name.startswith("native"))


def exports() -> str:
    """The C ABI as engine.h and bpe.h declare it, for the linker."""
    header = "".join((paths.REPO / "ext" / name).read_text() for name in ("engine.h", "bpe.h"))
    names = re.findall(r"^PTL_EXPORT\b[^;(]*?\b(ptl_\w+)\(", header, re.M)
    return "-sEXPORTED_FUNCTIONS=" + ",".join(["_malloc", "_free", *(f"_{name}" for name in names)])


def key() -> str:
    """What the built files depend on."""
    ext = paths.REPO / "ext"
    total = hashlib.sha256(repr([COMPILE, LINK, VARIANTS, emscripten.version()]).encode())
    for file in sorted(ext.rglob("*")):
        if file.suffix in (".h", ".cpp", ".inc"):
            total.update(f"{file.relative_to(ext)}\0".encode() + file.read_bytes())
    return total.hexdigest()


def build() -> bool:
    """Compile all variants into build/engine/; False when the sources are those of the last time."""
    stamp = OUT / "key"
    wanted = key()
    if stamp.exists() and stamp.read_text() == wanted:
        return False
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    files = [str(file.relative_to(paths.REPO)) for file in sources()]

    def variant(name: str) -> None:
        target = str((OUT / f"{name}.mjs").relative_to(paths.REPO))
        run(["bash", "tools/emcc.sh", *COMPILE, *VARIANTS[name], *files, *LINK, exports(), "-o", target], name)

    with ThreadPoolExecutor() as pool:
        list(pool.map(variant, VARIANTS))
    stamp.write_text(wanted)
    return True
