// node modules.mjs DAWN_NODE < question.json: WGSL modules through Dawn, outside the engine. Answers a JSON line a module.
//
// {"flags": [...], "seconds", "modules": [{"label", "source", "entry", "groups", "uniforms": hex, "bindings": [{"index", "bytes",
// "writes", "half"}], "product", "milliseconds", "passes"}]}
// Without "bindings" a module is only compiled, with a pipeline for its entry: Dawn's null backend does that on any machine.
// Inputs hold a pattern that repeats, so that samples of an answer are known without the arrays. "product" ({"rows", "columns",
// "depth", "a_along_k", "b_along_k", "out", "out_half", "bias"}) says what is multiplied and which binding is the result.
import { createRequire } from "node:module";

const PERIOD = 65521;
const dawn = createRequire(import.meta.url)(process.argv[2]);
let text = "";
for await (const part of process.stdin) text += part;
const asked = JSON.parse(text);
Object.assign(globalThis, dawn.globals);
const gpu = dawn.create(asked.flags);
const adapter = await gpu.requestAdapter();
const wanted = ["shader-f16", "subgroups", "timestamp-query", "chromium-experimental-subgroup-matrix"].filter((name) => adapter.features.has(name));
const names = ["maxComputeWorkgroupStorageSize", "maxComputeInvocationsPerWorkgroup", "maxComputeWorkgroupSizeX", "maxStorageBufferBindingSize", "maxBufferSize"];
const device = await adapter.requestDevice({ requiredFeatures: wanted, requiredLimits: Object.fromEntries(names.map((name) => [name, adapter.limits[name]])) });
const say = (row) => process.stdout.write(JSON.stringify(row) + "\n");
const configs = [...(adapter.info.subgroupMatrixConfigs ?? [])].map((c) => [c.componentType, c.resultComponentType, c.M, c.N, c.K]);
say({ adapter: adapter.info.description || adapter.info.device, features: [...adapter.features], subgroups: [adapter.info.subgroupMinSize, adapter.info.subgroupMaxSize], configs, memory: adapter.limits.maxComputeWorkgroupStorageSize });

let state = 12345;
const pattern = Int8Array.from({ length: PERIOD }, () => ((state = (state * 1103515245 + 12345) & 0x7fffffff) >> 16) % 9 - 4);
const number = (i) => pattern[i % PERIOD] / 8;
const halfBits = new Map(Array.from({ length: 9 }, (_, k) => [k - 4, halfOf((k - 4) / 8)]));
function halfOf(value) {
  if (!value) return 0;
  const exponent = Math.floor(Math.log2(Math.abs(value)));
  return (value < 0 ? 0x8000 : 0) | ((exponent + 15) << 10) | Math.round((Math.abs(value) / 2 ** exponent - 1) * 1024);
}
function halfTo(bits) {
  const exponent = (bits >> 10) & 31, fraction = bits & 1023;
  const size = exponent === 31 ? (fraction ? NaN : Infinity) : exponent ? (1 + fraction / 1024) * 2 ** (exponent - 15) : fraction * 2 ** -24;
  return bits & 0x8000 ? -size : size;
}

const kept = new Map();
function filled(bytes, half) {
  const key = `${bytes} ${half}`;
  if (!kept.has(key)) {
    const count = bytes / (half ? 2 : 4), image = half ? new Uint16Array(count) : new Float32Array(count);
    const once = Math.min(count, PERIOD);
    for (let i = 0; i < once; i++) image[i] = half ? halfBits.get(pattern[i]) : number(i);
    for (let have = once; have < count; have *= 2) image.copyWithin(have, 0, Math.min(have, count - have));
    const buffer = device.createBuffer({ size: bytes, usage: GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_DST });
    device.queue.writeBuffer(buffer, 0, image);
    kept.set(key, buffer);
  }
  return kept.get(key);
}
const outputs = new Map();
function written(index, bytes) {
  if (!(outputs.get(index)?.size >= bytes)) {
    outputs.get(index)?.destroy();
    outputs.set(index, device.createBuffer({ size: bytes, usage: GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST }));
  }
  return outputs.get(index);
}

