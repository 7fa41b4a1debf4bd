// What is drawn of numbers in the Inside view: heat maps of attention, lines between tokens, and a vector as a strip of colours.
import { moved, of, visible } from './inside.mjs';

const find = (id) => document.getElementById(id);
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const PATTERN = ['inside.attention', 'pattern'];

function canvasOf(id, width, height) {
  const canvas = find(id);
  const sharp = window.devicePixelRatio || 1;
  Object.assign(canvas, { width: Math.max(1, Math.round(width * sharp)), height: Math.max(1, Math.round(height * sharp)) });
  Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
  const pen = canvas.getContext('2d');
  pen.scale(sharp, sharp);
  return pen;
}

/** Weights that are small but not nothing must be seen, hence the root. */
const depth = (weight) => Math.sqrt(Math.max(0, Math.min(1, weight)));

function squares(pen, head, cell, left, top) {
  const [kind, name] = PATTERN;
  const { shape: [, size], data } = of(kind).arrays[name];
  pen.fillStyle = css('--ground');
  pen.fillRect(left, top, size * cell, size * cell);
  pen.fillStyle = css('--train');
  for (let row = 0; row < size; row += 1) {
    for (let column = 0; column <= row; column += 1) {
      const weight = data[(head * size + row) * size + column];
      if (weight < 0.002) continue;
      pen.globalAlpha = depth(weight);
      pen.fillRect(left + column * cell, top + row * cell, cell, cell);
    }
  }
  pen.globalAlpha = 1;
}

/** A head's map without words, as wide as its button. */
export function thumbnail(id, head) {
  const size = of(PATTERN[0]).arrays.pattern.shape[1];
  const wide = 84;
  squares(canvasOf(id, wide, wide), head, wide / size, 0, 0);
}

// ---- the map of one head ---------------------------------------------------------------------------------------------------------

const map = { head: 0, cell: 1, left: 0, top: 0, at: null, ask: null, seen: null };

/** Draw a head's map into the canvas #attention-map; `position` is the row that stands out. */
export function heat(head, position) {
  const { labels, arrays: { pattern: { shape: [, size] } } } = of(PATTERN[0]);
  const room = find('attention-map-box').clientWidth - 4;
  const longest = Math.max(...labels.map((label) => Math.min(6, visible(label).length)));
  const edge = 10 + 7 * longest;
  const worded = (room - edge) / size >= 12;
  const gap = worded ? edge : 0;
  const cell = Math.max(2, Math.min(24, Math.floor((room - gap) / size)));
  Object.assign(map, { head, cell, left: gap, top: gap, at: [position, Math.min(position, map.at?.[1] ?? position)] });
  map.seen = canvasOf('attention-map', gap + size * cell + 2, gap + size * cell + 2);
  paint();
}

function paint() {
  const { seen: pen, cell, left, top, head, at } = map;
  const { labels } = of(PATTERN[0]);
  pen.clearRect(0, 0, pen.canvas.width, pen.canvas.height);
  squares(pen, head, cell, left, top);
  if (left) {
    pen.font = '12px ui-monospace, Consolas, "Liberation Mono", monospace';
    pen.fillStyle = css('--ink');
    labels.forEach((label, index) => {
      const words = visible(label).slice(0, 6);
      const middle = (index + 0.5) * cell;
      pen.textAlign = 'right';
      pen.textBaseline = 'middle';
      pen.fillText(words, left - 5, top + middle);
      pen.save();
      pen.translate(left + middle, top - 5);
      if ([...words].length > 1) pen.rotate(-Math.PI / 2);
      pen.textAlign = [...words].length > 1 ? 'left' : 'center';
      pen.textBaseline = [...words].length > 1 ? 'middle' : 'bottom';
      pen.fillText(words, 0, 0);
      pen.restore();
    });
  }
  pen.strokeStyle = css('--validation');
  pen.lineWidth = 1;
  pen.strokeRect(left + 0.5, top + at[0] * cell - 0.5, (at[0] + 1) * cell, cell + 1);
  pen.lineWidth = 2;
  pen.strokeRect(left + at[1] * cell, top + at[0] * cell, Math.max(3, cell), Math.max(3, cell));
}

