// Our contestant in the tab: the built site's own Pyodide, package and engine, driven by ours.py instead of the page's session.
import { openEngine } from '/site/wasm.mjs';
import { serve } from './serve.mjs';

const SITE = new URL('/site/', import.meta.url).href;
const bytesOf = async (url) => new Uint8Array(await (await fetch(new URL(url, SITE))).arrayBuffer());
let python = null;
let inEngine = 0; // milliseconds spent in replay so far
let posted = 0;

const host = {
  open_engine: async (bytes, threads) => {
    const engine = await openEngine({ base: SITE, bytes, threads });
    const replay = engine.replay;
    engine.replay = (tape, records) => {
      const began = performance.now();
      const failed = replay(tape, records);
      inEngine += performance.now() - began;
      return failed;
    };
    return engine;
  },
  engine_ms: () => inEngine,
  default_threads: () => navigator.hardwareConcurrency,
  bigint: (number) => BigInt(number),
  to_uint8: (buffer) => {
    const view = buffer.getBuffer('u8');
    try { return view.data.slice(); } finally { view.release(); buffer.destroy?.(); }
  },
  post: (json) => { posted++; sink.postMessage(JSON.parse(json)); }, // as the trainer's worker does it; nobody listens
  corpus: () => bytesOf('shakespeare.txt'),
  load_numpy: () => python.pyodide.loadPackage('numpy', { messageCallback: () => {} }),
};
const sink = new MessageChannel().port1;

async function start() {
  if (python) return python;
  const site = JSON.parse(new TextDecoder().decode(await bytesOf('site.json')));
  const indexURL = new URL(site.pyodide, SITE).href;
  const { loadPyodide, version } = await import(`${indexURL}pyodide.mjs`);
  const pyodide = await loadPyodide({ indexURL, lockFileURL: `${indexURL}pyodide-lock.json`, env: { HOME: '/home/pyodide' } });
  pyodide.registerJsModule('posttrainllm_host', host);
  pyodide.unpackArchive(await bytesOf(site.package), 'zip', { extractDir: '/lib/posttrainllm' });
  for (const name of ['ours_in_tab.py', 'features.py']) pyodide.FS.writeFile(`/home/pyodide/${name}`, await (await fetch(new URL(`./${name}`, import.meta.url))).text());
  await pyodide.runPythonAsync(pyodide.FS.readFile('/home/pyodide/ours_in_tab.py', { encoding: 'utf8' }), { filename: 'ours_in_tab.py' });
  python = { pyodide, version };
  return python;
}

/** Calls a coroutine of ours_in_tab.py with JSON and gives its JSON. */
const ask = (name) => async ({ kind, ...rest }) => {
  const { pyodide } = await start();
  return JSON.parse(await pyodide.globals.get(name)(JSON.stringify(rest)));
};

const engines = new Map();

serve({
  version: async () => (await start()).version,
  make: ask('make'),
  run: ask('run'),
  close: ask('close'),
  session: ask('session'),
  decode: ask('decode'),
  features: ask('features'),
  peak: async ({ seconds }) => (await single()).benchPeak(seconds),
  gemm: async ({ layout, m, n, k, repeats }) => (await single()).benchGemm(layout, m, n, k, repeats),
});

/** One engine on one thread, for what the engine measures by itself. */
async function single() {
  if (!engines.has(1)) engines.set(1, await openEngine({ base: SITE, bytes: 256 << 20, threads: 1 }));
  return engines.get(1);
}
