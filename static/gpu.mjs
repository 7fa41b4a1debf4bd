// WebGPU for Python: regions as buffers, and a tape as one closure a step. Python describes each dispatch once (pipeline,
// bindings, workgroups); replay() encodes them all without crossing back. Runs in a worker of a browser and in Node on Dawn.

const UNIFORM_STRIDE_BYTES = 256;
const MOST_AHEAD = 32; // submits under way before Python should wait
const SUBMIT_MS = 100; // a submit is kept shorter than this: drivers end longer ones

const LIMITS = [
  "maxBufferSize", "maxStorageBufferBindingSize", "maxComputeWorkgroupStorageSize", "maxComputeInvocationsPerWorkgroup",
  "maxStorageBuffersPerShaderStage", "maxComputeWorkgroupsPerDimension", "minStorageBufferOffsetAlignment",
];

/** An Engine on the best adapter of `gpu` (navigator.gpu). `clamp` lowers limits (tests). Throws where there is none. */
export async function openGPU(gpu, clamp = {}) {
  gpu ??= globalThis.navigator?.gpu;
  if (!gpu) throw new Error("this browser has no WebGPU");
  const adapter = await gpu.requestAdapter({ powerPreference: "high-performance" });
  if (!adapter) throw new Error("no graphics adapter was found");
  const wanted = {};
  for (const name of LIMITS) wanted[name] = clamp[name] ?? adapter.limits[name];
  wanted.maxStorageBuffersPerShaderStage = Math.min(8, wanted.maxStorageBuffersPerShaderStage);
  for (const side of ["X", "Y"]) wanted[`maxComputeWorkgroupSize${side}`] = Math.min(wanted.maxComputeInvocationsPerWorkgroup, adapter.limits[`maxComputeWorkgroupSize${side}`]);
  const device = await adapter.requestDevice({ requiredLimits: wanted });
  return new Engine(adapter, device, wanted);
}

class Engine {
  constructor(adapter, device, limits) {
    this.device = device;
    this.queue = device.queue;
    this.limits = JSON.stringify(limits);
    const info = adapter.info ?? {};
    this.description = [info.description, info.device, info.architecture, info.vendor].find((text) => text) ?? "GPU";
    this.software = Boolean(info.isFallbackAdapter) || /swiftshader|llvmpipe/i.test(this.description);
    this.failed = ""; // why nothing more may be believed; "lost: …" when the device is gone
    this.buffers = new Map(); // by number: a region, scratch, or a bank of activations
    this.pipelines = new Map();
    this.scopes = []; // errors of submits that are still to be reported
    this.ahead = 0;
    this.parts = 1; // submits a step
    device.lost.then((lost) => this.fail(`lost: ${lost.message || lost.reason}`));
    device.addEventListener?.("uncapturederror", (event) => this.fail(event.error.message));
  }

  fail(message) {
    this.failed ||= message;
  }

  make(bytes, usage) {
    this.device.pushErrorScope("out-of-memory");
    const buffer = this.device.createBuffer({ size: bytes, usage });
    this.scopes.push(this.device.popErrorScope().then((error) => error && this.fail(`out of memory: ${error.message}`)));
    return buffer;
  }

  /** Buffer `index` becomes `bytes` long and keeps what it held. Tapes made before must be prepared again. */
  allocate(index, bytes) {
    const old = this.buffers.get(index);
    const fresh = this.make(bytes, GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST);
    if (old) {
      const encoder = this.device.createCommandEncoder();
      encoder.copyBufferToBuffer(old, 0, fresh, 0, old.size);
      this.queue.submit([encoder.finish()]);
      old.destroy();
    }
    this.buffers.set(index, fresh);
  }

  /** Bytes of a Uint8Array to a region. */
  write(index, offset, bytes) {
    this.queue.writeBuffer(this.buffers.get(index), offset, bytes);
  }

  /** Bytes of a region; rejects when anything before went wrong. */
  async read(index, offset, bytes) {
    this.staging = this.staging?.size >= bytes ? this.staging : this.device.createBuffer({ size: Math.max(bytes, 65536), usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST });
    const staging = this.staging;
    const encoder = this.device.createCommandEncoder();
    encoder.copyBufferToBuffer(this.buffers.get(index), offset, staging, 0, bytes);
    this.queue.submit([encoder.finish()]);
    await staging.mapAsync(GPUMapMode.READ, 0, bytes).catch((error) => this.fail(error.message));
    await this.settle();
    const copy = new Uint8Array(staging.getMappedRange(0, bytes)).slice();
    staging.unmap();
    return copy;
  }

  /** Waits for the errors of all submits so far; throws the first. */
  async settle() {
    await Promise.all(this.scopes.splice(0));
    if (this.failed) throw new Error(this.failed);
  }

  async pipeline(source, entry, kinds) {
    const key = `${entry} ${kinds.join()} ${source}`;
    if (!this.pipelines.has(key)) {
      const entries = kinds.map(([binding, writes]) => ({
        binding, visibility: GPUShaderStage.COMPUTE, buffer: { type: writes ? "storage" : "read-only-storage" },
      }));
      entries.push({ binding: 15, visibility: GPUShaderStage.COMPUTE, buffer: { type: "uniform" } });
      const layout = this.device.createBindGroupLayout({ entries });
      const module = this.device.createShaderModule({ code: source });
      const made = this.device.createComputePipelineAsync({
        layout: this.device.createPipelineLayout({ bindGroupLayouts: [layout] }), compute: { module, entryPoint: entry },
      });
      this.pipelines.set(key, made.then((pipeline) => ({ pipeline, layout }), async (error) => {
        const notes = (await module.getCompilationInfo()).messages.map((note) => `line ${note.lineNum}: ${note.message}`);
        throw new Error(`${entry}: ${notes.join("; ") || error.message}`);
      }));
    }
    return this.pipelines.get(key);
  }

