// node snapshot.mjs PYODIDE_FOLDER OUTPUT: a memory snapshot of Pyodide just after start, so that the tab restores it in
// half a second instead of starting Python in one and a half. Packages cannot be in it; the standard modules that the package and
// numpy import are.
import { writeFileSync } from 'node:fs';
import { gzipSync } from 'node:zlib';
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

const HEAP_BYTES = 30 * 1024 * 1024; // restoring refuses a heap that has grown beyond Pyodide's initial size
const MODULES = `abc, ast, asyncio, base64, collections.abc, contextlib, copy, dataclasses, datetime, enum, functools, hashlib, importlib,
  importlib.metadata, importlib.resources, inspect, io, itertools, json, math, numbers, operator, os, pathlib, pickle, platform, random, re,
  shutil, string, struct, tempfile, textwrap, time, traceback, types, typing, urllib.parse, uuid, warnings, weakref, zipfile, zlib`;

const [folder, output] = process.argv.slice(2);
const { loadPyodide } = await import(pathToFileURL(resolve(folder, 'pyodide.mjs')));
const pyodide = await loadPyodide({ indexURL: resolve(folder), _makeSnapshot: true });
pyodide.runPython(`import ${MODULES.replaceAll('\n', ' ')}\nimport gc\ngc.collect()`);
const snapshot = pyodide.makeMemorySnapshot();
if (snapshot.byteLength < HEAP_BYTES || snapshot.byteLength > HEAP_BYTES + 65536 * 4) {
  throw new Error(`The snapshot has ${snapshot.byteLength} bytes: the heap is not of its initial size, so no browser would restore it.`);
}
writeFileSync(output, gzipSync(snapshot, { level: 9 }));
console.log(`${snapshot.byteLength} bytes`);
process.exit(0);
