// The Inside view's long rows of numbers: kept here, since they would take MicroPython too long, and shown as tables and strips of tokens.
// inside_draw.mjs has what is drawn. Each table is one stop of the Tab key; arrow keys, a pointer or a tap choose a cell, and Python
// (ui/inside_*.py) is asked what to say of it.
const held = new Map(); // kind of event -> {arrays: name -> {shape, data}, …}

let awaited = 0; // id of the request whose answer will be shown

/** Only an answer to this request is kept from now on: what is read off a picture must be what it was drawn of. */
export function expect(id) { awaited = id; }

/** Keep an event's arrays and what else is long, where they will be shown; Python gets the rest. */
export function hold(event) {
  const flat = event.buffer ? new Float32Array(event.buffer) : new Float32Array();
  const arrays = {};
  let at = 0;
  for (const [name, shape] of event.arrays ?? []) {
    const size = shape.reduce((product, each) => product * each, 1);
    arrays[name] = { shape, data: flat.subarray(at, at += size) };
  }
  if (event.arrays && event.reply_to === awaited) held.set(event.kind, { ...event, arrays });
  for (const name of ['buffer', 'arrays', 'top_labels']) delete event[name];
}

export const of = (kind) => held.get(kind);
const find = (id) => document.getElementById(id);
const MARKS = { ' ': '␣', '\n': '⏎', '\t': '⇥', '\r': '␍' };
export const visible = (text) => text.replace(/[\x00-\x20\x7f]/g, (each) => MARKS[each] ?? `\\x${each.charCodeAt(0).toString(16).padStart(2, '0')}`);

/** The largest of one row of an array [rows…, n], as JSON: [index, value], largest first. */
export function strongest(kind, name, row, most) {
  const { shape, data } = of(kind).arrays[name];
  const wide = shape.at(-1);
  const found = [...data.subarray(row * wide, (row + 1) * wide)].map((value, index) => [index, value]);
  return JSON.stringify(found.sort((a, b) => b[1] - a[1]).slice(0, most));
}

/** Where an array [rows, columns] is farthest from 0, as JSON: [row, column, value]. */
export function extreme(kind, name) {
  const { shape, data } = of(kind).arrays[name];
  const at = data.reduce((best, value, index) => (Math.abs(value) > Math.abs(data[best]) ? index : best), 0);
  return JSON.stringify([Math.floor(at / shape[1]), at % shape[1], data[at]]);
}

export function value(kind, name, index) { return of(kind).arrays[name].data[index]; }

// ---- the text as a strip, to choose a position from ------------------------------------------------------------------------------

