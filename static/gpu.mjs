// WebGPU for Python: regions as buffers, and a tape as one closure a step. Python describes each dispatch once (pipeline,
// bindings, workgroups); replay() encodes them all without crossing back. Runs in a worker of a browser and in Node on Dawn.

import { Steps, SUBMIT_MS, concatenated, timeReplays } from "./gpu_steps.mjs";

const UNIFORM_STRIDE_BYTES = 256;
const MOST_SCOPES = 128; // of submits whose errors nobody waited for yet
const LOST_MS = 500; // mappings of a lost device may be refused before its loss is told
const READ_BYTES = 64 << 20; // a large region is read in pieces of this size
const KEPT_BYTES = 1 << 16; // what was mapped and is not larger is kept for the next time
const FEATURES = ["shader-f16", "subgroups", "timestamp-query", "chromium-experimental-subgroup-matrix"];

const LIMITS = [
  "maxBufferSize", "maxStorageBufferBindingSize", "maxComputeWorkgroupStorageSize", "maxComputeInvocationsPerWorkgroup",
  "maxStorageBuffersPerShaderStage", "maxComputeWorkgroupsPerDimension", "minStorageBufferOffsetAlignment",
];

/**
 * An Engine on the best adapter of `gpu` (navigator.gpu), with whatever of FEATURES it has. `clamp` lowers limits, and leaves out the
 * features named in its list `without` (tests). Throws where there is no adapter.
 */
export async function openGPU(gpu, clamp = {}) {
  gpu ??= globalThis.navigator?.gpu;
  if (!gpu) throw new Error("this browser has no WebGPU");
  const adapter = await gpu.requestAdapter({ powerPreference: "high-performance" });
  if (!adapter) throw new Error("no graphics adapter was found");
  const wanted = {};
  for (const name of LIMITS) wanted[name] = clamp[name] ?? adapter.limits[name];
  wanted.maxStorageBuffersPerShaderStage = Math.min(8, wanted.maxStorageBuffersPerShaderStage);
  for (const side of ["X", "Y"]) wanted[`maxComputeWorkgroupSize${side}`] = Math.min(wanted.maxComputeInvocationsPerWorkgroup, adapter.limits[`maxComputeWorkgroupSize${side}`]);
  const features = FEATURES.filter((name) => adapter.features.has(name) && !clamp.without?.includes(name));
  const device = await adapter.requestDevice({ requiredLimits: wanted, requiredFeatures: features });
  return new Engine(adapter, device, wanted, features);
}

const keyOf = (source, entry, kinds) => `${entry} ${kinds.join()} ${source}`;

class Engine {
  constructor(adapter, device, limits, features) {
    this.device = device;
    this.queue = device.queue;
    this.limits = JSON.stringify(limits);
    const info = adapter.info ?? {};
    const matrices = [...(info.subgroupMatrixConfigs ?? [])].map((c) => [c.componentType, c.resultComponentType, c.M, c.N, c.K]);
    this.features = JSON.stringify({ features, matrices, subgroups: [info.subgroupMinSize ?? 0, info.subgroupMaxSize ?? 0] });
    this.description = [info.description, info.device, info.architecture, info.vendor].find((text) => text) ?? "GPU";
    this.software = Boolean(info.isFallbackAdapter) || /swiftshader|llvmpipe/i.test(this.description);
    this.failed = ""; // why nothing more may be believed; "lost: …" when the device is gone
    this.buffers = new Map(); // by number: a region, scratch, or a bank of activations
    this.pipelines = new Map();
    this.scopes = []; // errors of submits that are still to be reported
    this.stepMs = 0; // what a training step lately took
    this.heldBytes = 0; // of all buffers that there are
    this.uniforms = new Set(); // of the tapes that are prepared
    this.idleStaging = [];
    this.fetched = new Map(); // by number: [first byte, bytes] of a region as they were when fetch() read them
    this.lost = device.lost.then((lost) => this.fail(`lost: ${lost.message || lost.reason}`));
    device.addEventListener?.("uncapturederror", (event) => this.fail(event.error.message));
  }

  fail(message) {
    this.failed ||= message;
  }

  /** A mapping was refused: by a device that is gone, if that is told in the next moment; else for the reason it gave. */
  async refused(error) {
    await Promise.race([this.lost, new Promise((done) => setTimeout(done, LOST_MS))]);
    this.fail(error.message);
  }

  make(bytes, usage) {
    this.device.pushErrorScope("out-of-memory");
    const buffer = this.device.createBuffer({ size: bytes, usage });
    this.scopes.push(this.device.popErrorScope().then((error) => error && this.fail(`out of memory: ${error.message}`)));
    this.heldBytes += bytes;
    return buffer;
  }

  /** Gives a buffer back that make() made. */
  free(buffer) {
    this.heldBytes -= buffer.size;
    buffer.destroy();
  }

