// The looking half of the fake trainer (see fake_worker.mjs, which e2e/conftest.py puts before this): a model of two layers with three
// heads, whose numbers are made up and always the same.
const LAYERS = 2;
const HEADS = 3;
const wave = (index) => (Math.sin(index * 12.9898) + 1) / 2;

/** One buffer of float32 and what lies in it, as the real trainer sends them. */
function packed(arrays) {
  const flat = new Float32Array(Object.values(arrays).flatMap(([, data]) => data));
  return { arrays: Object.entries(arrays).map(([name, [shape]]) => [name, shape]), buffer: flat.buffer };
}

const look = (request, kind, fields, arrays) => {
  const labels = request.text === undefined ? undefined : [...request.text];
  const event = { kind: `inside.${kind}`, reply_to: request.id, layers: LAYERS, heads: HEADS, step: run.step, ...(labels && { labels, text_tokens: labels.map((each) => each.codePointAt(0)) }), ...fields };
  if (!arrays) { post(event); return; }
  const more = packed(arrays);
  post({ ...event, ...more }, [more.buffer]);
};

/** Head 0 takes 70 % from the token before, head 1 evenly, head 2 90 % from the first. */
function patternOf(head, size) {
  return Array.from({ length: size * size }, (_, index) => {
    const [row, column] = [Math.floor(index / size), index % size];
    if (column > row) return 0;
    if (row === 0) return 1;
    if (head === 1) return 1 / (row + 1);
    const [share, favourite] = head === 0 ? [0.7, row - 1] : [0.9, 0];
    return column === favourite ? share : (1 - share) / row;
  });
}

let making = null; // the map that stands at the gate `map`

