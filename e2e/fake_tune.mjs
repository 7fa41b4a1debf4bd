// The tuning half of the fake trainer (see fake_worker.mjs, which e2e/conftest.py puts before this): adapters, comparisons, the check
// for reciting. A tune stands after `tune_hold` steps until the test says tune_on; the gate `compare` holds back the tuned side.
Object.assign(scenario, { tune_hold: Infinity, tune_steps: 40, adapters: [], ...globalThis.scenario });

globalThis.tuning = {
  adapter: { rank: 4, alpha: 8, targets: ['attn.q', 'attn.v'], rslora: false },
  targets: ['attn.q', 'attn.k', 'attn.v', 'attn.qkv', 'attn.proj', 'mlp.fc', 'mlp.proj'],
  training: { text: { steps: scenario.tune_steps, learning_rate: 0.002 }, pairs: { steps: scenario.tune_steps, learning_rate: 0.002 }, preferences: { steps: scenario.tune_steps, learning_rate: 0.0005, beta: 0.1 } },
};
let kept = scenario.adapters;
let chosen = null;
let strength = 1;
let tune = null;
let tuneLimit = scenario.tune_hold;
let comparing = false;
let checking = false;

const tellAdapters = (id) => post({ kind: 'adapters', reply_to: id, run_id: run?.run_id ?? null, adapters: run ? kept : [], chosen, strength });
const findAdapter = (request) => kept.find((each) => each.adapter_id === request.adapter_id);

async function tuneOn(request) {
  const mine = { stopping: false };
  tune = mine;
  tuneLimit = scenario.tune_hold;
  const { steps } = { ...globalThis.tuning.training[request.how], ...request.training };
  const adapter = { adapter_id: `a${kept.length + 1}`, name: request.name ?? `my ${request.how}`, how: request.how, ...request.adapter, step: 0, steps, parameters: 8192, bytes: 41_000,
    updated: '2026-11-30T18:00:00Z', validation_loss_nats: null, fits: true, note: '' };
  post({ kind: 'tune.started', reply_to: request.id, name: adapter.name, run_id: run.run_id, how: request.how, step: 0, steps, trainable: 8192, parameters: 842496, notes: [], memory: scenario.memory ?? null });
  chosen = adapter.adapter_id;
  strength = 1;
  kept = [adapter, ...kept];
  tellAdapters();
  let reason = 'finished';
  for (let step = 1; step <= steps; step += 1) {
    await wait(2);
    while (step > tuneLimit && !mine.stopping) await wait(5);
    if (mine.stopping || (flag && Atomics.load(flag, 0) === 2)) { reason = 'stopped'; break; }
    adapter.step = step;
    const loss = 2 + Math.exp(-step / 20);
    post({ kind: 'tune.step', step, steps, loss_nats: loss, tokens_per_second: 30_000, eta_seconds: (steps - step) * 0.1, ...(request.how === 'preferences' && { accuracy: 0.75, margin: 0.4 }), rows: [[step, loss, 1, 0.002]] });
    if (step % 10 === 0) post({ kind: 'tune.eval', step, validation_loss_nats: loss + 0.1 });
    if (step === scenario.fail.tune_at) { reason = 'error'; break; }
  }
  if (tune !== mine) return;
  tune = null;
  post({ kind: 'tune.saved', adapter_id: adapter.adapter_id, step: adapter.step, bytes: adapter.bytes });
  post({ kind: 'tune.stopped', reason, step: adapter.step, message: reason === 'error' ? 'The loss became infinite; the last save is kept.' : '', saved: reason !== 'error' && !scenario.fail.tune_save,
    adapter_id: adapter.adapter_id, name: adapter.name,
    forgetting: reason === 'error' ? null : { text: 'Shakespeare', before_nats: 1.5, after_nats: scenario.after_nats ?? 1.72, before_bits_per_byte: 2.164, after_bits_per_byte: 2.481 } });
  tellAdapters();
}

async function compareSides(request) {
  comparing = true;
  for (const side of ['base', 'tuned']) {
    let sent = 0;
    const text = ` ${side} says: ${SAMPLE}`.repeat(20).slice(0, request.tokens);
    for (; sent < text.length && comparing; sent += 4) {
      await wait(2);
      while (side === 'tuned' && sent >= 20 && shut.has('compare') && comparing) await wait(5);
      post({ kind: 'compare.token', reply_to: request.id, side, text: text.slice(sent, sent + 4), tokens: sent + 4 });
    }
    const last = side === 'tuned' || !comparing;
    post({ kind: 'compare.wrote', reply_to: request.id, side, tokens: sent, reason: comparing ? 'length' : 'stopped', last });
    if (last) break;
  }
  comparing = false;
}