  /** Buffer `index` becomes `bytes` long and keeps what it held. Tapes made before must be prepared again. */
  allocate(index, bytes) {
    const old = this.buffers.get(index);
    const fresh = this.make(bytes, GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST);
    if (old) {
      const encoder = this.device.createCommandEncoder();
      encoder.copyBufferToBuffer(old, 0, fresh, 0, old.size);
      this.queue.submit([encoder.finish()]);
      this.free(old);
    }
    this.buffers.set(index, fresh);
  }

  /** Bytes from one buffer to another. */
  copy(source, at, target, to, bytes) {
    const encoder = this.device.createCommandEncoder();
    encoder.copyBufferToBuffer(this.buffers.get(source), at, this.buffers.get(target), to, bytes);
    this.queue.submit([encoder.finish()]);
  }

  /** Gives a buffer back. */
  drop(index) {
    this.fetched.delete(index);
    if (this.buffers.has(index)) this.free(this.buffers.get(index));
    this.buffers.delete(index);
  }

  /** Bytes of a Uint8Array to a region. */
  write(index, offset, bytes) {
    this.fetched.delete(index);
    this.queue.writeBuffer(this.buffers.get(index), offset, bytes);
  }

  /** Bytes of a region; rejects when anything before went wrong. */
  async read(index, offset, bytes) {
    const whole = new Uint8Array(bytes);
    for (let at = 0; at < bytes; at += READ_BYTES) {
      const size = Math.min(READ_BYTES, bytes - at);
      const staging = this.mappable(size);
      const encoder = this.device.createCommandEncoder();
      encoder.copyBufferToBuffer(this.buffers.get(index), offset + at, staging, 0, size);
      this.queue.submit([encoder.finish()]);
      await staging.mapAsync(GPUMapMode.READ, 0, size).catch((error) => this.refused(error));
      await this.settle();
      whole.set(new Uint8Array(staging.getMappedRange(0, size)), at);
      staging.unmap();
      if (staging.size <= KEPT_BYTES) this.idleStaging.push(staging);
      else this.free(staging);
    }
    return whole;
  }

  /** A buffer that can be mapped, of at least so many bytes; given back by pushing it to idleStaging. */
  mappable(bytes) {
    const found = this.idleStaging.findIndex((buffer) => buffer.size >= bytes);
    if (found >= 0) return this.idleStaging.splice(found, 1)[0];
    while (this.idleStaging.length > 3) this.free(this.idleStaging.shift());
    return this.make(Math.max(bytes, 4096), GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST);
  }

  /** Reads regions, for view(). `wanted` is JSON: [[number, first byte, end]…]. */
  async fetch(wanted) {
    for (const [index, start, end] of JSON.parse(wanted)) this.fetched.set(index, [start, await this.read(index, start, end - start)]);
  }

  /** Bytes of a region that fetch() read and nothing wrote since; undefined elsewhere. */
  view(index, offset, bytes) {
    const [start, kept] = this.fetched.get(index) ?? [0, new Uint8Array()];
    return offset >= start && offset + bytes <= start + kept.length ? kept.subarray(offset - start, offset - start + bytes) : undefined;
  }

  /** The same of bytes that lie in several buffers; `runs` is JSON: [[number, offset, bytes]…]. */
  joined(runs) {
    const parts = JSON.parse(runs).map((run) => this.view(...run));
    if (parts.includes(undefined)) return undefined;
    return parts.length === 1 ? parts[0] : concatenated(parts);
  }

  /** Waits for the errors of all submits so far; throws the first. */
  async settle() {
    await Promise.all(this.scopes.splice(0));
    if (this.failed) throw new Error(this.failed);
  }

  async pipeline(source, entry, kinds) {
    const key = keyOf(source, entry, kinds);
    if (!this.pipelines.has(key)) {
      const entries = kinds.map(([binding, writes]) => ({
        binding, visibility: GPUShaderStage.COMPUTE, buffer: { type: writes ? "storage" : "read-only-storage" },
      }));
      entries.push({ binding: 15, visibility: GPUShaderStage.COMPUTE, buffer: { type: "uniform" } });
      this.device.pushErrorScope("validation"); // a refused module rejects the promise below, and says why there: no fault of the engine
      const layout = this.device.createBindGroupLayout({ entries });
      const module = this.device.createShaderModule({ code: source });
      const made = this.device.createComputePipelineAsync({
        layout: this.device.createPipelineLayout({ bindGroupLayouts: [layout] }), compute: { module, entryPoint: entry },
      });
      this.device.popErrorScope().catch(() => {});
      this.pipelines.set(key, made.then((pipeline) => ({ pipeline, layout }), async (error) => {
        const notes = (await module.getCompilationInfo()).messages.map((note) => `line ${note.lineNum}: ${note.message}`);
        throw new Error(`${entry}: ${notes.join("; ") || error.message}`);
      }));
    }
    return this.pipelines.get(key);
  }

