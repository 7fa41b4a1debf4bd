// What the page's Python cannot do by itself: own the worker and the shared flag, move files as transferables, save downloads.
// Python imports this module as `bridge` (ui/pyscript.json). Events go to Python as (kind, JSON text); long arrays go to the chart.
import * as chart from './chart.mjs';
import * as tuneChart from './tune_chart.mjs';
import * as runsChart from './runs_chart.mjs';
import * as longRun from './long_run.mjs';
import * as spans from './spans.mjs';
import * as inside from './inside.mjs';
import * as insideContexts from './inside_contexts.mjs';
import * as insideDraw from './inside_draw.mjs';
import * as insideVector from './inside_vector.mjs';
import * as editor from './editor.mjs';
import * as learn from './learn.mjs';
import { isolate, keepFresh, applyUpdate as swapVersion, onOffline } from './offline.mjs';
import { scriptAddress } from './trusted.mjs';

export { chart, editor, inside, insideContexts, insideDraw, insideVector, learn, longRun, runsChart, spans, tuneChart };
export const { setBusy, setKeepAwake } = longRun;

const RUN = 0;
let worker = null;
let flagView = null;
let listener = null;
const early = []; // events that came before Python listened
const unsent = []; // requests made before the worker existed

function emit(event) {
  if (!listener) { early.push(event); return; }
  listener(event.kind, JSON.stringify(event));
}

/** Register Python's (kind, json) callback and deliver what came earlier. */
export function listen(callback) {
  listener = callback;
  for (const event of early.splice(0)) emit(event);
}

/** Called by boot.mjs once: decides about isolation (may reload the page), then starts the worker. */
export async function begin() {
  onOffline(emit);
  longRun.begin(emit, post);
  emit({ kind: 'page.isolation', ...await isolate(() => used, keepQueued) });
  startWorker();
}

function startWorker() {
  flagView = crossOriginIsolated && globalThis.SharedArrayBuffer ? new Int32Array(new SharedArrayBuffer(8), 0, 1) : null;
  worker = new Worker(scriptAddress('worker.mjs'), { type: 'module' });
  worker.onmessage = ({ data }) => receive(data);
  worker.onerror = (error) => {
    error.preventDefault?.();
    emit({ kind: 'failed', code: 'worker', fatal: true,
      message: 'The trainer stopped unexpectedly' + (error.message ? ` (${error.message}).` : '. It may not have loaded completely.') });
  };
  worker.postMessage({ kind: 'init', stop_flag: flagView, base: new URL('./', location.href).href });
  for (const [message, transfer] of unsent.splice(0)) worker.postMessage(message, transfer);
}

/** End the worker, if any, and start a fresh one. */
export function restart() {
  worker?.terminate();
  unsent.length = 0;
  tokens = null;
  sides.clear();
  startWorker();
}

function post(message, transfer = []) {
  if (worker) worker.postMessage(message, transfer);
  else unsent.push([message, transfer]);
}

export function send(json) { post(JSON.parse(json)); }

/** Send a text area's content with a request, as `text`: a book would not fit MicroPython's memory. */
export function sendText(json, id) { post({ ...JSON.parse(json), text: document.getElementById(id).value }); }
export function isBlank(id) { return !/\S/.test(document.getElementById(id).value); }

/** Send a File's bytes with a request; reading problems come back as a `failed` event for that request. */
export async function sendFile(json, file) {
  const message = JSON.parse(json);
  try {
    const buffer = await file.arrayBuffer();
    post({ ...message, buffer }, [buffer]);
  } catch (error) {
    emit({ kind: 'failed', code: 'file', reply_to: message.id, message: `“${file.name}” could not be read from your disk (${error.name}).` });
  }
}

/** Send several Files as they are: the worker reads from them what it needs, when it needs it. */
export function sendFiles(json, files) { post({ ...JSON.parse(json), files: [...files] }); }

/** 0 run, 1 pause, 2 stop: read by the worker each step where memory can be shared. */
export function flag(value) { if (flagView) Atomics.store(flagView, 0, value); }
export function resetFlag() { flag(RUN); }

/** Interrupt the cell that runs (SIGINT for its Python); false where no memory is shared and so nothing can. */
export function interrupt() {
  if (!flagView) return false;
  new Uint8Array(flagView.buffer, 4, 1)[0] = 2;
  return true;
}

// ---- events -------------------------------------------------------------------------------------------------------------------

let lastHidden = 0;
let tokens = null; // token events merged until the next frame, so fast models do not flood the page
let sides = new Map(); // the same of a comparison, by side

function flushTokens() {
  if (!tokens) return;
  const event = tokens;
  tokens = null;
  emit(event);
}

function flushSides() {
  const events = [...sides.values()];
  sides = new Map();
  events.forEach(emit);
}