async function compiled(module) {
  device.pushErrorScope("validation");
  const shader = device.createShaderModule({ code: module.source });
  const kinds = module.bindings?.map((b) => ({ binding: b.index, visibility: GPUShaderStage.COMPUTE, buffer: { type: b.writes ? "storage" : "read-only-storage" } }));
  const group = kinds && device.createBindGroupLayout({ entries: [...kinds, { binding: 15, visibility: GPUShaderStage.COMPUTE, buffer: { type: "uniform" } }] });
  const layout = group ? device.createPipelineLayout({ bindGroupLayouts: [group] }) : "auto";
  const error = await device.popErrorScope();
  if (error) return { error: error.message };
  try {
    return { group, pipeline: await device.createComputePipelineAsync({ layout, compute: { module: shader, entryPoint: module.entry } }) };
  } catch (refused) {
    return { error: refused.message };
  }
}

// Elements of the product that lie at corners and here and there, computed in double precision.
async function worst(module) {
  const p = module.product, { buffer, half } = { buffer: written(p.out, 4), half: p.out_half };
  const places = [[0, 0], [p.rows - 1, p.columns - 1], [0, p.columns - 1], [p.rows - 1, 0]];
  for (let n = 1; n < 60; n++) places.push([(n * 7919) % p.rows, (n * 104729) % p.columns]);
  const staging = device.createBuffer({ size: places.length * 4, usage: GPUBufferUsage.COPY_DST | GPUBufferUsage.MAP_READ });
  const encoder = device.createCommandEncoder();
  const size = half ? 2 : 4;
  places.forEach(([row, column], n) => {
    const at = (row * p.columns + column) * size;
    encoder.copyBufferToBuffer(buffer, at - (at % 4), staging, n * 4, 4);
  });
  device.queue.submit([encoder.finish()]);
  await staging.mapAsync(GPUMapMode.READ);
  const view = new DataView(staging.getMappedRange());
  let off = 0;
  places.forEach(([row, column], n) => {
    const skip = ((row * p.columns + column) * size) % 4;
    const got = half ? halfTo(view.getUint16(n * 4 + skip, true)) : view.getFloat32(n * 4, true);
    let sum = p.bias ? number(column) : 0;
    for (let k = 0; k < p.depth; k++) sum += number(p.a_along_k ? row * p.depth + k : k * p.rows + row) * number(p.b_along_k ? column * p.depth + k : k * p.columns + column);
    const error = Math.abs(got - sum) / (Math.abs(sum) * (half ? 2 ** -10 : 2 ** -20) + Math.sqrt(p.depth) * 2 ** -18);
    off = Math.max(off, Number.isFinite(error) ? error : 1e9);
  });
  staging.destroy();
  return off; // at most about 1 where right
}

// The largest difference from what the first module of the key wrote, over its largest number; null of the first.
const firsts = new Map();
async function unlike({ key, outputs: asked }) {
  const found = [];
  for (const { index, bytes, half } of asked) {
    const staging = device.createBuffer({ size: bytes, usage: GPUBufferUsage.COPY_DST | GPUBufferUsage.MAP_READ });
    const encoder = device.createCommandEncoder();
    encoder.copyBufferToBuffer(written(index, bytes), 0, staging, 0, bytes);
    device.queue.submit([encoder.finish()]);
    await staging.mapAsync(GPUMapMode.READ);
    const image = half ? new Uint16Array(staging.getMappedRange()) : new Float32Array(staging.getMappedRange());
    const step = Math.max(1, image.length >> 18) | 1, part = []; // odd: every column comes up
    for (let i = 0; i < image.length; i += step) part.push(half ? halfTo(image[i]) : image[i]);
    found.push(part);
    staging.destroy();
  }
  if (!firsts.has(key)) return firsts.set(key, found), null;
  const shares = firsts.get(key).map((first, n) => {
    let most = 0, off = 0;
    first.forEach((value, i) => {
      most = Math.max(most, Math.abs(value));
      const error = Math.abs(value - found[n][i]);
      off = Math.max(off, Number.isFinite(error) ? error : 1e9);
    });
    return most ? off / most : off ? 1e9 : null; // null: bound, and left at nothing by both
  }).filter((share) => share !== null);
  return shares.length ? Math.max(...shares) : 1e9;
}

