// Loads the C++ engine into this worker: one module instance with a memory whose size never changes.
// Everything the tape needs stays in that memory; Python gets Uint8Array views of regions and calls `replay`.
//
// There are builds with addresses of 32 bits and one of 64 (Memory64), the same source and the same bits. Emscripten's own
// functions take and give numbers in both; ours take BigInts for pointers in the second, and give negative numbers from
// 2 GiB on in the first. `Abi` turns both into numbers, which are exact up to 2^53.
import { Bpe } from './bpe.mjs';

const PAGE = 65536;
const MIN_PAGES = 512; // what the module asks for at link time, with room
const START_SECONDS = 10;
const MIB = 1 << 20;
/** Most bytes of one memory. Narrow: at exactly 4 GiB browsers hang or wrap sizes to 0. Wide: what Chromium gives at most. */
export const NARROW_BYTES = 4032 * MIB;
export const WIDE_BYTES = 16384 * MIB;

/**
 * The engine with 64-bit addresses that was closed last: the next one that needs as much goes on in its memory. A browser takes memory
 * back when it collects garbage, which may be after the next model has its own: twice some gigabytes. A memory that is much
 * too large is let go all the same: both are there for a while, but a model never keeps more than was foreseen for it.
 */
let parked = null;
const MOST_BESIDE = 1.05; // of what is asked for: as near as a plan is held to

const NARROW = { give: (pointer) => pointer, take: (pointer) => pointer >>> 0 };
const WIDE = { give: BigInt, take: Number };

/** Whether this browser has memories with 64-bit addresses: a module that declares one. */
export function hasMemory64() {
  return WebAssembly.validate(new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0, 5, 3, 1, 4, 1]));
}

/** The memory for `bytes`; throws where the browser refuses it. */
export function reserve(bytes, shared, wide) {
  const pages = Math.max(MIN_PAGES, Math.ceil(bytes / PAGE));
  const size = wide ? BigInt(pages) : pages;
  try {
    if (bytes > (wide ? WIDE_BYTES : NARROW_BYTES)) throw new RangeError('beyond the most');
    return new WebAssembly.Memory({ initial: size, maximum: size, shared, ...(wide ? { address: 'i64' } : {}) });
  } catch (error) { throw new Error(`memory: ${error.message}`, { cause: error }); }
}

/** About the most bytes that the browser gives below `bytes`, which it refused; 0 where it gives next to nothing. */
export function mostBytes(bytes, shared, wide) {
  for (let part = bytes * 7 / 8; part >= 64 * MIB; part *= 7 / 8) {
    try { return reserve(part, shared, wide && part > NARROW_BYTES).buffer.byteLength; } catch { /* less, then */ }
  }
  return 0;
}

