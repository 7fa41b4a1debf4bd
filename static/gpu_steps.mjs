// What static/gpu.mjs has done by the block or by the clock: training steps, several a submit; and times of tapes.

export const SUBMIT_MS = 100; // a submit is kept shorter than this: drivers end longer ones, and a screen waits for them
const TOGETHER_MS = 2;
const BLOCK_ROWS = 64; // rows that the buffer for inputs and those for metrics have at least: how much is held is known before
const FIRST_PARTS = 8; // submits of a step while nobody knows how long it takes

/** Bytes one after the other. */
export function concatenated(parts) {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

/**
 * Blocks of training steps (see Machine.steps in base.py): a row of inputs is copied to its places before each step, the metrics
 * after it to a buffer that is mapped when the block is done. So nothing waits for the host between steps, and a browser that
 * looks at finished work every 100 ms only delays numbers.
 */
export class Steps {
  constructor(engine, parts, rowBytes, index, offset, bytes) {
    Object.assign(this, { engine, parts, rowBytes, index, offset, bytes, flying: [], arrived: [], landedAt: 0, began: 0, counted: 0, spentMs: 0 });
  }

  get underWay() {
    return this.flying.length;
  }

  get stepMs() {
    return this.engine.stepMs;
  }

  /** Sends `count` rows, the bytes of `image`, through `calls` (a prepared tape's). */
  push(calls, image, count) {
    const { engine, bytes, rowBytes } = this;
    const { device, queue, buffers, stepMs } = engine;
    const parts = stepMs ? Math.max(1, Math.ceil(stepMs / SUBMIT_MS)) : FIRST_PARTS;
    const bundle = stepMs ? Math.max(1, Math.floor(SUBMIT_MS / stepMs)) : 1;
    const sent = performance.now();
    let staging;
    engine.guarded(() => {
      staging = engine.mappable(Math.max(BLOCK_ROWS, count) * bytes);
      let feed = buffers.get("feed"); // one for all Steps of a model: it goes when the model goes
      if (!feed || feed.size < image.length) {
        if (feed) engine.free(feed);
        feed = engine.make(Math.max(image.length, BLOCK_ROWS * rowBytes), GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST);
        buffers.set("feed", feed);
      }
      queue.writeBuffer(feed, 0, image);
      let encoder = device.createCommandEncoder();
      for (let row = 0; row < count; row += 1) {
        for (const [start, index, offset, size] of this.parts) encoder.copyBufferToBuffer(feed, row * rowBytes + start, buffers.get(index), offset, size);
        encoder = engine.encode(encoder, calls, parts);
        encoder.copyBufferToBuffer(buffers.get(this.index), this.offset, staging, row * bytes, bytes);
        if ((row + 1) % bundle === 0 || row + 1 === count) {
          queue.submit([encoder.finish()]);
          encoder = device.createCommandEncoder();
        }
      }
    });
    this.spentMs += performance.now() - sent;
    const before = this.flying.at(-1);
    const landed = staging.mapAsync(GPUMapMode.READ, 0, count * bytes).then(async () => {
      await before; // rows stay in order
      await engine.settle(); // never a number after an error
      this.arrived.push(new Uint8Array(staging.getMappedRange(0, count * bytes)).slice());
      staging.unmap();
      engine.idleStaging.push(staging);
      this.pace(sent, count);
    }).catch((error) => engine.refused(error)).finally(() => this.flying.splice(this.flying.indexOf(landed), 1));
    this.flying.push(landed);
  }

  /** A block is back: how long a step took. Blocks that are noticed together are counted together. */
  pace(sent, count) {
    const now = performance.now();
    if (now - this.landedAt > TOGETHER_MS) [this.began, this.counted] = [Math.max(sent, this.landedAt), 0];
    this.counted += count;
    this.engine.stepMs = (now - this.began) / this.counted;
    this.landedAt = now;
  }

  /** Until the oldest block is back. */
  async landed() {
    await this.flying[0];
    if (this.engine.failed) throw new Error(this.engine.failed);
  }

  /** Rows that are back, in one Uint8Array (empty when none). */
  poll() {
    if (this.engine.failed) throw new Error(this.engine.failed);
    return concatenated(this.arrived.splice(0));
  }
}

/**
 * Milliseconds of one run of each of these lists of calls, over `repeats` in a row, by the GPU's own clock. Needs timestamp-query;
 * a browser may round its times to 100 µs.
 */
export async function timeReplays(engine, lists, repeats) {
  const count = 2 * lists.length;
  const queries = engine.device.createQuerySet({ type: "timestamp", count });
  const resolved = engine.make(8 * count, GPUBufferUsage.QUERY_RESOLVE | GPUBufferUsage.COPY_SRC);
  const encoder = engine.device.createCommandEncoder();
  [...lists].forEach((calls, number) => {
    const pass = encoder.beginComputePass({
      timestampWrites: { querySet: queries, beginningOfPassWriteIndex: 2 * number, endOfPassWriteIndex: 2 * number + 1 },
    });
    for (let turn = 0; turn < repeats; turn += 1) {
      for (const [pipeline, group, x, y, z] of calls) {
        pass.setPipeline(pipeline);
        pass.setBindGroup(0, group);
        pass.dispatchWorkgroups(x, y, z);
      }
    }
    pass.end();
  });
  encoder.resolveQuerySet(queries, 0, count, resolved, 0);
  engine.guarded(() => engine.queue.submit([encoder.finish()]));
  engine.buffers.set("ticks", resolved);
  const ticks = new BigUint64Array((await engine.read("ticks", 0, 8 * count)).buffer);
  engine.buffers.delete("ticks");
  engine.free(resolved);
  queries.destroy();
  return JSON.stringify([...lists].map((_, i) => Number(ticks[2 * i + 1] - ticks[2 * i]) / 1e6 / repeats));
}