const answers = {
  attention(request) {
    const size = [...request.text].length;
    look(request, 'attention', { layer: request.layer ?? 0 }, { pattern: [[HEADS, size, size], Array.from({ length: HEADS }, (_, head) => patternOf(head, size)).flat()] });
  },
  heads(request) {
    const kinds = ['previous', 'first', 'duplicate', 'induction'];
    const scores = Object.fromEntries(kinds.map((kind, at) => [kind, Array.from({ length: LAYERS }, (_, layer) => Array.from({ length: HEADS }, (_, head) => wave(at + 7 * layer + 3 * head) / 4))]));
    scores.previous[0][0] = 0.7;
    scores.induction[1][2] = 0.62;
    look(request, 'heads', { scores, chance: { previous: 0.05, first: 0.06, duplicate: 0.02, induction: 0.02 },
      named: scenario.unformed ? [] : [{ layer: 0, head: 0, kind: 'previous', score: 0.7, meaning: 'looks at the token before' }, { layer: 1, head: 2, kind: 'induction', score: 0.62, meaning: 'looks at what came after the same token before' }] });
  },
  lens(request) {
    const text = [...request.text];
    const rows = ['embed', 'blocks.0', 'blocks.1'];
    const cells = rows.flatMap((_, row) => text.map((_, at) => [row, at]));
    // the last layer is right, the one before has it third, the embedding eighth
    const likely = ([row, at]) => { const next = text[at + 1] ?? 'e'; return row === 2 ? [next, 'a', 'b', 'c', 'd'] : ['a', ' ', row === 1 ? next : '\n', 'c', 'd']; };
    look(request, 'lens', { rows, top_labels: rows.map((_, row) => text.map((_, at) => likely([row, at]))), which: request.which, loss_nats: text.length < 2 ? [null, null, null] : request.which === 'tuned' ? [1.9, 1.1, 0.7] : [4.2, 2.5, 0.7] }, {
      top_probability: [[3, text.length, 5], cells.flatMap(([row]) => [0.5, 0.2, 0.1, 0.05, 0.01].map((share) => share * (row + 1) / 3))],
      probability: [[3, text.length], cells.map(([row, at]) => (at === text.length - 1 ? -1 : [0.01, 0.0667, 0.5][row]))],
      rank: [[3, text.length], cells.map(([row, at]) => (at === text.length - 1 ? -1 : [7, 2, 0][row]))],
    });
  },
  sharpening(request) {
    const steps = scenario.unkept ? [run.step] : [0, 16, run.step];
    look(request, 'sharpening', { steps, rows: ['embed', 'blocks.0', 'blocks.1'], damaged: scenario.damaged ?? [], adapter: Boolean(scenario.adapted), loss_nats: [[5.6, 5.55, 5.5], [4.9, 4, 3.2], [4.2, 2.5, 0.7]].slice(-steps.length), probability: steps.map(() => [0.1, 0.2, 0.3]) });
  },
  next(request) {
    const text = [...request.text];
    const at = request.position ?? text.length - 1;
    const choices = [...(text[at + 1] ? [text[at + 1]] : []), ...'ab \ndefghijk'].slice(0, 10);
    const parts = ['token', 'position', '0 attn', '0 mlp', '1 attn', '1 mlp', 'ln_f bias'];
    const contribution = parts.map((_, part) => choices.map((_, k) => (part === 4 ? 3 - k / 4 : part === 3 ? -0.5 : 0.25)));
    const probability = choices.map((_, k) => 0.5 / 2 ** k);
    look(request, 'next', { position: at, choice_tokens: choices.map((each) => each.codePointAt(0)), choices, rows: ['embed', 'blocks.0', 'blocks.1'], probability, parts, contribution,
      logits: choices.map((_, k) => contribution.reduce((sum, row) => sum + row[k], 0)), by_layer: [0.1, 0.4, 1].map((share) => probability.map((each) => each * share)), came: text[at + 1]?.codePointAt(0) ?? null });
  },
  async change(request) {
    const text = [...request.text];
    if (request.how === 'swap' && [...request.source].length !== text.length) { failed(request, 'Both texts have as many tokens; make them equally long.'); return; }
    const columns = request.what === 'heads' ? ['h0', 'h1', 'h2'] : ['attention', 'mlps'].includes(request.what) ? ['layer'] : text;
    const shape = [LAYERS, columns.length];
    const mine = making = { stopping: false };
    if (shut.has('map')) post({ kind: 'inside.progress', reply_to: request.id, done: 2, total: LAYERS * columns.length });
    while (shut.has('map') && !mine.stopping) await wait(5);
    if (mine.stopping) { post({ kind: 'inside.stopped', reply_to: request.id }); return; }
    const map = Array.from({ length: LAYERS * columns.length }, (_, index) => (index === columns.length ? -2.5 : wave(index) - 0.5));
    look(request, 'change', { what: request.what, how: request.how, columns, position: request.position ?? text.length - 1, answer: 'e', other: '\n', before: [3.1, text.length > 1 ? 1.25 : null], source: request.how === 'swap' ? [-1.9, 2] : null },
      { change: [shape, map], loss_change: [shape, map.map((each) => each / -10)] });
  },
  flow(request) {
    const at = request.position ?? [...request.text].length - 1;
    const block = { ln_1: [48], 'attn.q': [3, 16], 'attn.k': [3, 16], 'attn.v': [3, 16], 'attn.y': [3, 16], 'attn.out': [48], resid_mid: [48], ln_2: [48], 'mlp.pre': [192], 'mlp.post': [192], 'mlp.out': [48], resid_post: [48] };
    const places = [['embed', [48]], ...[0, 1].flatMap((layer) => Object.entries(block).map(([name, shape]) => [`blocks.${layer}.${name}`, shape])), ['ln_f', [48]], ['logits', [256]]];
    const arrays = Object.fromEntries(places.map(([name, shape], place) => [name, [shape, Array.from({ length: shape.reduce((a, b) => a * b) }, (_, index) => 2 * wave(index + 31 * place) - 1)]]));
    const rows = places.map(([address, shape]) => ({ address, shape, first: arrays[address][1].slice(0, 6), mean: 0.01, deviation: 0.7, least: -1, most: 1 }));
    const looks = Array.from({ length: LAYERS * HEADS }, (_, index) => patternOf(index % HEADS, at + 1).slice(-(at + 1))).flat();
    look(request, 'flow', { position: at, rows, top: [[101, 'e', 0.5, 4.1], [32, ' ', 0.25, 3.4]] }, { ...arrays, looks: [[LAYERS, HEADS, at + 1], looks] });
  },
};

for (const [kind, answer] of Object.entries(answers)) {
  handlers[`inside.${kind}`] = async (request) => {
    await passed('inside');
    if (!run) failed(request, 'There is no model to look into.');
    else if (scenario.fail.inside) failed(request, scenario.fail.inside);
    else if (request.text !== undefined && [...request.text].length > 64) failed(request, `The text has ${[...request.text].length} tokens; this model reads 1 to 64 at once. Shorten it.`);
    else answer(request);
  };
}
handlers['inside.stop'] = () => { if (making) making.stopping = true; };
handlers['test.shut'] = ({ gate }) => shut.add(gate);

// A tuned lens stands at its third step until the test says let_through 'lens'.
let lensing = null;
handlers['lens.train'] = async (request) => {
  if (scenario.fail.lens) { failed(request, scenario.fail.lens); return; }
  const mine = { stopping: false };
  lensing = mine;
  let step = 0;
  while (step < 200 && !mine.stopping) {
    step += 1;
    post({ kind: 'lens.step', reply_to: request.id, step, steps: 200, divergence_nats: [3 / step, 1 / step] });
    await wait(1);
    while (step === 3 && shut.has('lens') && !mine.stopping) await wait(5);
  }
  post({ kind: 'lens.trained', reply_to: request.id, steps: step, usable: !scenario.fail.lens_usable, text: scenario.other_text ?? 'Shakespeare', own_text: !scenario.other_text });
};
handlers['lens.stop'] = () => { if (lensing) lensing.stopping = true; };
