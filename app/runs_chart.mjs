// Up to eight runs on one chart. A run is told by its colour, by its dashes, and by its number at the end of its line, so that no one of them
// is needed. The curves come straight from the worker (too long to pass through JSON twice); Python says what is shown.
let held = null; // the last `compared` event: names, curves by metric, unit
let plot = null;
let shown = null; // [metric, along] of the plot
const DASHES = [[], [10, 5], [3, 4], [14, 4, 3, 4], [6, 3], [18, 6], [2, 7], [10, 3, 3, 3, 3, 3]];

const place = () => document.getElementById('beside-chart');
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const colour = (index) => css(`--run-${index + 1}`);

/** Keep the curves of a `compared` event; they are taken out of it. */
export function hold(event) {
  held = { names: event.names, curves: event.curves, unit: event.unit };
  delete event.curves;
}

/** Draw a metric ("loss", "validation", "rate") along an axis ("step", "tokens", "seconds"). */
export async function show(metric, along) {
  shown = [metric, along];
  const { default: uPlot } = await import('./uplot/uPlot.esm.js');
  if (!held || shown[0] !== metric || shown[1] !== along) return;
  plot?.destroy();
  const curves = held.curves[metric];
  const tables = curves.map((curve) => (curve[along].length ? [curve[along], curve.value] : [[0], [null]]));
  plot = new uPlot(options(metric, along, curves), uPlot.join(tables), place());
  plot.root.setAttribute('aria-hidden', 'true');
  read(plot);
}

function options(metric, along, curves) {
  const axis = { stroke: css('--muted'), font: '12px system-ui, sans-serif', grid: { stroke: css('--line'), width: 1 }, ticks: { show: false } };
  const points = (curve) => ({ show: curve.value.length < 12, size: 6 });
  return {
    width: place().clientWidth, height: place().clientHeight, padding: [12, 30, 0, 0], legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 } },
    scales: {
      x: { time: false, range: (_, low, high) => [0, high || 1] },
      y: { range: (_, low, high) => (low == null ? [0, 1] : [Math.max(0, low - 0.06 * (high - low || high || 1)), high + 0.06 * (high - low || high || 1)]) },
    },
    series: [{}, ...curves.map((curve, i) => ({ stroke: colour(i), width: 2.25, dash: DASHES[i].map((each) => each * devicePixelRatio), spanGaps: true, points: points(curve) }))],
    axes: [
      { ...axis, size: 30, space: 70, values: (_, marks) => marks.map((mark) => short(mark, along)) },
      { ...axis, size: 58, values: (_, marks) => marks.map((mark) => (metric === 'rate' ? mark && mark.toExponential(1).replace('.0', '') : +mark.toFixed(3))) },
    ],
    hooks: { draw: [numbers], setCursor: [read] },
  };
}

function short(value, along) {
  if (along === 'seconds') return value >= 7200 ? `${+(value / 3600).toFixed(1)} h` : value >= 120 ? `${+(value / 60).toFixed(1)} min` : `${+value.toFixed(1)} s`;
  if (value >= 1e9) return `${+(value / 1e9).toFixed(2)} B`;
  if (value >= 1e6) return `${+(value / 1e6).toFixed(2)} M`;
  return value >= 1e4 ? `${+(value / 1e3).toFixed(1)} k` : String(+value.toFixed(2));
}

/** Each run's number at the end of its line; those that would lie upon each other move apart. */
function numbers(u) {
  const { ctx } = u;
  const size = 8 * devicePixelRatio;
  const ends = [];
  for (let i = 1; i < u.data.length; i += 1) {
    const at = u.data[i].findLastIndex((value) => value != null);
    if (at >= 0) ends.push([i - 1, u.valToPos(u.data[0][at], 'x', true) + size * 1.4, u.valToPos(u.data[i][at], 'y', true)]);
  }
  ends.sort((a, b) => a[2] - b[2]);
  for (const [n, end] of ends.entries()) {
    for (const before of ends.slice(0, n)) if (Math.abs(before[1] - end[1]) < size * 2 && end[2] - before[2] < size * 2.1) end[2] = before[2] + size * 2.1;
  }
  for (let n = ends.length - 1; n >= 0; n -= 1) { // and none lies upon the axis below
    const under = ends.slice(n + 1).filter((other) => Math.abs(other[1] - ends[n][1]) < size * 2).map((other) => other[2] - size * 2.1);
    ends[n][2] = Math.min(ends[n][2], u.bbox.top + u.bbox.height - size, ...under);
  }
  ctx.save();
  ctx.font = `600 ${11 * devicePixelRatio}px system-ui, sans-serif`;
  ctx.textAlign = 'center';
  ctx.textBaseline = 'middle';
  for (const [run, x, y] of ends) {
    ctx.fillStyle = colour(run);
    ctx.beginPath();
    ctx.arc(x, y, size, 0, 2 * Math.PI);
    ctx.fill();
    ctx.fillStyle = css('--card');
    ctx.fillText(String(run + 1), x, y + devicePixelRatio * 0.5);
  }
  ctx.restore();
}

/** The values under the cursor, beside the names; without a cursor the last ones. */
function read(u) {
  const at = u.cursor.idx;
  const [metric, along] = shown;
  const digits = metric === 'rate' ? 6 : 3;
  for (let i = 1; i < u.data.length; i += 1) {
    const output = document.getElementById(`beside-value-${i}`);
    if (!output) continue;
    let found = at == null ? u.data[i].length - 1 : at;
    while (found >= 0 && u.data[i][found] == null) found -= 1;
    const over = at != null && found >= 0 && u.data[i].slice(at).every((value) => value == null) && u.data[i][at] == null;
    output.value = found < 0 ? 'none' : u.data[i][found].toFixed(digits) + (over ? ' at its end' : '');
  }
  const where = document.getElementById('beside-where');
  where.value = at == null ? 'At the end of each run:' : `At ${short(u.data[0][at], along)}${along === 'seconds' ? '' : ` ${along === 'step' ? 'steps' : 'tokens'}`}:`;
}

/** Move the cursor by keys: a fiftieth of the width, or to an end. */
export function key(name) {
  if (!plot) return false;
  const width = plot.over.clientWidth;
  const now = plot.cursor.left >= 0 ? plot.cursor.left : width;
  const left = { ArrowLeft: now - width / 50, ArrowRight: now + width / 50, Home: 0, End: width }[name];
  if (left === undefined) return false;
  plot.setCursor({ left: Math.max(0, Math.min(width, left)), top: 10 });
  return true;
}

/** Forget the comparison. */
export function close() {
  plot?.destroy();
  plot = held = shown = null;
}

/** One sentence for people who do not see the picture. */
export function describe(sentence) { place().setAttribute('aria-label', sentence); }

/** A line as the chart draws it: dashes and colour of run `index` (from 0), as an element. */
export function sample(index) {
  const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  const line = document.createElementNS('http://www.w3.org/2000/svg', 'line');
  for (const [name, value] of Object.entries({ class: `sample run-${index + 1}`, width: 34, height: 10, 'aria-hidden': 'true' })) svg.setAttribute(name, value);
  for (const [name, value] of Object.entries({ x1: 0, y1: 5, x2: 34, y2: 5, 'stroke-dasharray': DASHES[index].join(' ') })) line.setAttribute(name, value);
  svg.append(line);
  return svg;
}

matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { if (shown) show(...shown); });
new ResizeObserver(() => {
  if (plot && place().clientWidth > 0 && plot.width !== place().clientWidth) plot.setSize({ width: place().clientWidth, height: place().clientHeight });
}).observe(document.body);