function within(promise, seconds) {
  let timer;
  const late = new Promise((_, reject) => { timer = setTimeout(() => reject(new Error(`no answer within ${seconds} s`)), seconds * 1000); });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/**
 * Open the engine: {base, bytes, threads, wide}. With more than one thread, and for 64-bit addresses (wide), the page must be
 * isolated. Returns an Engine, or throws Error('memory: …' | a reason).
 */
export async function openEngine({ base, bytes, threads, wide = false }) {
  const isolated = globalThis.crossOriginIsolated === true;
  const threaded = isolated && (threads > 1 || wide);
  if (wide && !threaded) throw new Error('the engine with 64-bit addresses needs an isolated page');
  if (wide || threads > 1) { // one thread and few bytes are a tokenizer's, before the model comes
    const again = await unparked(bytes, threads, wide);
    if (again) return again;
  }
  const name = wide ? 'engine-threads64' : threaded ? 'engine-threads' : 'engine-single';
  const memory = reserve(bytes, threaded, wide);
  const { default: create } = await import(new URL(`engine/${name}.mjs`, base).href);
  const options = { wasmMemory: memory, poolThreads: threads - 1, locateFile: (file) => new URL(`engine/${file}`, base).href };
  const module = await within(create(options), START_SECONDS);
  return new Engine(module, memory, threaded ? threads : 1, wide);
}

/** An engine in the memory of the last one, where that suits; else null, with nothing left that refers to that memory. */
async function unparked(bytes, threads, wide) {
  const spare = parked;
  parked = null;
  if (!spare) return null;
  const held = spare.memory.buffer.byteLength;
  const suits = wide && spare.threads === threads && held >= bytes && held <= MOST_BESIDE * Math.max(bytes, MIN_PAGES * PAGE);
  if (suits && await rested(spare.module, threads - 1)) return new Engine(spare.module, spare.memory, threads, true);
  end(spare.module);
  return null;
}

/** Whether the workers of threads that were joined are back in the module's pool, which they tell by a message. */
async function rested(module, workers) {
  const late = performance.now() + 1000 * START_SECONDS;
  while (module.PThread.unusedWorkers.length < workers && performance.now() < late) await new Promise((resolve) => setTimeout(resolve, 5));
  return module.PThread.unusedWorkers.length >= workers;
}

function end(module) {
  module.PThread?.terminateRuntime(); // terminateAllThreads would leave a pending Atomics.waitAsync that keeps the whole memory
}

export class Engine {
  #module;
  #memory;
  #pointer;
  #abi;
  #starts = []; // where each region begins
  #buffers = [];
  #sound = true; // no call of it ended in a trap

  constructor(module, memory, threads, wide = false) {
    this.#module = module;
    this.#memory = memory;
    this.#abi = wide ? WIDE : NARROW;
    this.#pointer = module._ptl_open(threads);
    if (!this.#pointer) throw new Error('memory: it is too small for the engine');
    this.threads = threads;
    this.wide = wide;
    this.isa = this.#text(module._ptl_isa());
    this.bytes = memory.buffer.byteLength;
    const { give } = this.#abi;
    // Bound once: a call from Python through a property costs three times as much.
    this.replay = (tape, records) => {
      try { return this.#module._ptl_replay(this.#pointer, give(tape), records); } catch (error) { this.#sound = false; throw error; }
    };
  }

  #text(pointer) { return this.#module.UTF8ToString(this.#abi.take(pointer)); }

  kernelNames() {
    const names = [];
    for (let id = 0; id < this.#module._ptl_kernel_count(); id++) names.push(this.#text(this.#module._ptl_kernel_name(id)));
    return names;
  }

  error() { return this.#text(this.#module._ptl_error(this.#pointer)); }

  /** True when the region now has `bytes` zero bytes; false when the memory is too small. */
  allocate(region, bytes) {
    const refused = this.#module._ptl_allocate(this.#pointer, region, BigInt(bytes)) !== 0;
    this.#starts[region] = this.#abi.take(this.#module._ptl_region(this.#pointer, region));
    return !refused;
  }

  /** The same for a region that has `kept` bytes, which stay; false, with the region as it was, when the memory is too small. */
  grow(region, bytes, kept) {
    const before = this.view(region, 0, kept).slice();
    const grown = this.allocate(region, bytes);
    if (!grown && !this.allocate(region, kept)) return false; // its old place is free, and fits it
    this.view(region, 0, kept).set(before);
    return grown;
  }

  /** A view of `bytes` of a region. The memory never grows, so it stays valid until the region is allocated anew. */
  view(region, offset, bytes) { return new Uint8Array(this.#memory.buffer, this.#starts[region] + offset, bytes); }

  /** Copy a tape into the engine's memory and check it; returns its address, or 0 (see error()). */
  load(tape) {
    const start = this.#abi.take(this.#module._malloc(tape.byteLength));
    if (!start) return 0;
    new Uint8Array(this.#memory.buffer, start, tape.byteLength).set(tape);
    if (this.#module._ptl_check(this.#pointer, this.#abi.give(start), BigInt(tape.byteLength / 256)) !== 0) {
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
  openBpe(runs) { return Bpe.open(this.#module, this.#memory, runs, this.#abi); }

  close() {
    if (!this.#module) return;
    for (const start of this.#buffers) this.#module._free(start);
    this.#module._ptl_close(this.#pointer);
    if (this.wide && this.#sound && !parked) parked = { module: this.#module, memory: this.#memory, threads: this.threads };
    else end(this.#module);
    this.#module = this.#memory = null;
  }
}