/** The tokens as a group of radio buttons; choose(position) once one is taken. */
export function strip(id, labels, at, choose) {
  const box = find(id);
  const focused = box.contains(document.activeElement);
  box.replaceChildren(...JSON.parse(labels).map((label, index) => {
    const button = document.createElement('button');
    Object.assign(button, { type: 'button', textContent: visible(label), tabIndex: index === at ? 0 : -1 });
    button.setAttribute('role', 'radio');
    button.setAttribute('aria-checked', String(index === at));
    button.setAttribute('aria-label', `${label === ' ' ? 'space' : label === '\n' ? 'line break' : label}, position ${index}`);
    button.onclick = () => choose(index);
    return button;
  }));
  box.onkeydown = (event) => {
    const last = box.children.length - 1;
    const now = [...box.children].indexOf(document.activeElement);
    const to = { ArrowRight: now + 1, ArrowDown: now + 1, ArrowLeft: now - 1, ArrowUp: now - 1, Home: 0, End: last }[event.key];
    if (to === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const next = Math.max(0, Math.min(last, to));
    mark(id, next);
    box.children[next].focus();
    choose(next);
  };
  if (focused) box.children[at]?.focus();
  bring(box, at);
}

/** Scroll the strip alone, not the page. */
function bring(box, at) {
  const token = box.children[at];
  if (!token) return;
  if (token.offsetTop < box.scrollTop) box.scrollTop = token.offsetTop - 4;
  else if (token.offsetTop + token.offsetHeight > box.scrollTop + box.clientHeight) box.scrollTop = token.offsetTop + token.offsetHeight - box.clientHeight + 4;
}

/** Show another position as the chosen one. */
export function mark(id, at) {
  [...find(id).children].forEach((each, index) => {
    each.setAttribute('aria-checked', String(index === at));
    each.tabIndex = index === at ? 0 : -1;
  });
  bring(find(id), at);
}

// ---- tables of layers by positions or heads --------------------------------------------------------------------------------------

const tables = new Map(); // id -> {at: [row, column], ask, size: [rows, columns]}

const ordinal = (number) => number + (Math.floor(number % 100 / 10) === 1 ? 'th' : ['th', 'st', 'nd', 'rd'][number % 10] ?? 'th');

/** What the cells of a table say: {text, small, share: how full, or null, below: it is less than none, told: for Python}. */
const CELLS = {
  'inside.lens'({ arrays, top_labels: top, labels, rows }, row, column) {
    const [, wide, choices] = arrays.top_probability.shape;
    const first = (row * wide + column) * choices;
    const shares = [...arrays.top_probability.data.subarray(first, first + choices)];
    const rank = arrays.rank.data[row * wide + column];
    return {
      text: visible(top[row][column][0]), small: `${Math.round(100 * shares[0])} %${rank > 0 ? ` · ${ordinal(rank + 1)}` : rank === 0 ? ' ✓' : ''}`,
      share: rank < 0 ? 0 : rank === 0 ? 1 : rank < 3 ? 0.6 : rank < 10 ? 0.3 : 0,
      told: { layer: rows[row], position: column, label: labels[column], next: labels[column + 1] ?? null, rank, probability: arrays.probability.data[row * wide + column], top: top[row][column].map((each, index) => [each, shares[index]]) },
    };
  },
  'inside.change'({ arrays, columns, measure = 'change' }, row, column) {
    const { data, shape } = arrays[measure];
    const most = Math.max(...data.map(Math.abs)) || 1;
    const here = data[row * shape[1] + column];
    return {
      text: Math.abs(here) < 0.005 ? '0.00' : `${here < 0 ? '−' : '+'}${Math.abs(here).toFixed(2)}`, small: '', share: Math.abs(here) / most, below: here < 0,
      told: { layer: row, column, name: columns[column], change: arrays.change.data[row * shape[1] + column], loss: arrays.loss_change.data[row * shape[1] + column] },
    };
  },
};

/** Choose what a table of changes shows: 'change' (of the logit difference) or 'loss_change'. */
export function measure(name) { of('inside.change').measure = name; }

/** Fill a table: heads of columns and rows as JSON lists, and under each column what `foot` says. ask(JSON of a cell, pinned). */
export function table(id, kind, columns, rows, foot, corner, ask) {
  const event = of(kind);
  const box = find(id);
  const cells = (tag, list, scope, first, cls) => {
    const line = document.createElement('tr');
    [first, ...list].forEach((words, index) => {
      const cell = document.createElement(index && tag === 'td' ? 'td' : 'th');
      cell.textContent = words;
      cell.scope = index ? scope : 'row';
      if (cls) cell.className = cls;
      line.append(cell);
    });
    return line;
  };
  const heads = JSON.parse(columns);
  const names = JSON.parse(rows);
  const [top, body, bottom] = ['thead', 'tbody', 'tfoot'].map((tag) => document.createElement(tag));
  top.append(cells('th', heads, 'col', corner));
  names.forEach((name, row) => {
    const line = cells('td', heads.map(() => ''), '', name);
    heads.forEach((_, column) => {
      const { text, small, share, below } = CELLS[kind](event, row, column);
      const cell = line.children[column + 1];
      cell.className = `cell${below ? ' below' : ''}`;
      cell.dataset.at = `${row},${column}`;
      cell.style.setProperty('--share', share.toFixed(3));
      cell.textContent = text;
      if (small) cell.append(Object.assign(document.createElement('small'), { textContent: small }));
    });
    body.append(line);
  });
  const under = JSON.parse(foot);
  if (under.length) bottom.append(cells('th', under.slice(1), 'col', under[0]));
  box.querySelector('table').replaceChildren(...[top, body, bottom].filter((part) => part.children.length));
  if (!tables.has(id)) listen(id, box);
  tables.set(id, { at: [names.length - 1, Math.max(0, heads.length - 1)], ask, size: [names.length, heads.length], kind });
}

/** Bring a cell into sight within its table, without choosing it. */
export function reveal(id, row, column) {
  const box = find(id);
  const cell = box.querySelector(`[data-at="${row},${column}"]`);
  if (cell) box.scrollLeft = cell.offsetLeft + cell.offsetWidth / 2 - box.clientWidth / 2;
}

/** Whether a person moved the pointer: what scrolls away under it by the keys is not pointed at. */
export const moved = (event) => event.pointerType !== 'touch' && (event.movementX !== 0 || event.movementY !== 0);

/** Choose a cell for the person. */
export function point(id, row, column) { tell(id, [row, column], true); }

function listen(id, box) {
  const at = (event) => event.target.closest('[data-at]')?.dataset.at.split(',').map(Number);
  box.addEventListener('pointermove', (event) => {
    const cell = moved(event) && at(event);
    if (cell && !event.target.closest('.here')) tell(id, cell, false);
  });
  box.addEventListener('click', (event) => { const cell = at(event); if (cell) tell(id, cell, true); });
  box.addEventListener('focus', () => { if (box.matches(':focus-visible')) tell(id, tables.get(id).at, true); });
  box.addEventListener('keydown', (event) => {
    const { at: [row, column], size: [rows, columns] } = tables.get(id);
    const to = { ArrowRight: [row, column + 1], ArrowLeft: [row, column - 1], ArrowDown: [row + 1, column], ArrowUp: [row - 1, column], Home: [row, 0], End: [row, columns - 1] }[event.key];
    if (!to || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    tell(id, [Math.max(0, Math.min(rows - 1, to[0])), Math.max(0, Math.min(columns - 1, to[1]))], true);
  });
}

/** Point at a cell, and have Python say its numbers; `pinned` where a person chose it. */
function tell(id, [row, column], pinned) {
  const state = tables.get(id);
  const cell = find(id).querySelector(`[data-at="${row},${column}"]`);
  if (!cell) return;
  find(id).querySelector('.here')?.classList.remove('here');
  cell.classList.add('here');
  if (pinned) { state.at = [row, column]; cell.scrollIntoView({ block: 'nearest', inline: 'nearest' }); }
  state.ask(JSON.stringify(CELLS[state.kind](of(state.kind), row, column).told), pinned);
}
