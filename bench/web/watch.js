// Put into the page before its own scripts: when things happened, in milliseconds since the navigation, and the worker's events.
(() => {
  const marks = { usable: null, ready: null, clicked: null, falling: null, events: [] };
  globalThis.benchMarks = marks;
  let first = null;

  const note = (event) => {
    const at = performance.now();
    if (event.kind === 'step') {
      for (const [step, loss] of event.rows ?? []) {
        if (first === null) first = loss;
        else if (marks.falling === null && loss < first) marks.falling = { at, step, loss, first };
      }
      marks.last = { at, step: event.step, loss_nats: event.loss_nats, ms_per_step: event.ms_per_step, elapsed_seconds: event.elapsed_seconds };
    } else if (['started', 'eval', 'stopped', 'failed', 'saved'].includes(event.kind)) marks.events.push({ at, ...event });
  };
  const Plain = Worker;
  globalThis.Worker = class extends Plain {
    constructor(...parts) {
      super(...parts);
      this.addEventListener('message', ({ data }) => note(data ?? {}));
    }
    postMessage(message, ...rest) {
      if (message?.kind === 'train.start' && globalThis.benchTraining) message = { ...message, training: { ...message.training, ...globalThis.benchTraining } };
      super.postMessage(message, ...rest);
    }
  };
  const look = () => {
    if (marks.usable === null && document.body?.hasAttribute('data-python')) marks.usable = performance.now();
    if (marks.ready === null && document.getElementById('engine')?.classList.contains('ready')) marks.ready = performance.now();
  };
  new MutationObserver(look).observe(document, { subtree: true, childList: true, attributes: true });
  addEventListener('click', ({ target }) => { if (target.closest?.('#train-start')) marks.clicked ??= performance.now(); }, true);
})();
