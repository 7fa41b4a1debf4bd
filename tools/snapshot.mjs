// node snapshot.mjs PYODIDE_FOLDER PACKAGE_ZIP OUTPUT COMPILED_ZIP: a memory snapshot of Pyodide with our package imported, so that the tab
// restores it in half a second instead of starting Python and importing in two and a half. Compiled packages (numpy) cannot be in
// it; the standard modules that they import are. Files are not part of a snapshot: the worker unpacks the package again.
// COMPILED_ZIP is the package with its bytecode, for a first visit, which has no snapshot yet: compiling costs as much as importing.
import { readFileSync, writeFileSync } from 'node:fs';
import { gzipSync } from 'node:zlib';
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

const HEAP_BYTES = 30 * 1024 * 1024; // restoring refuses a heap that has grown beyond Pyodide's initial size
const MODULES = `abc, ast, asyncio, base64, collections.abc, contextlib, copy, dataclasses, datetime, enum, functools, hashlib, importlib,
  importlib.metadata, importlib.resources, inspect, io, itertools, json, math, numbers, operator, os, pathlib, pickle, platform, random, re,
  shutil, string, struct, tempfile, textwrap, time, traceback, types, typing, urllib.parse, uuid, warnings, weakref, zipfile, zlib`;

const PACKAGE = `posttrainllm.session, posttrainllm.backends.wasm, posttrainllm.model.selftest, posttrainllm.store.opfs,
  posttrainllm.store.memory, posttrainllm.store.runs, posttrainllm.train.state`;

const [folder, zip, output, compiled] = process.argv.slice(2);
const { loadPyodide } = await import(pathToFileURL(resolve(folder, 'pyodide.mjs')));
const pyodide = await loadPyodide({ indexURL: resolve(folder), _makeSnapshot: true });
pyodide.unpackArchive(new Uint8Array(readFileSync(zip)), 'zip', { extractDir: '/lib/posttrainllm' });
pyodide.runPython(`
import compileall, os, py_compile, sys, zipfile
# Unchecked: the bytecode is never compared with its source, whose time in the tab's file system is the time of unpacking.
mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
assert compileall.compile_dir('/lib/posttrainllm', quiet=1, invalidation_mode=mode)
with zipfile.ZipFile('/compiled.zip', 'w', zipfile.ZIP_DEFLATED, compresslevel=9) as out:
    for folder, folders, files in sorted(os.walk('/lib/posttrainllm')):
        for name in sorted(files):
            path = os.path.join(folder, name)
            with open(path, 'rb') as file:
                out.writestr(zipfile.ZipInfo(os.path.relpath(path, '/lib/posttrainllm'), (1980, 1, 1, 0, 0, 0)), file.read(), zipfile.ZIP_DEFLATED)
sys.path.insert(0, '/lib/posttrainllm')
import ${MODULES.replaceAll('\n', ' ')}
import ${PACKAGE.replaceAll('\n', ' ')}
assert 'numpy' not in sys.modules, 'the start-up path must not import numpy'
import gc
gc.collect()`);
writeFileSync(compiled, pyodide.FS.readFile('/compiled.zip'));
pyodide.FS.unlink('/compiled.zip');
const snapshot = pyodide.makeMemorySnapshot();
if (snapshot.byteLength < HEAP_BYTES || snapshot.byteLength > HEAP_BYTES + 65536 * 4) {
  throw new Error(`The snapshot has ${snapshot.byteLength} bytes: the heap is not of its initial size, so no browser would restore it.`);
}
writeFileSync(output, gzipSync(snapshot, { level: 9 }));
console.log(`${snapshot.byteLength} bytes`);
process.exit(0);