/** Listen to the map: ask(row, column, weight, pinned) for a pair of positions under the pointer or chosen with the keys. */
export function watchHeat(ask) {
  const canvas = find('attention-map');
  map.ask = ask;
  const cellAt = ({ offsetX, offsetY }) => [Math.floor((offsetY - map.top) / map.cell), Math.floor((offsetX - map.left) / map.cell)];
  const inside = ([row, column]) => { const size = of(PATTERN[0])?.arrays.pattern.shape[1] ?? 0; return row >= 0 && column >= 0 && row < size && column <= row; };
  canvas.addEventListener('pointermove', (event) => { const at = cellAt(event); if (moved(event) && inside(at)) show(at, false); });
  canvas.addEventListener('click', (event) => { const at = cellAt(event); if (inside(at)) show(at, true); });
  canvas.addEventListener('focus', () => { if (canvas.matches(':focus-visible') && map.at) show(map.at, true); });
  canvas.addEventListener('keydown', (event) => {
    if (!map.at || event.ctrlKey || event.metaKey || event.altKey) return;
    const [row, column] = map.at;
    const to = { ArrowRight: [row, column + 1], ArrowLeft: [row, column - 1], ArrowDown: [row + 1, column], ArrowUp: [row - 1, Math.min(column, row - 1)], Home: [row, 0], End: [row, row] }[event.key];
    if (!to) return;
    event.preventDefault();
    if (inside(to)) show(to, true);
  });
  const again = () => { if (map.seen && of(PATTERN[0])) { heat(map.head, map.at[0]); of(PATTERN[0]).arrays.pattern.shape.length && document.querySelectorAll('canvas[data-head]').forEach((each) => thumbnail(each.id, Number(each.dataset.head))); } };
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', again);
  let wide = 0;
  new ResizeObserver(([{ contentRect: { width } }]) => { if (width && width !== wide) { wide = width; again(); centred(); } }).observe(find('attention-map-box'));
}

function show(at, pinned) {
  map.at = at;
  paint();
  const size = of(PATTERN[0]).arrays.pattern.shape[1];
  map.ask(at[0], at[1], of(PATTERN[0]).arrays.pattern.data[(map.head * size + at[0]) * size + at[1]], pinned);
}

// ---- lines between tokens --------------------------------------------------------------------------------------------------------

const SVG = 'http://www.w3.org/2000/svg';
const LEAST = 0.02;

function shape(tag, attributes, words) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, given] of Object.entries(attributes)) made.setAttribute(name, given);
  if (words !== undefined) made.textContent = words;
  return made;
}

let centre = 0; // of the token that the lines begin at

function centred() {
  const box = find('attention-lines-box');
  box.scrollLeft = centre - box.clientWidth / 2;
}

/** Lines from a position to those it looks at, as wide as what it takes from each; choose(position) where a token is pressed. */
export function lines(head, position, choose) {
  const { labels, arrays: { pattern: { shape: [, size], data } } } = of(PATTERN[0]);
  const wide = labels.map((label) => Math.max(20, 9 * [...visible(label)].length + 8));
  const middle = wide.map((each, index) => wide.slice(0, index).reduce((sum, other) => sum + other, 0) + each / 2);
  const total = wide.reduce((sum, each) => sum + each, 0);
  const row = data.subarray((head * size + position) * size, (head * size + position) * size + position + 1);
  const highOf = (to) => Math.min(106, 18 + Math.abs(middle[to] - middle[position]) * 0.5);
  const base = 12 + Math.max(30, ...[...row.keys()].filter((to) => row[to] >= LEAST).map(highOf));
  const drawing = find('attention-lines');
  drawing.setAttribute('width', total);
  drawing.setAttribute('height', base + 28);
  drawing.setAttribute('viewBox', `0 0 ${total} ${base + 28}`);
  const parts = [];
  for (let to = 0; to <= position; to += 1) {
    const weight = row[to];
    if (weight < LEAST) continue;
    const [x, y, high] = [middle[to], middle[position], highOf(to)];
    const path = to === position ? `M ${x - 6} ${base} C ${x - 16} ${base - 30}, ${x + 16} ${base - 30}, ${x + 6} ${base}` : `M ${y} ${base} C ${y} ${base - high * 1.3}, ${x} ${base - high * 1.3}, ${x} ${base}`;
    const line = shape('path', { d: path, class: 'line', 'stroke-width': (1 + 8 * weight).toFixed(2), 'stroke-opacity': (0.3 + 0.7 * weight).toFixed(2) });
    line.append(shape('title', {}, `${visible(labels[position])} → ${visible(labels[to])}: ${(100 * weight).toFixed(1)} %`));
    parts.push(line);
  }
  labels.forEach((label, index) => {
    const token = shape('text', { x: middle[index], y: base + 18, class: index === position ? 'from' : '', 'text-anchor': 'middle' }, visible(label));
    token.addEventListener('click', () => choose(index));
    parts.push(token);
  });
  drawing.replaceChildren(...parts);
  centre = middle[position];
  centred();
}
