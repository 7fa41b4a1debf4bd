// Stands in for app/worker.mjs in tests of the page alone: it speaks the protocol at once, with made-up numbers, and can be told to
// fail in ways that are hard to reach with the real one. A test prepends `globalThis.scenario = {…};` (see e2e/conftest.py).
//
// Nothing that a test wants to see may pass by itself, or a busy machine passes it unseen: `hold` is the number of steps after which a
// run stands until the test says go_on, and `gates` names what stays undone until the test says open: boot, start and file (the answers
// to a start and to a file that fail); others stand in fake_write.mjs.
const scenario = { boot_ms: 60, step_ms: 4, every_ms: 125, steps: 200, fail: {}, runs: [], isolated_threads: 2, hold: Infinity, gates: [], ...globalThis.scenario };
const presets = {
  tiny: { layers: 2, channels: 48, heads: 3, context: 32, batch: 16, parameters: 70464 },
  small: { layers: 3, channels: 96, heads: 3, context: 64, batch: 16, parameters: 366432 },
  medium: { layers: 4, channels: 128, heads: 4, context: 128, batch: 16, parameters: 842496 },
  large: { layers: 6, channels: 192, heads: 6, context: 128, batch: 12, parameters: 2743296 },
  mega: { layers: 14, channels: 384, heads: 12, context: 512, batch: 2, parameters: 25138176 },
};
const training = { steps: scenario.steps, learning_rate: 0.0003, minimum_learning_rate_fraction: 0.1, warmup_steps: Math.min(100, Math.floor(scenario.steps / 10)), decay_steps: scenario.steps,
  beta1: 0.9, beta2: 0.95, eps: 1e-8, weight_decay: 0.1, clip: 1, seed: 42, validation_fraction: 0.1, evaluate_every_steps: 20, evaluation_tokens: 16384 };
const SAMPLE = 'ROMEO:\nWhat light is this, that through the window breaks?\nI pray thee, stay: the morning is not come,\nAnd all the stars do whisper of thy name.\n';

let flag = null;
let runs = scenario.runs;
let run = null; // {run_id, name, step, steps, …} while one is live
let running = false;
let paused = false;
let stopping = false;
let writing = null;
let textBytes = 0; // of the text that was understood last
let clock = 0;
let ending = null; // the event that a run ends with, where a test says so
let limit = Infinity; // the step at which the run stands
const shut = new Set(scenario.gates);

const post = (event, transfer = []) => postMessage(event, transfer);
const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
async function passed(gate) { while (shut.has(gate)) await wait(5); }
const failed = (request, message, extra = {}) => post({ kind: 'failed', code: 'test', message, reply_to: request.id, ...extra });
const lossAt = (step) => 1.45 + 4.1 * Math.exp(-step / 45) + Math.sin(step * 12.9898) * 0.06;
const listed = (id) => post({ kind: 'runs', reply_to: id, runs: runs.map((each) => ({ ...each, live: each.run_id === run?.run_id })) });

async function boot() {
  for (const [i, message] of ['Loading Python', 'Loading numpy', 'Preparing the engine', 'Checking the engine'].entries()) {
    post({ kind: 'boot', stage: `s${i}`, fraction: (i + 1) / 5, message });
    await wait(scenario.boot_ms / 4);
  }
  await passed('boot');
  if (scenario.fail.boot) { post({ kind: 'failed', code: 'boot', message: scenario.fail.boot, fatal: true }); return; }
  const threads = flag ? scenario.isolated_threads : 1;
  post({ kind: 'ready', version: '0.0.0-fake', threads, isolated: Boolean(flag), presets, training, tuning: globalThis.tuning, runs,
    engines: scenario.engines ?? [{ name: 'cpu', description: `CPU, WebAssembly SIMD, ${threads} thread${threads > 1 ? 's' : ''}`, chosen: true, why: 'It passed its self-test.' }, { name: 'webgpu', description: 'Graphics card', chosen: false, why: 'not built yet' }],
    storage: { persistent: true, bytes: 12_400_000 } });
}

/** Both the corpus and the plan warn, with the numbers of two models. */
const small = (parameters) => (textBytes < 20000 ? [`This text is small for the model: ${textBytes} training tokens against ${parameters} parameters.`] : []);

