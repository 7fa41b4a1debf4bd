"""dist/: the whole site, for any static host and under any sub-path. What lies where:

app/* and static/* as they are (index.html, ui/, worker.mjs, sw.js, icons/ …), but for the page's parts (parts/*.html): each
                   stands in index.html where that says `<!-- part: NAME -->`
pyodide-VERSION/   Pyodide, its wheels, snapshot.bin (gzip inside; no .gz, which some hosts unpack on the way)
pyscript/          core.js and its parts          micropython/   micropython.mjs, .wasm
uplot/             uPlot.esm.js, uPlot.min.css    engine/        engine-threads, -single, -threads64: .mjs and .wasm
learn/             the lessons (tools/lessons.py)  lesson/, instruments/   the page's Python for them, fetched when looked at
posttrainllm.zip   package, settings, shaders and bytecode       shakespeare.txt   the bundled corpus
site.json          where the worker finds Pyodide, the package, the corpus and the snapshot
precache.json      [{url, sha256, bytes, tier}], for sw.js      _headers, .nojekyll   for hosts that read them
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
from pathlib import Path

from tools import corpus, downloads, engine, licences, paths, runtime, venv
from tools.shell import BuildError, run, say

# PyScript's parts that only its own editor, terminal and game widgets load.
UNUSED = ("xterm", "py-editor", "py-game", "donkey", "service-worker")
# Fetched behind the page; all else is its shell, which the service worker wants before anything works.
RUNTIME = ("pyodide-", "posttrainllm.zip", "shakespeare.txt", "engine/engine-threads64", "learn/", "lesson/", "instruments/", "pyscript/codemirror", "codemirror.mjs", "licences.txt", "sbom.json")
HEADERS = """/*
  Cross-Origin-Opener-Policy: same-origin
  Cross-Origin-Embedder-Policy: require-corp
  Cross-Origin-Resource-Policy: same-origin
  Cache-Control: no-cache
"""
EPOCH = (1980, 1, 1, 0, 0, 0)

Files = dict[str, "Path | bytes"]


def tree(folder: Path, prefix: str = "") -> Files:
    """All files below `folder` but hidden ones and bytecode, by their address on the site."""
    found: Files = {}
    for file in sorted(folder.rglob("*")) if folder.exists() else []:
        parts = file.relative_to(folder).parts
        if file.is_file() and not any(part.startswith(".") or part == "__pycache__" for part in parts):
            found[prefix + "/".join(parts)] = file
    return found


def package_zip() -> bytes:
    """The package without what only CPython needs: Python files, settings, shaders; the same bytes from the same files."""
    memory = io.BytesIO()
    parts = tree(paths.PACKAGE, "posttrainllm/") | tree(paths.REPO / "shaders", "posttrainllm/shaders/")
    with zipfile.ZipFile(memory, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, file in parts.items():
            if file.suffix in (".py", ".json", ".wgsl"):
                archive.writestr(zipfile.ZipInfo(name, EPOCH), file.read_bytes(), zipfile.ZIP_DEFLATED)
    return memory.getvalue()


def third_party() -> Files:
    """PyScript, MicroPython and uPlot from npm."""
    files: Files = {}
    for name, file in tree(downloads.package("@pyscript/core") / "dist").items():
        if file.suffix in (".js", ".css") and not name.startswith(UNUSED):
            files[f"pyscript/{name}"] = file
    files["codemirror.mjs"] = codemirror(files)
    micropython = downloads.package("@micropython/micropython-webassembly-pyscript")
    for name in ("micropython.mjs", "micropython.wasm"):
        files[f"micropython/{name}"] = micropython / name
    for name in ("uPlot.esm.js", "uPlot.min.css"):
        files[f"uplot/{name}"] = downloads.package("uplot") / "dist" / name
    return files


def codemirror(files: Files) -> bytes:
    """One module of the editor's parts that we use, which PyScript ships under names with hashes in them."""
    lines = []
    for part, names in (("codemirror-", "EditorView, basicSetup"), ("codemirror_state-", "EditorState"), ("codemirror_lang-python-", "python, pythonLanguage")):
        [name] = [name for name in files if name.startswith(f"pyscript/{part}")]
        lines.append(f"export {{ {names} }} from './{name}';")
    return ("\n".join(lines) + "\n").encode()


def site(snapshot: Path) -> bytes:
    """Where the trainer's worker finds its parts; the snapshot's hash tells whether the service worker keeps it already."""
    parts = {
        "pyodide": f"{runtime.name()}/",
        "package": "posttrainllm.zip",
        "corpus": "shakespeare.txt",
        "snapshot": f"{runtime.name()}/snapshot.bin",
        "snapshot_sha256": hashlib.sha256(snapshot.read_bytes()).hexdigest(),
    }
    return (json.dumps(parts) + "\n").encode()


def app() -> Files:
    """The page: one index.html of its parts, so that it comes in one round and each view can be a file of its own."""
    files = tree(paths.REPO / "app")
    parts = {name: files.pop(name) for name in list(files) if name.startswith("parts/")}
    used: set[str] = set()

    def part(found: re.Match[str]) -> str:
        used.add(name := f"parts/{found[1]}.html")
        return parts[name].read_text(encoding="utf-8").rstrip("\n")

    page = re.sub(r"<!-- part: ([a-z-]+) -->", part, files["index.html"].read_text(encoding="utf-8"))
    if parts.keys() != used:
        raise BuildError(f"index.html names no place for {', '.join(sorted(parts.keys() - used))}.")
    return {**files, "index.html": page.encode("utf-8")}


def course() -> Files:
    """The lessons as the page reads them; made by the environment's Python, which has a reader of Markdown."""
    folder = paths.BUILD / "learn"
    run([str(venv.python()), "-m", "tools.lessons", str(folder)], "lessons")
    return tree(folder, "learn/")


def bill() -> Files:
    """sbom.json, by the environment's Python, which has CycloneDX's own library."""
    run([str(venv.python()), "-m", "tools.sbom", str(paths.BUILD / "sbom")], "sbom")
    return tree(paths.BUILD / "sbom")


def contents() -> Files:
    """Everything of the site but precache.json, by address."""
    package = package_zip()
    snapshot, compiled = runtime.snapshot(package)
    return {
        **tree(paths.REPO / "static"),
        **app(),
        **tree(runtime.folder(), f"{runtime.name()}/"),
        **{name: file for name, file in tree(engine.OUT, "engine/").items() if name.endswith((".mjs", ".wasm"))},
        **third_party(),
        **course(),
        **bill(),
        f"{runtime.name()}/snapshot.bin": snapshot,
        "posttrainllm.zip": compiled,
        "shakespeare.txt": corpus.TARGET,
        "site.json": site(snapshot),
        "licences.txt": licences.text(),
        "_headers": HEADERS.encode(),
        ".nojekyll": b"",
    }


def precache(hashes: dict[str, tuple[str, int]]) -> bytes:
    """The list of files for the service worker, shell first. sw.js, the list and the hosts' own files are not in it."""
    entries = [
        {"url": name, "sha256": digest, "bytes": size, "tier": "runtime" if name.startswith(RUNTIME) else "shell"}
        for name, (digest, size) in hashes.items()
        if name not in ("sw.js", "_headers", ".nojekyll")
    ]
    entries.sort(key=lambda entry: (entry["tier"] != "shell", entry["url"]))
    return ("[\n" + ",\n".join(json.dumps(entry) for entry in entries) + "\n]\n").encode()


def write(name: str, data: bytes) -> bool:
    """Write one file of dist/ unless it has these bytes already."""
    target = paths.DIST / name
    if target.is_file() and target.stat().st_size == len(data) and target.read_bytes() == data:
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(target.name + ".partial")
    partial.write_bytes(data)
    partial.replace(target)
    return True


def build() -> bool:
    """Bring dist/ up to date; False when it was. The list is written last, so it never names what is not there yet."""
    changed = 0
    hashes: dict[str, tuple[str, int]] = {}
    for name, source in contents().items():
        data = source if isinstance(source, bytes) else source.read_bytes()
        hashes[name] = (hashlib.sha256(data).hexdigest(), len(data))
        changed += write(name, data)
    listing = precache(hashes)
    changed += write("precache.json", listing)
    wanted = {*hashes, "precache.json"}
    for name, file in tree(paths.DIST).items():
        if name not in wanted:
            file.unlink()
            changed += 1
    if not changed:
        return False
    shell = sum(entry["bytes"] for entry in json.loads(listing) if entry["tier"] == "shell")
    total = sum(size for _, size in hashes.values())
    say(
        f"      dist/: {len(hashes)} files, {total / 1e6:.1f} MB, {shell / 1e6:.2f} MB of it needed first; {changed} changed"
    )
    return True
