// The peer: the same GPT on jax-js, its WebAssembly backend, the whole training step under one jit.
// Weights, batches and AdamW's recipe of each step come from files that bench/data.py wrote, so losses can be compared.
import { serve } from './serve.mjs';

const made = [];
const Memory = WebAssembly.Memory;
WebAssembly.Memory = class extends Memory {
  constructor(options) { super(options); made.push(this); }
};
let jax, np, nn, tree; // imported in make(): a worker that waits before it listens loses messages
let state = null;

const layernorm = (x, weight, bias) => nn.standardize(x, -1, { epsilon: 1e-5 }).mul(weight).add(bias);
const linear = (x, weight, bias) => np.matmul(x, weight).add(bias);

function forward(p, tokens, config) {
  const { layers, channels: C, heads: H, context: T, batch: B, vocabulary: V } = config;
  const w = (name) => p[name].ref;
  let x = np.matmul(nn.oneHot(tokens.reshape([B * T]), V), w('wte.weight')).reshape([B, T, C]).add(w('wpe.weight')).reshape([B * T, C]);
  for (let i = 0; i < layers; i++) {
    const at = (name) => w(`blocks.${i}.${name}`);
    const qkv = linear(layernorm(x.ref, at('ln_1.weight'), at('ln_1.bias')), at('attn.qkv.weight'), at('attn.qkv.bias'));
    const [q, k, v] = np.split(qkv, 3, -1).map((part) => part.reshape([B, T, H, C / H]));
    const y = nn.dotProductAttention(q, k, v, { isCausal: true }).reshape([B * T, C]);
    x = x.add(linear(y, at('attn.proj.weight'), at('attn.proj.bias')));
    const pre = linear(layernorm(x.ref, at('ln_2.weight'), at('ln_2.bias')), at('mlp.fc.weight'), at('mlp.fc.bias'));
    x = x.add(linear(nn.gelu(pre), at('mlp.proj.weight'), at('mlp.proj.bias')));
  }
  return np.matmul(layernorm(x, w('ln_f.weight'), w('ln_f.bias')), np.transpose(w('wte.weight')));
}

function lossOf(config) {
  return (p, tokens, targets) => {
    const rows = config.batch * config.context;
    const logits = forward(p, tokens, config);
    tree.dispose(p);
    const logp = nn.logSoftmax(logits, -1);
    return logp.mul(nn.oneHot(targets.reshape([rows]), config.vocabulary)).sum().mul(-1 / rows);
  };
}

/** One step: loss, gradients, clipping by the global norm, AdamW with the correction of this step. recipe is f32 [8]. */
function stepOf(config, decayed) {
  const gradient = jax.valueAndGrad(lossOf(config));
  return (p, m, v, tokens, targets, recipe) => {
    const [loss, grads] = gradient(tree.ref(p), tokens, targets);
    const [lr, beta1, beta2, eps, decay, clip, correction1, correction2] = Array.from({ length: 8 }, (_, i) => recipe.ref.slice(i));
    recipe.dispose();
    const squares = Object.values(grads).map((g) => np.square(g.ref).sum());
    const norm = np.sqrt(squares.reduce((a, b) => a.add(b)));
    const scale = np.minimum(1, clip.div(norm.ref));
    const next = { p: {}, m: {}, v: {} };
    for (const name of Object.keys(grads)) {
      const g = grads[name].mul(scale.ref);
      const m1 = m[name].mul(beta1.ref).add(g.ref.mul(np.subtract(1, beta1.ref)));
      const v1 = v[name].mul(beta2.ref).add(np.square(g).mul(np.subtract(1, beta2.ref)));
      const update = m1.ref.mul(correction1.ref).div(np.sqrt(v1.ref.mul(correction2.ref)).add(eps.ref)).mul(lr.ref);
      const kept = decayed.has(name) ? p[name].mul(np.subtract(1, lr.ref.mul(decay.ref))) : p[name];
      next.p[name] = kept.sub(update);
      next.m[name] = m1;
      next.v[name] = v1;
    }
    for (const each of [lr, beta1, beta2, eps, decay, correction1, correction2, scale]) each.dispose();
    return [next.p, next.m, next.v, loss, norm];
  };
}

async function make({ folder }) {
  jax = await import('/jax/index.js');
  ({ numpy: np, nn, tree } = jax);
  await jax.init('wasm');
  jax.defaultDevice('wasm');
  const get = async (file) => (await fetch(`${folder}/${file}`)).arrayBuffer();
  const about = JSON.parse(new TextDecoder().decode(await get('about.json')));
  const weights = await get('weights.bin');
  const p = {}, m = {}, v = {}, decayed = new Set();
  for (const { name, shape, offset_bytes, decays } of about.weights) {
    const count = shape.reduce((a, b) => a * b, 1);
    p[name] = np.array(new Float32Array(weights, offset_bytes, count).slice()).reshape(shape);
    m[name] = np.zeros(shape);
    v[name] = np.zeros(shape);
    if (decays) decayed.add(name);
  }
  state = {
    p, m, v, config: about.config, position: 0, recipes: about.recipes,
    batches: new Int32Array(await get('batches.bin')), step: jax.jit(stepOf(about.config, decayed)),
  };
  return { threads: navigator.hardwareConcurrency };
}

async function one() {
  const { config, batches, recipes } = state;
  const shape = [config.batch, config.context], size = config.batch * config.context;
  const at = state.position++ % recipes.length;
  const began = performance.now();
  const ints = (start) => np.array(batches.slice(start, start + size), { dtype: np.int32 }).reshape(shape);
  const recipe = np.array(new Float32Array(recipes[at]));
  const [p, m, v, loss, norm] = state.step(state.p, state.m, state.v, ints(2 * at * size), ints((2 * at + 1) * size), recipe);
  Object.assign(state, { p, m, v });
  const [value] = await loss.data();
  const [length] = await norm.data();
  await jax.blockUntilReady([p, m, v]);
  return { ms: performance.now() - began, loss_nats: value, gradient_norm: length };
}

serve({
  make,
  run: async ({ count }) => {
    const steps = [];
    for (let i = 0; i < count; i++) steps.push(await one());
    return steps;
  },
  memory: () => made.reduce((sum, memory) => sum + memory.buffer.byteLength, 0),
});
