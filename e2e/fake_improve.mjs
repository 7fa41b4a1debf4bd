// The half of the fake trainer that learns from corrections (see fake_worker.mjs, which e2e/conftest.py puts before this). An improvement
// stands after `improve_hold` steps until the test says improve_on; its gate passes unless `improve_reasons` says why not.
Object.assign(scenario, { records: [], versions: [], improve_hold: Infinity, improve_reasons: [], ...globalThis.scenario });

let records = scenario.records; // oldest first
let versions = scenario.versions; // newest first
let inUse = versions.find((each) => each.promoted)?.number ?? null;
let improvement = null;
let improveLimit = Infinity;
let fresh = records.length;
const RECORDS_SAVED = scenario.saved ?? true;
const GATE_BOUNDS = { held_out_margin_nats: 0.1, held_out_wins: 0.6, held_out_above_base_nats_per_byte: 1, preference_accuracy: 0.5, base_rise_nats: 0.05, probe_rise_nats: 0.1,
  probe_worst_rise_nats: 0.4, recital_rise: 0.05, copied_rise_bytes: 8, answers_rise_bytes: 8 };
const GATE_FIGURES = { held_out_rows: 8, held_out_base_nats: 1.9, held_out_before_nats: 1.9, held_out_after_nats: 0.7, held_out_after_nats_per_byte: 0.7, held_out_wins: 1, base_before_nats: 1.44,
  base_after_nats: 1.46, base_nats_per_byte: 1.44, probe_before_nats: 1.4, probe_after_nats: 1.42, probe_worst_rise_nats: 0.1, probe_sha256: 'ab', preferences: 6, preference_accuracy: 0.83,
  recital_before: 0, recital_after: 0, copied_before_bytes: 9, copied_after_bytes: 9.5, answers_before_bytes: 2, answers_after_bytes: 3 };

const tellRecords = (request) => post({ kind: 'improve.records', reply_to: request?.id, run_id: run?.run_id ?? null, total: run ? records.length : 0, first: request?.first ?? 0,
  rows: run ? records.toReversed().slice(request?.first ?? 0, (request?.first ?? 0) + (request?.count ?? 20)) : [], fresh, enough: 8, saved: RECORDS_SAVED, note: '' });
const tellVersions = (request) => post({ kind: 'improve.versions', reply_to: request?.id, run_id: run?.run_id ?? null, versions: run ? versions : [], in_use: inUse, on: inUse,
  unfinished: scenario.unfinished ?? '', note: '', idle: false });

async function improveOn(request) {
  const mine = { stopping: false };
  improvement = mine;
  improveLimit = scenario.improve_hold;
  post({ kind: 'improve.started', reply_to: request.id, run_id: run.run_id, by_itself: Boolean(request.by_itself), version: inUse });
  post({ kind: 'improve.curated', step: 0, learned: 33, preferences: 9, held_out: 8, held_out_preferences: 3, dropped: [], notes: [] });
  post({ kind: 'improve.phase', phase: 'measure', steps: 0, step: 0 });
  const finish = (event) => {
    improvement = null;
    post({ kind: 'improve.ended', reply_to: request.id, by_itself: Boolean(request.by_itself), version: null, promoted: false, reasons: [], seconds: 1, ...event });
    tellAdapters();
    tellVersions();
    tellRecords();
  };
  let at = 0;
  for (const [phase, steps] of [['sft', 40], ['dpo', 10]]) {
    post({ kind: 'improve.phase', phase, steps, step: at });
    for (let step = 1; step <= steps; step += 1) {
      await wait(2);
      while (at >= improveLimit && !mine.stopping && !(flag && Atomics.load(flag, 0) === 2)) await wait(5);
      if (mine.stopping || (flag && Atomics.load(flag, 0) === 2)) {
        finish(request.by_itself ? { reason: 'gave_way', message: 'It gave way to you: what was in use is still in use.' } : { reason: 'stopped', message: 'Stopped, as asked: the version in use stays in use.' });
        return;
      }
      at += 1;
      const loss = 2 * Math.exp(-at / 20);
      post({ kind: 'improve.step', phase, step, steps, loss_nats: loss, tokens_per_second: 30_000, eta_seconds: 1, rows: [[at, loss, 1, 0.005]] });
      if (at === scenario.fail.improve_at) { finish({ reason: 'error', message: 'The engine failed. What was in use is still in use.' }); return; }
    }
  }
  post({ kind: 'improve.phase', phase: 'gate', steps: 0, step: at });
  const reasons = scenario.improve_reasons;
  const figures = { ...GATE_FIGURES, ...scenario.improve_figures };
  post({ kind: 'improve.gate', step: at, figures, bounds: GATE_BOUNDS, passed: !reasons.length, reasons, notes: [] });
  const number = versions.length + 1;
  versions = [{ number, created: '2026-12-01T02:00:00Z', promoted: !reasons.length, reasons, figures, learned: Object.fromEntries(records.map((each) => [each.id, '0'])), held_out: { x: '0' }, parent: inUse }, ...versions];
  if (!reasons.length) {
    inUse = number;
    chosen = `${run.run_id}.version-${number}`;
    kept = [{ adapter_id: chosen, name: `version ${number}`, how: 'corrections', rank: 8, fits: true, kept: false, note: '' }, ...kept];
  }
  fresh = 0;
  finish({ reason: 'finished', version: number, promoted: !reasons.length, reasons, message: '' });
}