  /**
   * A tape as { replay, refresh, calls }. plan is JSON: sources, pipelines [[source, entry, [[binding, writes]…]]…], dispatches
   * [[pipeline, [[binding, region, offset, size]…], uniform bytes, x, y, z]…], and refresh: how many of them, from the first, stand
   * before the tape and run only when refresh() is called. progress(done, all) is called as pipelines compile.
   */
  async prepare(plan, uniforms, progress) {
    const { sources, pipelines, dispatches, refresh } = JSON.parse(plan);
    let done = 0;
    const ready = await Promise.all(pipelines.map(async ([source, entry, kinds]) => {
      const made = await this.pipeline(sources[source], entry, kinds);
      progress?.(++done, pipelines.length);
      return made;
    }));
    const uniform = this.make(Math.max(uniforms.length, UNIFORM_STRIDE_BYTES), GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST);
    this.uniforms.add(uniform);
    if (uniforms.length) this.queue.writeBuffer(uniform, 0, uniforms);
    this.device.pushErrorScope("validation");
    const all = dispatches.map(([pipeline, bindings, size, x, y, z], number) => {
      const entries = bindings.map(([binding, region, offset, bytes]) => ({ binding, resource: { buffer: this.buffers.get(region), offset, size: bytes } }));
      entries.push({ binding: 15, resource: { buffer: uniform, offset: number * UNIFORM_STRIDE_BYTES, size } });
      return [ready[pipeline].pipeline, this.device.createBindGroup({ layout: ready[pipeline].layout, entries }), x, y, z];
    });
    const error = await this.device.popErrorScope();
    if (error) this.fail(error.message);
    await this.settle();
    const calls = all.slice(refresh);
    return {
      calls,
      keys: pipelines.map(([source, entry, kinds]) => keyOf(sources[source], entry, kinds)),
      replay: () => this.replay(calls),
      refresh: () => this.replay(all.slice(0, refresh)),
      release: () => { if (this.uniforms.delete(uniform)) this.free(uniform); },
    };
  }

  /** Appends a tape to `encoder`, submitting between `parts` of it; returns the encoder to go on with. */
  encode(encoder, calls, parts) {
    const size = Math.ceil(calls.length / parts);
    for (let first = 0; first < calls.length; first += size) {
      if (first) {
        this.queue.submit([encoder.finish()]);
        encoder = this.device.createCommandEncoder();
      }
      const pass = encoder.beginComputePass();
      const stop = Math.min(calls.length, first + size);
      let last = null;
      for (let number = first; number < stop; number += 1) {
        const [pipeline, group, x, y, z] = calls[number];
        if (pipeline !== last) pass.setPipeline((last = pipeline));
        pass.setBindGroup(0, group);
        pass.dispatchWorkgroups(x, y, z);
      }
      pass.end();
    }
    return encoder;
  }

  /** Runs what submits, with its errors caught for settle(). */
  guarded(body) {
    if (this.failed) throw new Error(this.failed);
    this.fetched.clear();
    this.device.pushErrorScope("validation");
    try { body(); } finally {
      this.scopes.push(this.device.popErrorScope().then((error) => error && this.fail(error.message)));
    }
    if (this.scopes.length > MOST_SCOPES) this.scopes.splice(0, MOST_SCOPES / 2); // they report through fail() all the same
  }

  replay(calls) {
    const parts = this.stepMs ? Math.ceil(this.stepMs / SUBMIT_MS) : 1 + Math.floor(calls.length / 64);
    this.guarded(() => this.queue.submit([this.encode(this.device.createCommandEncoder(), calls, parts).finish()]));
    this.done = this.queue.onSubmittedWorkDone().catch(() => {});
  }

  /** Until the GPU has done what was submitted. */
  async idle() {
    await this.done;
    await this.settle();
  }

  /** Milliseconds of one run of each of these lists of calls; see gpu_steps.mjs. */
  timeReplays(lists, repeats) {
    return timeReplays(this, lists, repeats);
  }

  /** Gives back the pipelines that only `losers` use (lists of prepared tapes' keys). */
  forget(losers, winners) {
    const kept = new Set([...winners].flatMap((made) => made.keys));
    for (const made of losers) {
      made.release();
      for (const key of made.keys) if (!kept.has(key)) this.pipelines.delete(key);
    }
  }

  /** What takes blocks of training steps; `parts` is JSON: [[start in a row, number, offset, bytes]…]. */
  steps(parts, rowBytes, index, offset, bytes) {
    return new Steps(this, JSON.parse(parts), rowBytes, index, offset, bytes);
  }

  /** Frees all buffers; pipelines stay, for the next model on this device. */
  clear() {
    for (const buffer of [...this.buffers.values(), ...this.idleStaging, ...this.uniforms]) this.free(buffer);
    this.buffers.clear();
    this.uniforms.clear();
    this.fetched.clear();
    this.idleStaging = [];
    this.stepMs = 0;
  }

  close() {
    this.clear();
    this.pipelines.clear();
    this.device.destroy();
  }
}
