// Loads the C++ engine into this worker: one module instance with a memory whose size never changes.
// Everything the tape needs stays in that memory; Python gets Uint8Array views of regions and calls `replay`.
import { Bpe } from './bpe.mjs';

const PAGE = 65536;
const MAX_PAGES = 64512; // 4032 MiB: at exactly 4 GiB browsers hang or wrap sizes to 0
const MIN_PAGES = 512; // what the module asks for at link time, with room
const START_SECONDS = 10;

/** The memory for `bytes`, or null where the browser refuses it. */
function reserve(bytes, shared) {
  const pages = Math.max(MIN_PAGES, Math.ceil(bytes / PAGE));
  if (pages > MAX_PAGES) return null;
  try { return new WebAssembly.Memory({ initial: pages, maximum: pages, shared }); } catch { return null; }
}

function within(promise, seconds) {
  let timer;
  const late = new Promise((_, reject) => { timer = setTimeout(() => reject(new Error(`no answer within ${seconds} s`)), seconds * 1000); });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/**
 * Open the engine: {base, bytes, threads}. With more than one thread the page must be isolated.
 * Returns an Engine, or throws Error('memory' | a reason).
 */
export async function openEngine({ base, bytes, threads }) {
  const threaded = threads > 1 && globalThis.crossOriginIsolated === true;
  const name = threaded ? 'engine-threads' : 'engine-single';
  const memory = reserve(bytes, threaded);
  if (!memory) throw new Error('memory');
  const { default: create } = await import(new URL(`engine/${name}.mjs`, base).href);
  const options = { wasmMemory: memory, poolThreads: threads - 1, locateFile: (file) => new URL(`engine/${file}`, base).href };
  const module = await within(create(options), START_SECONDS);
  return new Engine(module, memory, threaded ? threads : 1);
}

export class Engine {
  #module;
  #memory;
  #pointer;
  #buffers = [];

  constructor(module, memory, threads) {
    this.#module = module;
    this.#memory = memory;
    this.#pointer = module._ptl_open(threads);
    if (!this.#pointer) throw new Error('memory');
    this.threads = threads;
    this.isa = module.UTF8ToString(module._ptl_isa());
    this.bytes = memory.buffer.byteLength;
    // Bound once: a call from Python through a property costs three times as much.
    this.replay = (tape, records) => module._ptl_replay(this.#pointer, tape, records);
  }

  kernelNames() {
    const names = [];
    for (let id = 0; id < this.#module._ptl_kernel_count(); id++) names.push(this.#module.UTF8ToString(this.#module._ptl_kernel_name(id)));
    return names;
  }

  error() { return this.#module.UTF8ToString(this.#module._ptl_error(this.#pointer)); }

  /** True when the region now has `bytes` zero bytes; false when the memory is too small. */
  allocate(region, bytes) { return this.#module._ptl_allocate(this.#pointer, region, BigInt(bytes)) === 0; }

  /** A view of a region. The memory never grows, so it stays valid until the region is allocated anew. */
  view(region, bytes) {
    const start = this.#module._ptl_region(this.#pointer, region) >>> 0;
    return new Uint8Array(this.#memory.buffer, start, bytes);
  }

  /** Copy a tape into the engine's memory and check it; returns its address, or 0 (see error()). */
  load(tape) {
    const start = this.#module._malloc(tape.byteLength) >>> 0;
    if (!start) return 0;
    new Uint8Array(this.#memory.buffer, start, tape.byteLength).set(tape);
    if (this.#module._ptl_check(this.#pointer, start, BigInt(tape.byteLength / 256)) !== 0) {
      this.#module._free(start);
      return 0;
    }
    this.#buffers.push(start);
    return start;
  }

  /** GFLOP/s of multiply-adds in registers on one thread: the roof that a bench compares with. */
  benchPeak(seconds) { return this.#module._ptl_bench_peak(this.#pointer, seconds); }

  /** Best seconds of C[m,n] = A·B; layout 0 NN, 1 NT, 2 TN. */
  benchGemm(layout, m, n, k, repeats) {
    return this.#module._ptl_bench_gemm(this.#pointer, layout, BigInt(m), BigInt(n), BigInt(k), repeats);
  }

  /** The tokenizer in this engine's memory, or null where that is full. `runs` are the classes of characters (ext/bpe.h). */
  openBpe(runs) { return Bpe.open(this.#module, this.#memory, runs); }

  close() {
    if (!this.#module) return;
    for (const start of this.#buffers) this.#module._free(start);
    this.#module._ptl_close(this.#pointer);
    this.#module.PThread?.terminateRuntime(); // terminateAllThreads would leave a pending Atomics.waitAsync that keeps the whole memory
    this.#module = this.#memory = null;
  }
}
