// The half of the fake trainer that finds features (see fake_worker.mjs, which e2e/conftest.py puts before this): 45 of 64 fire, whose
// numbers are made up and always the same. `features` is a gate half-way through the training.
let finding = null; // the request under way
let featuresStop = false;
let foundFeatures = null;
let steering = null;

const FIGURES = { l0: 8.02, explained: 0.913, squared_error: 0.0871, dead: 0.125, resampled: 3 };
const firing = Array.from({ length: 45 }, (_, index) => ({ index: index + 3, density: 0.0125 / (index + 1), most: 9.5 - index / 10 }));
const contextOf = (index, place) => {
  const labels = [...`O Romeo\n<${place}>`];
  return { labels, activations: labels.map((_, at) => (at === 2 ? 9 - place : at === 3 ? 1.25 : 0)), at: 2 };
};
const noFeatures = (request) => failed(request, 'features: features that were found in the open model; there are none yet; find some first.');

async function findFeatures(request) {
  finding = request;
  featuresStop = false;
  const tell = (what, done, total, more = {}) => post({ kind: 'features.progress', reply_to: request.id, what, done, total, ...more });
  tell('reading', 1, 4);
  tell('training', request.steps / 2, request.steps, FIGURES);
  while (shut.has('features') && !featuresStop) await wait(5);
  finding = null;
  foundFeatures = { features: request.features };
  post({ kind: 'features.trained', reply_to: request.id, what: 'trained', stopped: featuresStop, address: request.address ?? 'blocks.1.resid_post', features: request.features, alive: firing.length, seen_tokens: 16384,
    recovered: { loss_nats: 1.5, replaced_nats: 1.625, zeroed_nats: 3.5, l0: 7.9, explained: 0.905, dead: 0.3, tokens: 8192, recovered: scenario.recovered === undefined ? 0.9375 : scenario.recovered }, text: scenario.other_text ?? 'Shakespeare', own_text: !scenario.other_text, opening: 'First Citizen:', training: { step: featuresStop ? request.steps / 2 : request.steps, seconds: 4, ...FIGURES } });
}

async function steered(request) {
  steering = request;
  post({ kind: 'features.token', reply_to: request.id, text: ` at ${request.strength.toFixed(2)}`, tokens: 40 });
  while (shut.has('steer') && steering) await wait(5);
  post({ kind: 'features.wrote', reply_to: request.id, tokens: steering ? request.tokens : 40, reason: steering ? 'length' : 'stopped' });
  steering = null;
}

Object.assign(handlers, {
  'features.train'(request) { if (scenario.fail.features) failed(request, scenario.fail.features); else findFeatures(request); },
  'features.stop'() { featuresStop = true; },
  'features.list'(request) {
    if (!foundFeatures) { noFeatures(request); return; }
    const rows = request.by === 'number' ? firing : [...firing].reverse();
    post({ kind: 'features.list', reply_to: request.id, by: request.by, first: request.first, total: firing.length, rows: (request.by === 'telling' ? firing : rows).slice(request.first, request.first + request.count) });
  },
  'features.feature'(request) {
    if (!foundFeatures) { noFeatures(request); return; }
    const { index, density, most } = firing.find((each) => each.index === request.index);
    post({ kind: 'features.feature', reply_to: request.id, index, density, most, contexts: [0, 1].map((place) => contextOf(index, place)), promotes: [['m', 1.5], [' ', 0.25]], suppresses: [['x', -2]] });
  },
  'features.export'(request) {
    const { buffer } = new Uint8Array([80, 75, 5, 6, ...new Array(18).fill(0)]);
    post({ kind: 'exported', reply_to: request.id, name: `${run.name} features.zip`, bytes: 22, buffer }, [buffer]);
  },
  'features.write': (request) => { steered(request); },
  'features.write_stop'() { steering = null; },
});