/** Ways of sparing memory, quickest first, and the one that is taken: what was asked for, else the first that fits. */
function savings(config, parameters, asked) {
  const way = (name, saving, share, extra_time) => {
    const total_bytes = parameters * 16 + 1e7 + 3e7 * share;
    return { name, saving: { micro_batches: 1, recompute: 0, moments: 'f32', ...saving }, total_bytes, extra_time, fits: total_bytes < (scenario.room_bytes ?? 4e9) };
  };
  const choices = [way('plain', {}, 1, 0), way('recompute', { recompute: config.layers }, 0.3, 0.31), way('8bit', { moments: '8bit' }, 1, 0)];
  const same = (one) => asked && Object.entries(one.saving).every(([key, value]) => asked[key] === value);
  return { choices, taken: choices.find(same) ?? choices.find((one) => one.fits) ?? choices[0] };
}

/** Why settings cannot be used, or undefined. */
function refused(settings) {
  if (!(settings.steps <= 1e7)) return `training: steps is a whole number from 1 to 10,000,000; ${settings.steps} came; change it.`;
  if (settings.warmup_steps >= settings.decay_steps) return `warmup_steps is smaller than decay_steps; ${settings.warmup_steps} and ${settings.decay_steps} came; shorten the warm-up.`;
  return undefined;
}

function corpus(request, name, text) {
  const refusal = scenario.fail.corpus ?? (request.kind === 'corpus.file' && scenario.fail.file);
  if (refusal) { passed('file').then(() => failed(request, refusal)); return; }
  const characters = [...text].length;
  const bytes = new TextEncoder().encode(text).length;
  textBytes = bytes;
  const warnings = small(presets.tiny.parameters);
  post({ kind: 'corpus', reply_to: request.id, name, bytes, characters, lines: text.split('\n').length, sha256: '00', train_tokens: Math.floor(bytes * 0.9),
    validation_tokens: Math.ceil(bytes * 0.1), distinct_bytes: new Set(text).size, preview: text.slice(0, 300), warnings, notes: [] });
}

async function train() {
  running = true;
  const began = clock || performance.now();
  clock = began;
  let rows = [];
  let last = 0;
  while (run.step < run.steps && !stopping) {
    await wait(scenario.step_ms);
    const asked = flag ? Atomics.load(flag, 0) : 0;
    if (asked === 2) break;
    if (asked === 1 || paused) {
      post({ kind: 'paused', step: run.step });
      while ((flag ? Atomics.load(flag, 0) === 1 : paused) && !stopping) await wait(10);
      post({ kind: 'resumed', step: run.step });
      continue;
    }
    if (run.step >= limit) continue;
    run.step += 1;
    const loss = lossAt(run.step);
    rows.push([run.step, loss, 1.2, 0.0003]);
    if (scenario.fail.nonfinite_at === run.step) {
      running = false;
      post({ kind: 'stopped', step: run.step, reason: 'nonfinite', run_id: run.run_id, validation_loss_nats: null,
        message: 'The loss became infinite at this step, so the run was ended. A lower learning rate usually helps.' });
      return;
    }
    if (scenario.fail.save_at === run.step) post({ kind: 'failed', code: 'quota', message: 'There is no room left to save this run. Delete a run you no longer need; training goes on.', reply_to: run.request });
    const elapsed = (performance.now() - began) / 1000;
    if (performance.now() - last >= scenario.every_ms || run.step === run.steps || run.step === limit) {
      last = performance.now();
      const per = elapsed / run.step;
      post({ kind: 'step', step: run.step, steps: run.steps, loss_nats: loss, perplexity: Math.exp(loss), bits_per_byte: loss / Math.LN2, gradient_norm: 1.2,
        learning_rate: 0.0003, tokens_per_second: 2048 / per, ms_per_step: per * 1000, elapsed_seconds: elapsed, eta_seconds: per * (run.steps - run.step), rows });
      rows = [];
    }
    if (run.step % 20 === 0) {
      post({ kind: 'eval', step: run.step, validation_loss_nats: loss + 0.08, best: true });
      post({ kind: 'sample', first_step: run.step === 20 ? 20 : run.step - 9, step: run.step, prompt: '\n', text: `[${run.step}] ${SAMPLE}${scenario.sample ?? ''}` });
    }
  }
  running = false;
  if (ending) { post({ ...ending, step: run.step, run_id: run.run_id }); ending = null; return; }
  const reason = run.step >= run.steps ? 'finished' : 'stopped';
  const saved = { run_id: run.run_id, name: run.name, step: run.step, steps: run.steps, preset: 'medium', parameters: 842496, loss_nats: lossAt(run.step),
    validation_loss_nats: lossAt(run.step) + 0.08, updated: Date.now() / 1000, bytes: 10_100_000, resumable: true, corrupt: false };
  runs = [saved, ...runs.filter((each) => each.run_id !== run.run_id)];
  const kept = !scenario.fail.save;
  if (kept) post({ kind: 'saved', run_id: run.run_id, step: run.step, bytes: 10_100_000, seconds: 0.1, at: Date.now() / 1000 });
  post({ kind: 'stopped', ...(kept ? {} : { saved: false }), step: run.step, reason, message: '', run_id: run.run_id, validation_loss_nats: lossAt(run.step) + 0.08 });
  listed();
}

