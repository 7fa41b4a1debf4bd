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
    look(request, 'lens', { rows, top_labels: rows.map((_, row) => text.map((_, at) => likely([row, at]))), loss_nats: text.length > 1 ? [4.2, 2.5, 0.7] : [null, null, null] }, {
      top_probability: [[3, text.length, 5], cells.flatMap(([row]) => [0.5, 0.2, 0.1, 0.05, 0.01].map((share) => share * (row + 1) / 3))],
      probability: [[3, text.length], cells.map(([row, at]) => (at === text.length - 1 ? -1 : [0.01, 0.0667, 0.5][row]))],
      rank: [[3, text.length], cells.map(([row, at]) => (at === text.length - 1 ? -1 : [7, 2, 0][row]))],
    });
  },
};

for (const [kind, answer] of Object.entries(answers)) {
  handlers[`inside.${kind}`] = async (request) => {
    await passed('inside');
    if (!run) failed(request, 'There is no model to look into.');
    else if (scenario.fail.inside) failed(request, scenario.fail.inside);
    else if (request.text !== undefined && [...request.text].length > 64) failed(request, '1 to 64 tokens (the context); 70 came; shorten the text.');
    else answer(request);
  };
}
handlers['test.shut'] = ({ gate }) => shut.add(gate);
