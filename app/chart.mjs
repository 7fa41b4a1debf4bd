// The loss chart: uPlot and the little arithmetic a drawing needs. Python decides when to reset it; rows arrive straight from the worker.
const MOST_POINTS = 6000; // beyond this neighbours are merged: the picture is the same and drawing stays under a few ms

let plot = null;
let reference = Math.log(256);
let total = 0;
let data; // {step, raw, smooth} of training, in step order
let evals; // [step, loss] of validation, in step order; they may arrive before the training rows of the same steps
let mean = null; // of the training loss, running
let drawing = false;
let lowest = Infinity;
let highest = -Infinity;

function clear() {
  data = { step: [], raw: [], smooth: [] };
  evals = [];
  mean = null;
  lowest = Infinity;
  highest = -Infinity;
}
clear();

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Draw an empty chart into #chart; called once Python is up. */
export async function start() {
  const { default: uPlot } = await import('./uplot/uPlot.esm.js');
  const build = () => {
    plot?.destroy();
    plot = new uPlot(options(), columns(), document.getElementById('chart'));
  };
  build();
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', build);
  new ResizeObserver(() => {
    const { width, height } = box();
    if (width > 0 && (plot.width !== width || plot.height !== height)) plot.setSize({ width, height });
  }).observe(document.getElementById('chart'));
}

function box() {
  const { clientWidth, clientHeight } = document.getElementById('chart');
  return { width: clientWidth, height: clientHeight };
}

/** Both curves over one list of steps, which is what uPlot draws. */
function columns() {
  const steps = [];
  const raw = [];
  const smooth = [];
  const validation = [];
  const put = (step, i, loss) => {
    steps.push(step);
    raw.push(i < 0 ? null : data.raw[i]);
    smooth.push(i < 0 ? null : data.smooth[i]);
    validation.push(loss);
  };
  let next = 0;
  for (let i = 0; i < data.step.length; i += 1) {
    const step = data.step[i];
    for (; evals[next]?.[0] < step; next += 1) put(evals[next][0], -1, evals[next][1]);
    put(step, i, evals[next]?.[0] === step ? evals[next++][1] : null);
  }
  for (; next < evals.length; next += 1) put(evals[next][0], -1, evals[next][1]);
  return [steps, raw, smooth, validation];
}

/** Where the step axis ends. */
const last = () => Math.max(total, data.step.at(-1) ?? 0, 10);

/** What part of the running mean one step brings: at first much, so the steep beginning is not smeared, later a hundredth of the run. */
const share = () => Math.max(Math.min(0.34, Math.max(0.03, 100 / (total || 1000))), 1 / (1 + data.step.length / 6));

function options() {
  const [ink, grid, train, validation] = [css('--muted'), css('--line'), css('--train'), css('--validation')];
  const font = '12px system-ui, sans-serif';
  const axis = { stroke: ink, font, grid: { stroke: grid, width: 1 }, ticks: { show: false } };
  return {
    ...box(),
    padding: [10, () => 8 + 3.6 * last().toLocaleString().length, 0, 0], // half of the last step's label stands beyond the axis
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 } },
    scales: {
      x: { time: false, range: () => [0, last()] },
      y: { range: () => [lowest < Infinity ? Math.max(0, Math.min(2, lowest - 0.15)) : 1, Math.max(reference * 1.04, Math.min(highest, reference * 2))] },
    },
    series: [
      {},
      { stroke: train, width: 1, alpha: 0.3, points: { show: false }, spanGaps: true },
      { stroke: train, width: 2.25, points: { show: false }, spanGaps: true },
      { stroke: validation, width: 2, spanGaps: true, points: { show: true, size: 6, fill: validation, stroke: validation } },
    ],
    axes: [{ ...axis, size: 30, space: 60 }, { ...axis, size: 36, values: (_, marks) => marks.map((mark) => +mark.toFixed(2)) }],
    hooks: { draw: [drawReference], setCursor: [readOut] },
  };
}