async function measured(module, { group, pipeline }) {
  const uniform = device.createBuffer({ size: module.uniforms.length / 2, usage: GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST });
  device.queue.writeBuffer(uniform, 0, Uint8Array.from(module.uniforms.match(/../g), (pair) => parseInt(pair, 16)));
  const entries = module.bindings.map((b) => ({ binding: b.index, resource: { buffer: b.writes ? written(b.index, b.bytes) : filled(b.bytes, b.half), size: b.bytes } }));
  const bound = device.createBindGroup({ layout: group, entries: [...entries, { binding: 15, resource: { buffer: uniform } }] });
  const queries = wanted.includes("timestamp-query") && device.createQuerySet({ type: "timestamp", count: 2 });
  const resolved = device.createBuffer({ size: 16, usage: GPUBufferUsage.QUERY_RESOLVE | GPUBufferUsage.COPY_SRC });
  const staging = device.createBuffer({ size: 16, usage: GPUBufferUsage.COPY_DST | GPUBufferUsage.MAP_READ });
  async function pass(repeats) {
    const encoder = device.createCommandEncoder();
    const compute = encoder.beginComputePass(queries ? { timestampWrites: { querySet: queries, beginningOfPassWriteIndex: 0, endOfPassWriteIndex: 1 } } : {});
    compute.setPipeline(pipeline);
    compute.setBindGroup(0, bound);
    for (let n = 0; n < repeats; n++) compute.dispatchWorkgroups(...module.groups);
    compute.end();
    if (queries) {
      encoder.resolveQuerySet(queries, 0, 2, resolved, 0);
      encoder.copyBufferToBuffer(resolved, 0, staging, 0, 16);
    }
    const began = performance.now();
    device.queue.submit([encoder.finish()]);
    if (!queries) return await device.queue.onSubmittedWorkDone(), (performance.now() - began) / repeats;
    await staging.mapAsync(GPUMapMode.READ);
    const [first, last] = new BigUint64Array(staging.getMappedRange().slice(0));
    staging.unmap();
    return Number(last - first) / 1e6 / repeats;
  }
  for (const b of module.bindings.filter((b) => b.writes)) {
    const encoder = device.createCommandEncoder(); // what a kernel adds to starts at nothing
    encoder.clearBuffer(written(b.index, b.bytes));
    device.queue.submit([encoder.finish()]);
  }
  const once = await pass(1);
  const off = module.product ? await worst(module) : module.same ? await unlike(module.same) : null;
  const repeats = Math.max(1, Math.min(50, Math.floor((module.milliseconds ?? 20) / Math.max(once, 0.01))));
  const times = [];
  for (let n = 0; n < (module.passes ?? 3); n++) times.push(await pass(repeats));
  [uniform, resolved, staging].forEach((buffer) => buffer.destroy());
  return { ms: Math.min(...times), off };
}

const AHEAD = 16; // modules that compile while one is measured
const started = performance.now(), making = [];
for (const [number, module] of asked.modules.entries()) {
  if (performance.now() - started > 1e3 * (asked.seconds ?? 1e9)) break;
  while (making.length < Math.min(number + AHEAD, asked.modules.length)) making.push(compiled(asked.modules[making.length]));
  const made = await making[number];
  try {
    say({ label: module.label, ...(made.error ? { error: made.error } : module.bindings ? await measured(module, made) : {}) });
  } catch (error) {
    say({ label: module.label, error: String(error.message ?? error) });
  }
}
process.stdout.write("", () => process.exit(0));