function begin(request, fields) {
  run = { request: request.id, ...fields };
  paused = stopping = false;
  clock = 0;
  limit = run.step + scenario.hold;
  post({ kind: 'started', reply_to: request.id, run_id: run.run_id, name: run.name, config: presets.medium, training, tokenizer: tokenizer, parameters: run.parameters ?? 842496,
    bytes_per_token: tokenizer.bytes_per_token ?? 1, step: run.step, steps: run.steps, engine: 'cpu', ...scenario.started });
  train();
}

const find = (request) => runs.find((each) => each.run_id === request.run_id);

const handlers = {
  init(request) { flag = request.stop_flag; boot(); },
  'corpus.bundled': (request) => corpus(request, 'Shakespeare', 'First Citizen:\nBefore we proceed any further, hear me speak.\n\n'.repeat(18000)),
  'corpus.text': (request) => corpus(request, request.name, request.text),
  'corpus.file': (request) => corpus(request, request.name, new TextDecoder().decode(request.buffer)),
  plan(request) {
    const config = request.config ?? presets[request.preset];
    if (config.channels % config.heads) { failed(request, `${config.heads} heads do not divide a width of ${config.channels}: use a width that is a multiple of the heads.`); return; }
    const parameters = config.parameters ?? 256 * config.channels + config.context * config.channels + config.layers * (12 * config.channels ** 2 + 13 * config.channels) + 2 * config.channels;
    const ways = savings(config, parameters, request.saving);
    const total = ways.taken.total_bytes;
    const steps = request.training?.steps ?? training.steps;
    const refusal = refused({ ...training, ...request.training });
    if (refusal) { failed(request, refusal); return; }
    const { fits } = ways.taken;
    post({ kind: 'planned', reply_to: request.id, parameters, fits, reason: fits ? undefined : 'This model needs more memory than the 4.0 GB a tab can have. A smaller width or batch would fit.',
      memory: { weights_bytes: parameters * 4, gradients_bytes: parameters * 4, moments_bytes: parameters * 8, activations_bytes: total - parameters * 16 - 1e7, other_bytes: 1e7, total_bytes: total },
      saving: ways.taken.saving, layers: config.layers, batch: config.batch, choices: ways.choices,
      ms_per_step_estimate: 95, seconds_estimate: steps * 0.095, tokens_per_step: 2048, passes_over_corpus: (steps * 2048) / 1e6, warnings: small(parameters) });
  },
  'train.start'(request) {
    const refusal = scenario.fail.start ?? refused({ ...training, ...request.training });
    if (refusal) {
      passed('start').then(() => failed(request, refusal));
      if (scenario.fail.stray) setTimeout(post, 20, { kind: 'stopped', step: 0, reason: 'error', message: 'It has ended.', run_id: null, validation_loss_nats: null });
      return;
    }
    if (scenario.fail.fatal) {
      for (const [at, message] of scenario.fail.fatal.entries()) post({ kind: 'failed', code: 'test', message, fatal: at < 2 });
      return;
    }
    if (scenario.fail.crash) throw new Error('out of bounds');
    begin(request, { run_id: `r${runs.length + 1}`, name: 'shakespeare-medium', step: 0, steps: request.training?.steps ?? training.steps });
  },
  'train.pause'() { paused = true; },
  'train.resume'() { paused = false; },
  'train.stop'() {
    stopping = running;
    if (!running) post({ kind: 'stopped', step: 0, reason: 'stopped', message: 'No run was going.', saved: true, run_id: null, validation_loss_nats: null });
  },
  'train.extend'(request) {
    if (!run || scenario.fail.extend) { failed(request, scenario.fail.extend ?? 'There is no run that was just trained or opened: press Train, or open a run.'); return; }
    run.steps += request.steps;
    if (!running) begin(request, run);
  },
  'runs.list': (request) => listed(request.id),
  'runs.open'(request) { open(request); },
  open,
  'runs.continue'(request) {
    const saved = find(request);
    if (scenario.fail.load) { failed(request, scenario.fail.load); return; }
    open(request);
    if (scenario.fail.continue) { failed(request, scenario.fail.continue); return; }
    begin(request, { ...saved, steps: saved.step + request.steps });
  },
  'runs.rename'(request) { find(request).name = request.name; listed(request.id); },
  'runs.mark'(request) {
    if (scenario.fail.mark) { failed(request, scenario.fail.mark); return; }
    find(request).marks = { tags: request.tags.map((tag) => tag.trim()).filter(Boolean), note: request.note };
    listed(request.id);
  },
  'runs.duplicate'(request) { runs = [...runs, { ...find(request), run_id: `copy${runs.length}`, name: `${find(request).name} copy` }]; listed(); },
  'runs.delete'(request) { if (running) { failed(request, 'This run is being trained: stop it first.'); return; } runs = runs.filter((each) => each.run_id !== request.run_id); if (run?.run_id === request.run_id) run = null; listed(request.id); },
  'runs.export'(request) {
    const { buffer } = new Uint8Array([8, 0, 0, 0, 0, 0, 0, 0]);
    const end = { hf: 'zip', gguf: 'gguf' }[request.format] ?? 'safetensors';
    post({ kind: 'exported', reply_to: request.id, name: `${find(request).name}.${end}`, bytes: 8, note: end === 'gguf' ? 'llama.cpp has only the other GELU.' : '', buffer }, [buffer]);
  },
  'runs.export_live'(request) {
    const { buffer } = new Uint8Array([8, 0, 0, 0, 0, 0, 0, 0]);
    post({ kind: 'exported', reply_to: request.id, name: `${run.name}.safetensors`, bytes: 8, note: '', buffer }, [buffer]);
  },
  'runs.history'(request) {
    const { buffer } = new TextEncoder().encode('step loss\n1 5.5\n');
    post({ kind: 'exported', reply_to: request.id, name: `${find(request).name}.txt`, bytes: 16, buffer }, [buffer]);
  },
  'runs.import'(request) {
    if (scenario.fail.import) { failed(request, scenario.fail.import); return; }
    const imported = { run_id: `i${runs.length}`, name: request.name.replace('.safetensors', ''), step: 120, steps: 120, preset: 'small', parameters: 366432, loss_nats: 2,
      updated: Date.now() / 1000, bytes: request.buffer.byteLength, resumable: true, corrupt: false };
    runs = [imported, ...runs];
    listed();
    open({ ...request, run_id: imported.run_id });
  },
  'runs.import_files'(request) {
    const bytes = request.files.reduce((sum, file) => sum + file.size, 0);
    handlers['runs.import']({ ...request, name: request.names[0].replace(/\.(zip|json)$/, ''), buffer: { byteLength: bytes } });
  },
  settings() {},
  async 'engine.use'(request) {
    await passed('engine');
    if (scenario.fail.engine) { failed(request, scenario.fail.engine); return; }
    const engines = scenario.engines.map((each) => ({ ...each, chosen: each.name === request.name, ...(each.name === request.name && { precision: request.precision }) }));
    post({ kind: 'engine', reply_to: request.id, engine: engines.find((each) => each.chosen), engines, step: run?.step ?? null, memory: scenario.memory ?? null });
  },
  'test.go_on'({ steps }) { limit = steps === null ? Infinity : limit + steps; },
  'test.post'({ event }) { post(event); },
  /** The run stands at an earlier step again; or it ends, by an event of the test's. */
  'test.back'({ step }) { run.step = step; limit = step; },
  'test.end'({ event }) { stopping = true; ending = event; },
  'test.open'({ gate }) { shut.delete(gate); },
};

function open(request) {
  const saved = find(request);
  const history = Array.from({ length: saved.step }, (_, i) => [i + 1, lossAt(i + 1), 1.2, 0.0003]);
  run = { ...saved };
  post({ kind: 'opened', reply_to: request.id, run_id: saved.run_id, name: saved.name, config: presets.medium, training: { ...training, steps: saved.steps }, step: saved.step, parameters: saved.parameters,
    tokenizer: { name: saved.tokenizer ?? 'bytes', vocabulary: saved.vocabulary ?? 256, sha256: saved.tokenizer_sha256 ?? '' },
    history, evals: history.filter(([step]) => step % 20 === 0).map(([step, loss]) => [step, loss + 0.08]), corpus: { name: 'Shakespeare', sha256: '00', available: !scenario.fail.continue } });
}

onmessage = ({ data }) => handlers[data.kind]?.(data);