function drawReference(u) {
  const { ctx } = u;
  const y = u.valToPos(reference, 'y', true);
  ctx.save();
  ctx.strokeStyle = css('--reference');
  ctx.fillStyle = css('--muted');
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash([5 * devicePixelRatio, 4 * devicePixelRatio]);
  ctx.beginPath();
  ctx.moveTo(u.bbox.left, y);
  ctx.lineTo(u.bbox.left + u.bbox.width, y);
  ctx.stroke();
  ctx.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
  ctx.textAlign = 'right';
  ctx.fillText(`pure guessing: ln ${Math.round(Math.exp(reference))} = ${reference.toFixed(2)}`, u.bbox.left + u.bbox.width - 4 * devicePixelRatio, y + 15 * devicePixelRatio);
  ctx.restore();
}

const shown = (value) => (value == null ? '' : value.toFixed(3));

function readOut(u) {
  const [steps, , smooth, validation] = u.data;
  let at = u.cursor.idx;
  let before = at;
  while (at > 0 && smooth[at] == null) at -= 1;
  while (before > 0 && validation[before] == null) before -= 1;
  document.getElementById('legend-train').value = at == null ? '' : `${shown(smooth[at])} at step ${steps[at]}`;
  document.getElementById('legend-validation').value = before == null ? '' : shown(validation[before]);
}

/** Forget all points; `steps` sets the width. */
export function reset(steps) {
  clear();
  total = steps;
  draw();
}

/** The reference line: the loss of guessing evenly among `vocabulary` tokens. */
export function guessing(vocabulary) {
  reference = Math.log(vocabulary || 256);
  document.getElementById('legend-vocabulary').textContent = String(vocabulary || 256);
  document.getElementById('legend-reference').textContent = reference.toFixed(2);
  draw();
}

export function extend(steps) { total = steps; draw(); }

function add(step, loss) {
  if (step <= (data.step.at(-1) ?? -1)) return; // a resumed run may repeat its last report
  const value = Number.isFinite(loss) ? loss : null;
  if (value != null) {
    mean = mean === null ? value : mean + share() * (value - mean);
    lowest = Math.min(lowest, value);
    highest = Math.max(highest, value);
  }
  data.step.push(step);
  data.raw.push(value);
  data.smooth.push(mean);
}

/** rows: [[step, loss_nats, …], …] in order. */
export function push(rows) {
  for (const [step, loss] of rows) add(step, loss);
  if (data.step.length > MOST_POINTS) thin();
  draw();
}

/** A validation loss (nats) at a step. */
export function validation(step, loss) {
  if (!Number.isFinite(loss)) return;
  while (evals.length && evals.at(-1)[0] >= step) evals.pop(); // a continued run may evaluate a step again
  evals.push([step, loss]);
  lowest = Math.min(lowest, loss);
  highest = Math.max(highest, loss);
  draw();
}

/** Forget what came after a step: a run goes back to its last save. Returns the losses that stand there, in training and in
 * validation; NaN where there is none. */
export function rewind(step) {
  const kept = data.step.findLastIndex((each) => each <= step) + 1;
  for (const name of Object.keys(data)) data[name].length = kept;
  while (evals.length && evals.at(-1)[0] > step) evals.pop();
  mean = data.smooth.at(-1) ?? null;
  const known = [...data.raw, ...evals.map(([, loss]) => loss)].filter((loss) => loss != null);
  lowest = known.reduce((a, b) => Math.min(a, b), Infinity);
  highest = known.reduce((a, b) => Math.max(a, b), -Infinity);
  draw();
  return [data.raw.at(-1) ?? NaN, evals.at(-1)?.[1] ?? NaN];
}

export function load(history, evals, steps) {
  clear();
  total = steps;
  for (const [step, loss] of history) add(step, loss);
  for (const [step, loss] of evals) validation(step, loss);
  while (data.step.length > MOST_POINTS) thin();
  draw();
}

function thin() {
  const keep = [];
  for (let i = 0; i < data.step.length; i += 1) if (i % 2 === 1 || i === 0) keep.push(i);
  for (const name of Object.keys(data)) data[name] = keep.map((i) => data[name][i]);
}

function draw() {
  if (drawing || !plot) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    plot.setData(columns());
  });
}

/** One sentence for people who do not see the picture. */
export function describe(sentence) { document.getElementById('chart').setAttribute('aria-label', sentence); }
