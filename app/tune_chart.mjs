// The loss of a tune or an improvement, in training and on what was kept aside: one small uPlot each. Rows arrive straight from the worker.
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const MOST_POINTS = 4000; // beyond this every second one goes: the picture is the same

/** A chart in the element of this id. */
function chartIn(id) {
  let plot = null;
  let total = 1;
  let rows = []; // [step, loss, running mean] in training, in step order
  let evals = []; // [step, loss] on what was kept aside
  let building = null;

  const place = () => document.getElementById(id);

  /** Forget all points and show the chart; `steps` sets the width. */
  function reset(steps) {
    rows = [];
    evals = [];
    total = Math.max(steps || 1, 10);
    building ??= build();
    draw();
  }

  async function build() {
    const { default: uPlot } = await import('./uplot/uPlot.esm.js');
    const make = () => {
      plot?.destroy();
      plot = new uPlot(options(), columns(), place());
    };
    make();
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', make);
    new ResizeObserver(() => {
      const { clientWidth: width, clientHeight: height } = place();
      if (width > 0 && (plot.width !== width || plot.height !== height)) plot.setSize({ width, height });
    }).observe(place());
  }

  function options() {
    const axis = { stroke: css('--muted'), font: '12px system-ui, sans-serif', grid: { stroke: css('--line'), width: 1 }, ticks: { show: false } };
    return {
      width: place().clientWidth, height: place().clientHeight, padding: [10, 24, 0, 0], legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 } },
      scales: { x: { time: false, range: () => [0, total] }, y: { range: (_, low, high) => (low == null ? [0, 1] : [Math.max(0, low - 0.05 * (high - low + 0.1)), high + 0.05 * (high - low + 0.1)]) } },
      series: [
        {},
        { stroke: css('--train'), width: 1, alpha: 0.3, points: { show: false }, spanGaps: true },
        { stroke: css('--train'), width: 2.25, points: { show: false }, spanGaps: true },
        { stroke: css('--validation'), width: 2, spanGaps: true, points: { show: true, size: 6, fill: css('--validation'), stroke: css('--validation') } },
      ],
      axes: [{ ...axis, size: 30, space: 60 }, { ...axis, size: 44, values: (_, marks) => marks.map((mark) => +mark.toFixed(3)) }],
    };
  }

  /** The curves over one list of steps. */
  function columns() {
    const steps = [...new Set([...rows, ...evals].map(([step]) => step))].sort((a, b) => a - b);
    const training = new Map(rows.map((row) => [row[0], row]));
    const validation = new Map(evals);
    const column = (at) => steps.map((step) => training.get(step)?.[at] ?? null);
    return [steps, column(1), column(2), steps.map((step) => validation.get(step) ?? null)];
  }

  function draw() {
    requestAnimationFrame(() => plot?.setData(columns()));
  }


  /** New rows [[step, loss, …], …], in order; after a fault they may begin at a step that was there already. */
  function push(more) {
    for (const [step, loss] of more) {
      while (rows.length && rows.at(-1)[0] >= step) rows.pop();
      const value = Number.isFinite(loss) ? loss : null;
      const before = rows.at(-1)?.[2] ?? value;
      rows.push([step, value, value == null ? before : before + Math.max(0.12, 1 / (1 + rows.length / 2)) * (value - before)]);
    }
    if (rows.length > MOST_POINTS) rows = rows.filter((_, i) => i % 2 === 0);
    draw();
  }

  /** The loss on what was kept aside, at a step. */
  function validation(step, loss) {
    if (!Number.isFinite(loss)) return;
    while (evals.length && evals.at(-1)[0] >= step) evals.pop();
    evals.push([step, loss]);
    draw();
  }

  /** One sentence for people who do not see the picture. */
  function describe(sentence) { place().setAttribute('aria-label', sentence); }

  return { reset, push, validation, describe };
}

export const { reset, push, validation, describe } = chartIn('tune-chart');
export const improving = chartIn('improve-chart');
