// The fake trainer's answer to runs.compare: made-up curves of the runs in its list. A run's `pace` says how quickly its loss falls.
{
  const column = (saved, every) => Array.from({ length: Math.floor(saved.step / every) }, (_, i) => (i + 1) * every);
  const loss = (saved, step) => 1.4 + (saved.floor ?? 0) + 4.1 * Math.exp(-step / (saved.pace ?? 90)) + 0.02 * Math.sin(step / 9);
  const curve = (saved, every, value) => {
    const step = column(saved, every);
    return { step, tokens: step.map((each) => each * (saved.tokens_per_step ?? 2048)), seconds: saved.untimed ? [] : step.map((each) => each * 0.095), value: step.map(value) };
  };

  handlers['runs.compare'] = (request) => {
    if (scenario.fail.compare) { failed(request, scenario.fail.compare); return; }
    const chosen = request.run_ids.map((run_id) => find({ run_id }));
    const curves = {
      loss: chosen.map((saved) => curve(saved, 4, (step) => loss(saved, step))),
      validation: chosen.map((saved) => curve(saved, 50, (step) => loss(saved, step) + 0.09)),
      rate: chosen.map((saved) => curve(saved, 10, (step) => (saved.rate ?? 3e-4) * Math.min(1, step / 60) * (0.55 + 0.45 * Math.cos((Math.PI * step) / saved.step)))),
    };
    const along = chosen.some((saved) => saved.untimed) ? ['step', 'tokens'] : ['step', 'tokens', 'seconds'];
    const table = (metric, name) => {
      const places = [200, 400, 800].map((step) => (name === 'seconds' ? step * 0.095 : name === 'tokens' ? step * 2048 : step));
      const at = (each, place) => (place > each[name].at(-1) ? null : each.value[each[name].findLastIndex((x) => x <= place)] ?? null);
      return { along: name, places, rows: places.map((place) => curves[metric].map((each) => at(each, place))), ends: curves[metric].map((each) => each.value.at(-1)) };
    };
    const tables = Object.fromEntries(Object.keys(curves).map((metric) => [metric, Object.fromEntries(along.map((name) => [name, table(metric, name)]))]));
    post({ kind: 'compared', reply_to: request.id, run_ids: request.run_ids, names: chosen.map((saved) => saved.name), steps: chosen.map((saved) => saved.step), curves, unit: 'nats per token', along, tables,
      settings: scenario.settings ?? [{ group: 'Training', label: 'Learning rate', values: chosen.map((saved) => String(saved.rate ?? 0.0003)) }], notes: scenario.notes ?? [] });
  };
}
