"""The package's pytest files under Pyodide, in Chromium, on the C++ engine as WebAssembly and on WebGPU: what a tab runs.

    ./build.sh test pyodide [PYTEST ARGUMENTS]

The page is the built site with one more folder, /tests-in-pyodide/, that holds the tests and pure-Python copies of pytest
and hypothesis from this environment. Chromium rather than Node: JSPI is on there, so a test may wait for the engine, and
WebGPU is there on every machine, by SwiftShader, which has the CPU play a GPU.
"""

from __future__ import annotations

import importlib.util
import io
import json
import os
import sys
import threading
import zipfile
from importlib.metadata import version
from pathlib import Path

from playwright.sync_api import sync_playwright

from tools import paths
from tools.serve import Handler, Server

PREFIX = "/tests-in-pyodide/"
LIBRARIES = ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "hypothesis", "sortedcontainers")
MODULES = ("py", "_hypothesis_globals", "_hypothesis_ftz_detector", "_hypothesis_pytestplugin")
FLAGS = ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
# The watchdog ends a GPU process that is silent for ten seconds, which one that a busy CPU plays may well be.
FLAGS += ["--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader", "--disable-gpu-watchdog"]
LIMIT_SECONDS = int(os.environ.get("PTL_PYODIDE_TEST_SECONDS", "2400"))
TOLD = {name: value for name, value in os.environ.items() if name in ("PTL_GPU_REQUIRED", "POSTTRAINLLM_TEST_MACHINES")}

WORKER = """
import { openEngine } from '../wasm.mjs';
import * as gpu from '../gpu.mjs';
const base = new URL('../', import.meta.url).href;
self.onmessage = async ({ data }) => {
  const say = (text) => self.postMessage({ text });
  try {
    const { loadPyodide } = await import(`${base}${data.pyodide}pyodide.mjs`);
    const pyodide = await loadPyodide({ indexURL: `${base}${data.pyodide}`, stdout: say, stderr: say, env: data.env });
    // Whole lines only: the usual way sends a line each time pytest flushes, so each test's dot would get its own.
    const decoder = new TextDecoder();
    let line = '';
    pyodide.setStdout({ write: (bytes) => {
      const parts = (line + decoder.decode(bytes, { stream: true })).split('\\n');
      line = parts.pop();
      for (const part of parts) say(part);
      return bytes.length;
    } });
    await pyodide.loadPackage(['numpy', 'lark']);
    pyodide.registerJsModule('posttrainllm_host', {
      open_engine: (bytes, threads) => openEngine({ base, bytes, threads }),
      default_threads: () => 2,
      bigint: (number) => BigInt(number),
      to_uint8: (buffer) => { const view = buffer.getBuffer('u8'); try { return view.data.slice(); } finally { view.release(); } },
    });
    pyodide.registerJsModule('posttrainllm_gpu', gpu);
    const zip = await (await fetch('all.zip')).arrayBuffer();
    pyodide.unpackArchive(zip, 'zip', { extractDir: '/clone' });
    pyodide.globals.set('ARGUMENTS', pyodide.toPy(data.arguments));
    const code = await pyodide.runPythonAsync(`
import os, sys, importlib
sys.path[:0] = ['/clone', '/clone/pysrc', '/clone/libraries']
os.chdir('/clone')
importlib.invalidate_caches()
import pytest
int(pytest.main(['tests', '-p', 'no:cacheprovider', '--color=no', *ARGUMENTS]))`);
    self.postMessage({ code });
  } catch (error) { say(String(error.stack ?? error)); self.postMessage({ code: 70 }); }
};
"""
PAGE = b"<!doctype html><title>tests</title>"


def archive() -> bytes:
    """Tests, package, pytest and hypothesis as one zip."""
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as out:
        for folder, prefix in ((paths.REPO / "tests", "tests"), (paths.PACKAGE, "pysrc/posttrainllm")):
            _add(out, folder, prefix)
        for name in ("docs", "ext", "shaders"):  # what tests read beside the package
            _add(out, paths.REPO / name, name)
        # pytest asks for pluggy's version at its start, which pluggy looks up in its metadata.
        out.writestr("libraries/pluggy.dist-info/METADATA", f"Name: pluggy\nVersion: {version('pluggy')}\n")
        for name in LIBRARIES:
            _add(out, Path(importlib.util.find_spec(name).origin).parent, f"libraries/{name}")
        for name in MODULES:
            found = importlib.util.find_spec(name)
            if found:
                out.write(found.origin, f"libraries/{name}.py")
        out.writestr("pytest.ini", "[pytest]\n")  # timeouts need signals or threads, which Pyodide has not
    return memory.getvalue()


def _add(out: zipfile.ZipFile, folder: Path, prefix: str) -> None:
    for file in sorted(folder.rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts and file.suffix not in (".so", ".pyc"):
            out.write(file, f"{prefix}/{file.relative_to(folder)}")


class TestHandler(Handler):
    """The site, plus the files above."""

    extra: dict[str, tuple[str, bytes]] = {}

    def do_GET(self) -> None:
        if self.path not in self.extra:
            super().do_GET()
            return
        kind, data = self.extra[self.path]
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def main(arguments: list[str]) -> int:
    """Run pytest in a worker of a page, print what it prints, return its exit code."""
    TestHandler.extra = {
        PREFIX: ("text/html", PAGE),
        f"{PREFIX}worker.mjs": ("text/javascript", WORKER.encode()),
        f"{PREFIX}all.zip": ("application/zip", archive()),
    }
    site = json.loads((paths.DIST / "site.json").read_text())
    with Server(paths.DIST) as server, sync_playwright() as playwright:
        server.RequestHandlerClass = TestHandler
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser = playwright.chromium.launch(executable_path=os.environ.get("PTL_CHROMIUM") or None, args=FLAGS)
        page = browser.new_page()
        page.expose_function("say", lambda text: print(text, flush=True))
        page.goto(server.url.rstrip("/") + PREFIX)
        code = page.evaluate(
            """async ([pyodide, arguments_, seconds, env]) => {
              const worker = new Worker('worker.mjs', { type: 'module' });
              return await new Promise((resolve) => {
                const late = setTimeout(() => { say(`No end after ${seconds} s.`); resolve(71); }, seconds * 1000);
                worker.onmessage = ({ data }) => {
                  if ('code' in data) { clearTimeout(late); setTimeout(() => resolve(data.code), 200); } else say(data.text);
                };
                worker.onerror = (error) => { say(`worker: ${error.message}`); resolve(72); };
                worker.postMessage({ pyodide, arguments: arguments_, env });
              });
            }""",
            [site["pyodide"], arguments, LIMIT_SECONDS, {"HOME": "/home/pyodide", **TOLD}],
        )
        browser.close()
        server.shutdown()
    return int(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
