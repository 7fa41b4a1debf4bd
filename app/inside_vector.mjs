// A token's numbers at one place of the model as a strip of colours: blue above nothing, orange below. Arrow keys go from number to number.
import { moved, of } from './inside.mjs';

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const MOST_COLUMNS = 128;
const WIDE = 288;
const strips = new Map(); // id of a canvas -> {name, ask, columns, rows, at}

/** Draw an array of the last inside.flow into a canvas: a row a head where there are heads, else rows of 128. ask(name, index, value, pinned). */
export function draw(id, name, ask) {
  const { shape } = of('inside.flow').arrays[name];
  const count = shape.reduce((product, each) => product * each, 1);
  const columns = shape.length === 2 ? shape[1] : Math.min(MOST_COLUMNS, count);
  strips.set(id, { name, ask, columns, rows: Math.ceil(count / columns), count, at: 0 });
  const canvas = document.getElementById(id);
  paint(id, false);
  const indexAt = ({ offsetX, offsetY }) => {
    const { rows } = strips.get(id);
    return Math.floor(offsetY / (canvas.clientHeight / rows)) * columns + Math.floor(offsetX / (canvas.clientWidth / columns));
  };
  canvas.addEventListener('pointermove', (event) => { if (moved(event)) tell(id, indexAt(event), false); });
  canvas.addEventListener('click', (event) => tell(id, indexAt(event), true));
  canvas.addEventListener('focus', () => { if (canvas.matches(':focus-visible')) tell(id, strips.get(id).at, true); });
  canvas.addEventListener('blur', () => paint(id, false));
  canvas.addEventListener('keydown', (event) => {
    const { at } = strips.get(id);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, ArrowDown: at + columns, ArrowUp: at - columns, Home: 0, End: count - 1 }[event.key];
    if (to === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    tell(id, to, true);
  });
}

const SIDE_BY_SIDE = 16;

/** +1.2000, −1.2000, or 0.0000, as Python's `signed` writes them. */
const figure = (value) => `${Math.abs(value) < 0.00005 ? '' : value < 0 ? '−' : '+'}${Math.abs(value).toFixed(4)}`;

/** Fill a table with an array of the last inside.flow, sixteen numbers a row, or heads by their numbers; of more than `most` numbers those
 * farthest from nothing, each beside its place. */
export function figures(id, name, most) {
  const { shape, data } = of('inside.flow').arrays[name];
  const line = (cells, heads) => {
    const made = document.createElement('tr');
    made.append(...cells.map((words, index) => {
      const head = heads || index === 0;
      const cell = Object.assign(document.createElement(head ? 'th' : 'td'), { textContent: words });
      if (head) cell.scope = heads ? 'col' : 'row';
      return cell;
    }));
    return made;
  };
  const [top, body] = ['thead', 'tbody'].map((tag) => document.createElement(tag));
  if (data.length > most) {
    const order = [...data.keys()].sort((a, b) => Math.abs(data[b]) - Math.abs(data[a])).slice(0, most);
    top.append(line(['Number', 'Value'], true));
    body.append(...order.map((index) => line([index, figure(data[index])])));
  } else {
    const columns = shape.length === 2 ? shape[1] : Math.min(SIDE_BY_SIDE, data.length);
    top.append(line(['', ...Array(columns).keys()], true));
    for (let first = 0; first < data.length; first += columns) {
      const last = Math.min(first + columns, data.length) - 1;
      const head = shape.length === 2 ? `Head ${first / columns}` : `${first} to ${last}`;
      body.append(line([head, ...[...data.subarray(first, last + 1)].map(figure)]));
    }
  }
  document.getElementById(id).replaceChildren(top, body);
}

function tell(id, index, pinned) {
  const strip = strips.get(id);
  if (index < 0 || index >= strip.count) return;
  strip.at = index;
  paint(id, true);
  strip.ask(strip.name, index, of('inside.flow').arrays[strip.name].data[index], pinned);
}

function paint(id, marked) {
  const { name, columns, rows, at } = strips.get(id);
  const canvas = document.getElementById(id);
  if (!canvas) return;
  const { data } = of('inside.flow').arrays[name];
  const high = rows === 1 ? 18 : Math.max(6, Math.min(10, 60 / rows));
  const sharp = window.devicePixelRatio || 1;
  Object.assign(canvas, { width: WIDE * sharp, height: rows * high * sharp });
  Object.assign(canvas.style, { width: `${WIDE}px`, height: `${rows * high}px` });
  const pen = canvas.getContext('2d');
  pen.scale(sharp, sharp);
  const [above, below, wide] = [css('--train'), css('--validation'), WIDE / columns];
  const most = data.reduce((largest, each) => Math.max(largest, Math.abs(each)), 1e-9);
  data.forEach((value, index) => {
    pen.globalAlpha = Math.abs(value) / most;
    pen.fillStyle = value < 0 ? below : above;
    pen.fillRect((index % columns) * wide, Math.floor(index / columns) * high, wide, high);
  });
  if (!marked) return;
  pen.globalAlpha = 1;
  pen.strokeStyle = css('--ink');
  pen.lineWidth = 1.5;
  pen.strokeRect((at % columns) * wide - 0.5, Math.floor(at / columns) * high + 0.75, Math.max(3, wide + 1), high - 1.5);
}

matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => strips.forEach((_, id) => paint(id, false)));
