// Tokens as spans in the page, many and fast: what Python would take too long to make one by one. Each box of spans is one stop of the
// Tab key; the arrow keys, a pointer or a tap choose a span, and Python is then asked what to say of it (ui/token_tip.py).
const boxes = new Map(); // id of the element with the spans -> { groups: what each span stands for, at: the chosen one, … }
const MOST = 20_000; // of one text: what stands behind them is some kilobytes each
let kept = []; // tokens of a text being written, until Python says where they belong
let held = []; // tokens of a typed text, likewise
let open = null; // {id, at, pinned} of the tip that is shown

const find = (id) => document.getElementById(id);
const tip = () => find('token-tip');

/** Make a box: `frame` is the element that has the focus and scrolls; ask(JSON of what a span stands for, its number, how many there are). */
export function watch(id, frame, ask) {
  const box = { groups: [], waiting: [], at: -1, frame, ask };
  boxes.set(id, box);
  const area = find(frame);
  const over = (event) => { if (event.pointerType !== 'touch') hover(id, event.target.closest('.tok')); };
  area.addEventListener('pointerover', over);
  area.addEventListener('pointerleave', () => { if (open?.id === id && !open.pinned) hide(); });
  area.addEventListener('click', (event) => { const span = event.target.closest('.tok'); if (span) choose(id, Number(span.dataset.at)); else hide(); });
  area.addEventListener('focus', () => { if (box.groups.length && area.matches(':focus-visible')) choose(id, Math.max(0, box.at)); });
  area.addEventListener('blur', () => { if (open?.id === id) hide(); });
  area.addEventListener('keydown', (event) => key(id, event));
  area.addEventListener('scroll', () => { if (open?.id === id) place(); });
}

export function clear(id) {
  Object.assign(boxes.get(id), { groups: [], waiting: [], at: -1 });
  find(id).replaceChildren();
  if (open?.id === id) hide();
}

export function hold(tokens) { held = tokens; }

/** The text that came last, in its tokens: {id, text, …}. Each shows its text, with blanks made visible, and its number. */
export function show(id) {
  clear(id);
  const box = boxes.get(id);
  const made = document.createDocumentFragment();
  for (const token of held) {
    const span = spanOf(box, visible(token.text), [token]);
    span.classList.add(`c${(box.groups.length - 1) % 4}`);
    const number = document.createElement('small');
    number.textContent = token.id;
    span.append(number);
    const breaks = token.text.includes('\n');
    if (breaks && token.text.startsWith('\n') && made.childNodes.length) made.append(document.createElement('br'));
    made.append(span);
    if (breaks && !token.text.startsWith('\n')) made.append(document.createElement('br'));
  }
  find(id).append(made);
}

const visible = (text) => text.replaceAll(' ', '␣').replaceAll('\n', '⏎').replaceAll('\t', '⇥').replaceAll('\r', '␍');

export function keep(rows) { kept.push(...rows); }
export function drop() { kept = []; }

/** The kept tokens as text: one span for what became readable together, so that no letter is cut in two. */
export function write(id) {
  const box = boxes.get(id);
  const made = document.createDocumentFragment();
  for (const row of kept.splice(0)) {
    if (row.top) box.waiting.push(row);
    if (row.text && (!box.waiting.length || box.groups.length >= MOST)) {
      made.append(row.text);
      box.waiting = [];
    } else if (row.text) {
      const span = spanOf(box, row.text, box.waiting);
      const worst = Math.min(...box.waiting.map((each) => each.logprob_nats ?? -99));
      if (row.text.startsWith('\n')) span.classList.add('breaks'); // or it would have no width to point at
      span.classList.add(`p${worst > -0.7 ? 0 : worst > -2.3 ? 1 : worst > -4.6 ? 2 : 3}`); // half, a tenth, a hundredth
      made.append(span);
      box.waiting = [];
    }
  }
  find(id).append(made);
}

function spanOf(box, text, group) {
  const span = document.createElement('span');
  span.className = 'tok';
  span.dataset.at = box.groups.push(group) - 1;
  span.textContent = text;
  return span;
}

// ---- choosing one ----------------------------------------------------------------------------------------------------------------

const spanAt = (id, at) => find(id).querySelector(`[data-at="${at}"]`);

function hover(id, span) {
  if (open?.pinned) return;
  if (span) reveal(id, Number(span.dataset.at), false);
  else if (open?.id === id) hide();
}

function choose(id, at) {
  reveal(id, at, true);
  const span = spanAt(id, at);
  span.scrollIntoView({ block: 'nearest' });
  place();
}

function reveal(id, at, pinned) {
  const box = boxes.get(id);
  if (!box.groups[at]) return;
  find(id).querySelector('.here')?.classList.remove('here');
  box.at = at;
  open = { id, at, pinned };
  spanAt(id, at).classList.add('here');
  box.ask(JSON.stringify(box.groups[at]), at, box.groups.length, pinned);
  tip().hidden = false;
  place();
}

export function hide() {
  if (!open) return;
  find(open.id).querySelector('.here')?.classList.remove('here');
  open = null;
  tip().hidden = true;
}

/** Below the span, or above it where there is no room; never beyond the window. */
function place() {
  const element = tip();
  const span = open && spanAt(open.id, open.at);
  if (!span) return;
  const at = span.getClientRects()[0] ?? span.getBoundingClientRect();
  const { width, height } = element.getBoundingClientRect();
  const below = at.bottom + 6;
  element.style.left = `${Math.max(8, Math.min(at.left, document.documentElement.clientWidth - width - 8))}px`;
  element.style.top = `${below + height < innerHeight || at.top < height + 12 ? below : at.top - height - 6}px`;
}

function key(id, event) {
  const box = boxes.get(id);
  const last = box.groups.length - 1;
  const to = { ArrowRight: Math.min(last, box.at + 1), ArrowLeft: Math.max(0, box.at - 1), Home: 0, End: last }[event.key];
  if (event.key === 'Escape' && open) { hide(); event.preventDefault(); return; }
  if (to === undefined || last < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  choose(id, to);
}

addEventListener('scroll', () => { if (open) place(); }, { passive: true });
addEventListener('keydown', (event) => { if (event.key === 'Escape' && open && !open.pinned) hide(); });
addEventListener('hashchange', hide);
addEventListener('popstate', hide);