const group = (which, longest, histogram) => ({ which, count: 20, longest, mean: longest / 3, exact_rate: longest > 60 ? 0.35 : 0, histogram });

async function check(request) {
  checking = true;
  for (let done = 0; done < 40 && checking; done += 10) {
    post({ kind: 'memorise.progress', done, total: 40, what: 'The base, passage' });
    await wait(5);
    while (shut.has('memorise') && checking) await wait(5);
  }
  if (!checking) { post({ kind: 'memorised', reply_to: request.id, stopped: true, reason: 'stopped' }); return; }
  checking = false;
  post({ kind: 'memorised', reply_to: request.id, text: 'the second text', unit: 'bytes', continuation_tokens: 64, verdict: 'With the adapter it recites: 7 of 20 passages it was tuned on come back word for word, and none of those it never saw.',
    buckets: ['0', '1–3', '4–15', '16–63', '64+'], models: [
      { name: 'Base', groups: [group('seen', 9, [4, 9, 7, 0, 0]), group('unseen', 8, [5, 9, 6, 0, 0])] },
      { name: 'Base, shown examples', groups: [group('seen', 12, [3, 9, 8, 0, 0]), group('unseen', 9, [4, 10, 6, 0, 0])] },
      { name: 'LoRA', groups: [group('seen', 64, [1, 2, 4, 6, 7]), group('unseen', 10, [4, 9, 7, 0, 0])] }],
    spans: [{ model: 'LoRA', at: 1234, line: 31, length_bytes: 64, places: 1, text: 'the second text', prefix: 'It was the ', before: '', copied: 'best of times, it was the worst of times, it was the age of wis', after: 'hes' }] });
}

Object.assign(handlers, {
  'tune.plan'(request) {
    if (!run) { failed(request, 'There is no model to tune: train one, or open a saved run.'); return; }
    const trainable = 512 * request.adapter.rank * request.adapter.targets.length * 2;
    post({ kind: 'tune.planned', reply_to: request.id, trainable, parameters: 842496, bytes: trainable * 4 });
  },
  'tune.start'(request) {
    if (!run) { failed(request, 'There is no model to tune: train one, or open a saved run.'); return; }
    if (scenario.fail.tune) { failed(request, scenario.fail.tune); return; }
    tuneOn(request);
  },
  'tune.stop'() { if (tune) tune.stopping = true; },
  'tune.save'() {},
  'adapters.list': (request) => tellAdapters(request.id),
  'adapters.use'(request) {
    if (scenario.fail.use) { failed(request, scenario.fail.use); return; }
    chosen = request.adapter_id || null;
    strength = 1;
    tellAdapters(request.id);
  },
  'adapters.strength'(request) { strength = request.strength; post({ kind: 'adapters.strength', reply_to: request.id, strength }); },
  'adapters.rename'(request) { findAdapter(request).name = request.name; tellAdapters(request.id); },
  'adapters.delete'(request) {
    kept = kept.filter((each) => each.adapter_id !== request.adapter_id);
    if (chosen === request.adapter_id) chosen = null;
    tellAdapters(request.id);
  },
  'adapters.export'(request) {
    const { buffer } = new Uint8Array([80, 75, 5, 6, ...new Array(18).fill(0)]);
    post({ kind: 'exported', reply_to: request.id, name: `${findAdapter(request).name}.zip`, bytes: 22, buffer }, [buffer]);
  },
  'adapters.import'(request) {
    if (scenario.fail.adapter) { failed(request, scenario.fail.adapter); return; }
    kept = [{ adapter_id: `a${kept.length + 1}`, name: request.name.replace('.zip', ''), how: 'imported', rank: 4, step: 0, steps: 0, parameters: 8192, bytes: request.buffer.byteLength, fits: true, note: '' }, ...kept];
    tellAdapters(request.id);
  },
  'adapters.merge'(request) {
    const name = `${run.name} with ${findAdapter(request).name}`;
    runs = [{ ...run, run_id: `m${runs.length}`, name }, ...runs];
    post({ kind: 'adapters.merged', reply_to: request.id, run_id: runs[0].run_id, name });
    listed();
  },
  'compare.start': (request) => { compareSides(request); },
  'compare.stop'() { comparing = false; },
  'memorise.start': (request) => { check(request); },
  'memorise.stop'() { checking = false; },
  'test.tune_on'() { tuneLimit = Infinity; },
});
