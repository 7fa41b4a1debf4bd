// The byte-level BPE tokenizer of the C++ engine (ext/bpe.h). Texts and tables go in as Uint8Array, counts come back as numbers
// (negative: -1 no memory, -2 an argument outside its range), and result() holds the int32 that a call left, as bytes.

const MEMORY = -1;

export class Bpe {
  #module;
  #memory;
  #pointer;
  #abi; // pointers as this build takes and gives them (wasm.mjs)
  #left = 0; // int32 in the engine's result

  /** A tokenizer with no table yet; null where memory is full or the runs are not those of all code points. */
  static open(module, memory, runs, abi) {
    const pointer = lend(module, memory, abi, runs, (at) => abi.take(module._ptl_bpe_open(at, BigInt(runs.byteLength / 4))));
    return pointer > 0 ? new Bpe(module, memory, abi, abi.give(pointer)) : null;
  }

  constructor(module, memory, abi, pointer) {
    this.#abi = abi;
    this.#module = module;
    this.#memory = memory;
    this.#pointer = pointer;
  }

  load(table) { return this.#give(table, this.#module._ptl_bpe_load, 4, 0); }
  encode(text) { return this.#give(text, this.#module._ptl_bpe_encode, 1, 1); }
  split(text) { return this.#give(text, this.#module._ptl_bpe_split, 1, 1); }
  count(text) { return this.#give(text, this.#module._ptl_bpe_count, 1, 0); }

  train(tokens, minimum) {
    const merges = Number(this.#module._ptl_bpe_train(this.#pointer, BigInt(tokens), BigInt(minimum)));
    this.#left = 3 * Math.max(0, merges);
    return merges;
  }

  /** The last encode's, split's or train's int32, copied. */
  result() {
    const start = this.#abi.take(this.#module._ptl_bpe_result(this.#pointer));
    return new Uint8Array(this.#memory.buffer, start, 4 * this.#left).slice();
  }

  close() {
    this.#module._ptl_bpe_close(this.#pointer);
    this.#pointer = 0;
  }

  #give(bytes, call, size, each) {
    const count = lend(this.#module, this.#memory, this.#abi, bytes, (at) => Number(call(this.#pointer, at, BigInt(bytes.byteLength / size))));
    this.#left = each * Math.max(0, count);
    return count;
  }
}

/** What `use` gives for a copy of `bytes` in the engine's memory. */
function lend(module, memory, abi, bytes, use) {
  const start = abi.take(module._malloc(Math.max(1, bytes.byteLength)));
  if (!start) return MEMORY;
  new Uint8Array(memory.buffer, start, bytes.byteLength).set(bytes);
  try { return use(abi.give(start)); } finally { module._free(start); }
}
