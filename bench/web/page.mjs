// Workers by name, each asked one thing at a time: call(name, {kind, …}) resolves with its answer. bench/browser.py drives it.
const workers = new Map();

function open(name) {
  const worker = new Worker(new URL(`${name.split(':')[0]}.mjs`, import.meta.url), { type: 'module' });
  const entry = { worker, waiting: null };
  worker.onmessage = ({ data }) => {
    if (data.log) { console.log(data.log); return; }
    const { resolve, reject } = entry.waiting;
    entry.waiting = null;
    if (data.error) reject(new Error(data.error)); else resolve(data.answer);
  };
  worker.onerror = (event) => { entry.waiting?.reject(new Error(event.message || 'the worker did not load')); };
  workers.set(name, entry);
  return entry;
}

/** `name` is a worker file's stem, with `:anything` behind it for a second one of the kind. */
globalThis.call = (name, message) => {
  const entry = workers.get(name) ?? open(name);
  return new Promise((resolve, reject) => {
    entry.waiting = { resolve, reject };
    entry.worker.postMessage(message);
  });
};

globalThis.end = (name) => { workers.get(name)?.worker.terminate(); workers.delete(name); };