function receive(event) {
  if (event.kind === 'token') {
    if (event.choices) { // too long to pass through JSON twice: Python says where they go
      spans.keep(event.choices);
      delete event.choices;
      event.told = true;
    }
    if (tokens) Object.assign(event, { text: tokens.text + event.text, told: event.told || tokens.told });
    else setTimeout(flushTokens, 30); // a timer, not a frame: frames stop while the tab is hidden
    tokens = event;
    return;
  }
  if (event.kind === 'compare.token') {
    if (!sides.size) setTimeout(flushSides, 30);
    const before = sides.get(event.side);
    sides.set(event.side, before ? { ...event, text: before.text + event.text } : event);
    return;
  }
  if (event.kind === 'wrote') flushTokens();
  if (event.kind === 'compare.wrote') flushSides();
  if (event.kind === 'tune.step') {
    tuneChart.push(event.rows ?? []);
    delete event.rows;
  }
  if (event.kind === 'improve.step') {
    tuneChart.improving.push(event.rows ?? []);
    delete event.rows;
  }
  if (event.kind.startsWith('inside.')) inside.hold(event);
  if (event.kind === 'compared') runsChart.hold(event);
  if (event.kind === 'split') {
    spans.hold(event.tokens ?? []);
    event.shown = event.tokens?.length ?? 0;
    delete event.tokens;
  }
  if (event.kind === 'step') {
    chart.push(event.rows ?? []);
    delete event.rows;
    const now = performance.now();
    if (document.hidden && event.step < event.steps && now - lastHidden < 2000) return; // only the title is seen; the chart has the rows
    lastHidden = now;
  } else if (event.kind === 'opened') {
    opened = [event.history ?? [], event.evals ?? [], Math.max(event.training?.steps ?? 0, event.step ?? 0)];
    event.points = event.history?.length ?? 0;
    event.last = event.history?.at(-1) ?? null;
    event.last_eval = event.evals?.at(-1) ?? null;
    delete event.history;
    delete event.evals;
  } else if (event.kind === 'exported') {
    download(event.name, event.buffer);
    delete event.buffer;
  }
  emit(event);
}

let opened = [[], [], 1]; // the history of the run opened last, too long to pass through JSON twice
export function showHistory() { chart.load(...opened); }

function download(name, buffer) {
  const type = name.endsWith('.txt') ? 'text/plain' : 'application/octet-stream';
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([buffer], { type }));
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000); // at once would cancel slow downloads in some browsers
}

// ---- small services -----------------------------------------------------------------------------------------------------------

let used = false; // the person has typed or chosen something that a reload would lose
for (const kind of ['input', 'drop']) addEventListener(kind, () => { used = true; }, { capture: true });

// Buttons pressed in the fraction of a second before Python listens are pressed again once it does.
let pressed = [];
function notePress(event) {
  const button = event.target.closest?.('button[id]');
  if (button) pressed.push(button.id);
}
addEventListener('click', notePress, { capture: true });
export function replayPresses() {
  removeEventListener('click', notePress, { capture: true });
  for (const id of new Set(pressed.splice(0))) document.getElementById(id)?.click();
}

export function copy(text, done) {
  navigator.clipboard.writeText(text).then(() => done(true), () => done(false));
}

export function persist(done) {
  const asked = navigator.storage?.persist?.() ?? Promise.resolve(false);
  asked.then((kept) => done(Boolean(kept)), () => done(false));
}

export function persisted(done) { navigator.storage?.persisted?.().then((kept) => done(Boolean(kept)), () => {}); }

// A press of Train that waits for the trainer survives the reload that isolates the page, and no other: it is good for a few seconds.
const QUEUED = 'posttrainllm-queued';
let queued = false;
export function setQueued(on) { queued = on; }
function keepQueued() { if (queued) sessionStorage.setItem(QUEUED, String(Date.now())); }

export function recallQueued() {
  try {
    const then = Number(sessionStorage.getItem(QUEUED) ?? 0);
    sessionStorage.removeItem(QUEUED);
    return Date.now() - then < 10_000;
  } catch { return false; }
}

/** A file's size as a number that Python gets whole: MicroPython takes integers from JavaScript as 32 bits. */
export function megabytes(file) { return file.size / 1e6; }

/** Milliseconds since 1970 or an ISO text as the reader writes dates; '' where it is neither. */
export function localTime(when) {
  const date = new Date(when);
  return Number.isNaN(date.getTime()) ? '' : date.toLocaleString([], { dateStyle: 'medium', timeStyle: 'short' });
}

/** Move the keyboard's focus, and leave the page where the reader has scrolled it. */
export function focus(id) { document.getElementById(id)?.focus({ preventScroll: true }); }

export function later(milliseconds, callback) { return setTimeout(callback, milliseconds); }
export function cancel(timer) { clearTimeout(timer); }
export function reload() { longRun.leave(); location.reload(); }
export function applyUpdate() { swapVersion(); }
export { turnVersion, forgetVersion } from './offline.mjs';
export function ready() { keepFresh(); }
