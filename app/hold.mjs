// While a run or a tune goes, the worker holds a Web Lock of its own: a browser that saves energy does not freeze what holds one, and the
// page's lock is another thread's. Many workers may hold it at once (shared), so that two tabs do not wait for each other.
const LOCK = 'posttrainllm-training-worker';
const BEGIN = ['started', 'tune.started'];
const END = ['stopped', 'tune.stopped'];
let release = null;

/** Called with every event's kind that the worker sends. */
export function watch(kind) {
  if (BEGIN.includes(kind) && !release) {
    release = () => {};
    navigator.locks?.request(LOCK, { mode: 'shared' }, () => new Promise((resolve) => {
      if (release) release = resolve; else resolve();
    }));
  } else if (END.includes(kind) && release) {
    release();
    release = null;
  }
}