Object.assign(handlers, {
  'improve.record'(request) {
    if (scenario.fail.record) { failed(request, scenario.fail.record); return; }
    const record = { id: `c${records.length + 1}`, created: '2026-12-01T01:00:00Z', what: request.what, prompt: request.prompt, offered: request.offered ?? '',
      kept: request.what === 'accept' ? request.offered : request.what === 'retry' ? '' : request.kept, version: inUse, adapter_id: '', sampler: {}, note: '' };
    records = [...records, record];
    fresh += 1;
    post({ kind: 'improve.recorded', reply_to: request.id, record, saved: RECORDS_SAVED });
    tellRecords();
  },
  'improve.list': tellRecords,
  'improve.edit'({ id, record_id, ...changes }) {
    delete changes.kind;
    records = records.map((each) => (each.id === record_id ? { ...each, ...changes } : each));
    tellRecords({ id });
  },
  'improve.delete'(request) { records = records.filter((each) => !request.record_ids.includes(each.id)); tellRecords({ id: request.id }); },
  'improve.clear'(request) { records = []; fresh = 0; tellRecords(request); },
  'improve.export'(request) {
    const { buffer } = bytesOf(records.map((each) => `${JSON.stringify(each)}\n`).join(''));
    post({ kind: 'exported', reply_to: request.id, name: 'corrections.jsonl', bytes: buffer.byteLength, buffer }, [buffer]);
  },
  'improve.import'(request) {
    if (scenario.fail.records) { failed(request, scenario.fail.records); return; }
    const rows = new TextDecoder().decode(request.buffer).split('\n').filter(Boolean).map((line) => JSON.parse(line));
    records = [...records, ...rows];
    fresh += rows.length;
    post({ kind: 'improve.imported', reply_to: request.id, added: rows.length });
    tellRecords();
  },
  'improve.plan'(request) {
    const few = records.length < 12;
    post({ kind: 'improve.planned', reply_to: request.id, total: records.length, learned: few ? 0 : records.length - 4, preferences: 0, held_out: few ? 0 : 4, held_out_preferences: 0,
      dropped: few ? [] : [{ id: 'c1', why: 'Its answer is empty.' }, { id: 'c2', why: 'A newer record answers the same prompt otherwise (c9).' }, { id: 'c3', why: 'A newer record answers the same prompt otherwise (c8).' }], notes: [],
      problem: few ? `improve: there are at least 8 answers to learn; ${records.length} came; correct more answers.` : '' });
  },
  'improve.start'(request) {
    if (scenario.fail.improve) { failed(request, scenario.fail.improve); return; }
    improveOn(request);
  },
  'improve.stop'() { if (improvement) improvement.stopping = true; },
  'improve.history': tellVersions,
  'improve.use'(request) { inUse = request.version || null; chosen = inUse ? `${run.run_id}.version-${inUse}` : null; tellAdapters(); tellVersions(request); },
  'improve.idle': (request) => post({ kind: 'improve.idle', reply_to: request.id, on: request.on }),
  'test.improve_on'() { improveLimit = Infinity; },
});
