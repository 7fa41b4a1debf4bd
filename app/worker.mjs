// The trainer's worker: Pyodide with the package, the C++ engine beside it, and the Session that the page talks to.
// JavaScript here only carries: it loads, hands over bytes, and passes messages on.
import { hasMemory64, mostBytes, openEngine } from './wasm.mjs';
import * as gpu from './gpu.mjs';
import { watch } from './hold.mjs';
import { keepText, keptText, sweepTexts, textsBytes } from './texts.mjs';

const BASE = new URL('./', import.meta.url).href;
const early = [];
let receive = (data) => early.push(data);
let stopFlag = null;
let memory64 = ''; // "never" or "always", for a test; else as the browser and the plan have it
self.onmessage = ({ data }) => (data.kind === 'init' ? begin(data) : receive(data));

// Pyodide 314 takes what a promise rejects with for an error only where it has a `stack`; Chromium's QuotaExceededError has none, and the
// awaiting Python then never wakes. Delete when Pyodide asks `instanceof Error`.
const quota = globalThis.QuotaExceededError?.prototype;
if (quota && !('stack' in quota)) Object.defineProperty(quota, 'stack', { value: '', configurable: true });

const post = (event, transfer = []) => self.postMessage(event, transfer);
const boot = (stage, fraction, message) => post({ kind: 'boot', stage, fraction, message });

async function bytesOf(url) {
  const response = await fetch(new URL(url, BASE));
  if (!response.ok) throw new Error(`${url}: ${response.status}`);
  return new Uint8Array(await response.arrayBuffer());
}

/** A memory snapshot of Python with the package imported; undefined where it cannot be had, and Python then starts the long way. */
async function snapshot(url) {
  try {
    const response = await fetch(new URL(url, BASE));
    if (!response.ok) return undefined;
    const plain = response.body.pipeThrough(new DecompressionStream('gzip'));
    return new Uint8Array(await new Response(plain).arrayBuffer());
  } catch { return undefined; }
}

async function startPython({ loadPyodide }, indexURL, state) {
  const options = { indexURL, lockFileURL: `${indexURL}pyodide-lock.json`, env: { HOME: '/home/pyodide' } };
  if (state) {
    try { return await loadPyodide({ ...options, _loadSnapshot: state }); } catch (error) { console.warn('no snapshot:', error); }
  }
  return loadPyodide(options);
}

async function begin({ stop_flag, memory_64 = '' }) {
  stopFlag = stop_flag;
  memory64 = memory_64;
  try {
    boot('python', 0.1, 'Loading Python');
    const site = await (await fetch(new URL('site.json', BASE))).json();
    const indexURL = new URL(site.pyodide, BASE).href;
    const wheel = bytesOf(site.package);
    const main = fetch(new URL('worker.py', BASE)).then((response) => response.text());
    // The snapshot is a second copy of what Python's start makes: worth it once it is on this disk, not over a network.
    const state = await worthwhile(site) ? snapshot(site.snapshot) : undefined;
    const pyodide = await startPython(await import(`${indexURL}pyodide.mjs`), indexURL, await state);
    boot('package', 0.7, 'Loading the trainer');
    pyodide.registerJsModule('posttrainllm_host', host(pyodide, site));
    pyodide.registerJsModule('posttrainllm_gpu', gpu);
    pyodide.unpackArchive(await wheel, 'zip', { extractDir: '/lib/posttrainllm' });
    await pyodide.runPythonAsync(await main, { filename: 'worker.py' });
  } catch (error) {
    post({ kind: 'failed', code: 'E-BOOT', fatal: true, message: `The trainer could not start (${error.message ?? error}). Reload the page; if it stays so, the site may be incomplete.` });
  }
}

async function worthwhile(site) {
  if (!site.snapshot) return false;
  try { return Boolean(await caches.match(new URL(`__content/${site.snapshot_sha256}`, BASE))); } catch { return false; }
}

/** What worker.py imports as `posttrainllm_host`. */
function host(pyodide, site) {
  return {
    open_engine: (bytes, threads, wide) => openEngine({ base: BASE, bytes, threads, wide }),
    room: async () => {
      try {
        const { quota, usage } = await navigator.storage.estimate();
        return quota - usage;
      } catch { return undefined; }
    },
    memory_64: () => memory64 || (hasMemory64() && self.crossOriginIsolated === true ? 'yes' : 'never'),
    most_bytes: (bytes, wide) => mostBytes(bytes, self.crossOriginIsolated === true, wide),
    default_threads: () => (self.crossOriginIsolated ? Math.max(1, Math.min(8, navigator.hardwareConcurrency || 1)) : 1),
    has_gpu: () => Boolean(navigator.gpu),
    race: () => import('./race.mjs'), // of a lesson, in a cell
    load_numpy: () => pyodide.loadPackage('numpy', { messageCallback: () => {} }),
    load_lark: () => pyodide.loadPackage('lark', { messageCallback: () => {} }),
    isolated: () => self.crossOriginIsolated === true,
    device_gigabytes: () => navigator.deviceMemory ?? 0,
    bigint: (number) => BigInt(number),
    to_uint8: (buffer) => {
      const view = buffer.getBuffer('u8');
      try { return view.data.slice(); } finally { view.release(); buffer.destroy?.(); }
    },
    flag: () => (stopFlag ? Atomics.load(stopFlag, 0) : 0),
    /** While a cell runs, the page may interrupt Python through the shared byte after the flag; at no other time is it looked at. */
    interrupts: (on) => {
      if (!(stopFlag?.buffer.byteLength >= 8)) return;
      const signal = new Uint8Array(stopFlag.buffer, 4, 1);
      signal[0] = 0;
      pyodide.setInterruptBuffer(on ? signal : undefined);
    },
    post: (json) => {
      const event = JSON.parse(json);
      watch(event.kind);
      post(event);
    },
    post_buffer: (json, buffer) => post({ ...JSON.parse(json), buffer }, buffer instanceof Blob ? [] : [buffer]),
    new_bytes: (count) => new Uint8Array(count),
    blob: (chunks) => new Blob(chunks),
    file_reader: () => new FileReaderSync(),
    corpus: () => bytesOf(site.corpus),
    /** Deliver messages: callback(json, Uint8Array or undefined, array of Files or undefined). */
    listen: (callback) => {
      const keep = callback.copy();
      receive = ({ buffer, files, ...rest }) => keep(JSON.stringify(rest), buffer ? new Uint8Array(buffer) : undefined, files);
      for (const data of early.splice(0)) receive(data);
    },
    kept_tiles: keptTiles,
    keep_tiles: keepTiles,
    keep_text: keepText,
    kept_text: keptText,
    sweep_texts: sweepTexts,
    texts_bytes: textsBytes,
  };
}

const TILES = 'posttrainllm-gpu-tiles.json';

/** What was measured of the GPU on another day (text), or undefined. */
async function keptTiles() {
  try {
    return await (await (await (await navigator.storage.getDirectory()).getFileHandle(TILES)).getFile()).text();
  } catch { return undefined; }
}

async function keepTiles(text) {
  try {
    const file = await (await navigator.storage.getDirectory()).getFileHandle(TILES, { create: true });
    const handle = await file.createSyncAccessHandle();
    try {
      const bytes = new TextEncoder().encode(text);
      handle.truncate(0);
      handle.write(bytes, { at: 0 });
      handle.flush();
    } finally { handle.close(); }
  } catch { /* measured again next time */ }
}