  /**
   * A tape as { replay, dispatches }. plan is JSON: sources, pipelines [[source, entry, [[binding, writes]…]]…] and dispatches
   * [[pipeline, [[binding, region, offset, size]…], uniform bytes, x, y, z]…]. progress(done, all) is called as pipelines compile.
   */
  async prepare(plan, uniforms, progress) {
    const { sources, pipelines, dispatches } = JSON.parse(plan);
    let done = 0;
    const ready = await Promise.all(pipelines.map(async ([source, entry, kinds]) => {
      const made = await this.pipeline(sources[source], entry, kinds);
      progress?.(++done, pipelines.length);
      return made;
    }));
    const uniform = this.make(Math.max(uniforms.length, UNIFORM_STRIDE_BYTES), GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST);
    if (uniforms.length) this.queue.writeBuffer(uniform, 0, uniforms);
    this.device.pushErrorScope("validation");
    const calls = dispatches.map(([pipeline, bindings, size, x, y, z], number) => {
      const entries = bindings.map(([binding, region, offset, bytes]) => ({ binding, resource: { buffer: this.buffers.get(region), offset, size: bytes } }));
      entries.push({ binding: 15, resource: { buffer: uniform, offset: number * UNIFORM_STRIDE_BYTES, size } });
      return [ready[pipeline].pipeline, this.device.createBindGroup({ layout: ready[pipeline].layout, entries }), x, y, z];
    });
    const error = await this.device.popErrorScope();
    if (error) this.fail(error.message);
    await this.settle();
    return { replay: () => this.replay(calls), release: () => uniform.destroy(), dispatches: calls.length };
  }

  replay(calls) {
    if (this.failed) throw new Error(this.failed);
    this.device.pushErrorScope("validation");
    const idle = this.ahead === 0;
    const began = performance.now();
    const size = Math.ceil(calls.length / this.parts);
    for (let first = 0; first < calls.length; first += size) {
      const encoder = this.device.createCommandEncoder();
      const pass = encoder.beginComputePass();
      let last = null;
      for (const [pipeline, group, x, y, z] of first || size < calls.length ? calls.slice(first, first + size) : calls) {
        if (pipeline !== last) pass.setPipeline((last = pipeline));
        pass.setBindGroup(0, group);
        pass.dispatchWorkgroups(x, y, z);
      }
      pass.end();
      this.queue.submit([encoder.finish()]);
    }
    this.scopes.push(this.device.popErrorScope().then((error) => error && this.fail(error.message)));
    this.ahead += 1;
    this.done = this.queue.onSubmittedWorkDone().then(() => {
      this.ahead -= 1;
      if (idle) this.parts = Math.max(this.parts, Math.min(16, Math.ceil((performance.now() - began) / SUBMIT_MS)));
    }, () => {});
  }

  /** Whether so much is under way that the caller should await idle(). */
  get full() {
    return this.ahead >= MOST_AHEAD;
  }

  /** Until the GPU has done what was submitted. */
  async idle() {
    await this.done;
    await this.settle();
  }

  ring(index, offset, bytes, every) {
    return new Ring(this, index, offset, bytes, every);
  }

  close() {
    for (const buffer of this.buffers.values()) buffer.destroy();
    this.buffers.clear();
    this.pipelines.clear();
    this.device.destroy();
  }
}

/** Numbers of each step on their way to the host: see MetricRing in webgpu_ring.py. */
class Ring {
  constructor(engine, index, offset, bytes, every) {
    Object.assign(this, { engine, index, offset, bytes, every, rows: 0, free: [], flying: [], arrived: [] });
    this.history = engine.make(bytes * every, GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST);
  }

  push() {
    const { engine } = this;
    const encoder = engine.device.createCommandEncoder();
    encoder.copyBufferToBuffer(engine.buffers.get(this.index), this.offset, this.history, this.rows * this.bytes, this.bytes);
    this.rows += 1;
    const staging = this.rows === this.every ? this.take(encoder) : null;
    engine.queue.submit([encoder.finish()]);
    if (staging) this.send(staging);
  }

  take(encoder) {
    const size = this.bytes * this.every;
    const staging = this.free.pop() ?? this.engine.make(size, GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST);
    encoder.copyBufferToBuffer(this.history, 0, staging, 0, this.rows * this.bytes);
    return staging;
  }

  send(staging) {
    const used = this.rows * this.bytes;
    this.rows = 0;
    const before = this.flying.at(-1);
    const landed = staging.mapAsync(GPUMapMode.READ, 0, used).then(async () => {
      await before; // rows stay in order
      await this.engine.settle(); // never a number after an error
      this.arrived.push(new Uint8Array(staging.getMappedRange(0, used)).slice());
      staging.unmap();
      this.free.push(staging);
      this.flying.splice(this.flying.indexOf(landed), 1);
    }).catch((error) => this.engine.fail(error.message));
    this.flying.push(landed);
  }

  /** Rows that have arrived, in one Uint8Array (empty when none). */
  poll() {
    if (this.engine.failed) throw new Error(this.engine.failed);
    const parts = this.arrived.splice(0);
    const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
    let at = 0;
    for (const part of parts) {
      whole.set(part, at);
      at += part.length;
    }
    return whole;
  }

  /** All rows pushed and not yet given. */
  async drain() {
    if (this.rows) {
      const encoder = this.engine.device.createCommandEncoder();
      const staging = this.take(encoder);
      this.engine.queue.submit([encoder.finish()]);
      this.send(staging);
    }
    await Promise.all(this.flying);
    await this.engine.settle();
    return this.poll();
  }
}
