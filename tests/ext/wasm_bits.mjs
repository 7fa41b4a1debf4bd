// Replays calls written by tests/ext/tapes.py on the WebAssembly engine and gives one SHA-256 of the arena a call, or
// "refused: ..." where the engine refuses. Under Node, for test_wasm_bits.py:
//
//   node wasm_bits.mjs ENGINE_FOLDER CALLS BUILD THREADS HOLE_BYTES
//
// prints them. In a page's worker, for e2e/test_memory64.py, `replayed` gives them. CALLS is a file of blocks: u32 image bytes,
// record (256 bytes), image; little-endian. Before the engine takes anything, HOLE_BYTES of its memory are set aside, so that
// all it has lies above them: they are never touched, and cost nothing.
const ARENA = 4;
const ROOM_BYTES = 128 << 20;
const PAGE = 65536;

/** A memory for the build: as static/wasm.mjs makes it. */
function memoryOf(bytes, shared, wide) {
  const pages = Math.ceil(bytes / PAGE);
  const size = wide ? BigInt(pages) : pages;
  return new WebAssembly.Memory({ initial: size, maximum: size, shared, ...(wide ? { address: 'i64' } : {}) });
}

export async function replayed({ folder, build, threads, hole, blocks, sha256 }) {
  const wide = build.endsWith('64');
  const give = wide ? BigInt : (pointer) => pointer;
  const take = wide ? Number : (pointer) => pointer >>> 0;
  const memory = memoryOf(hole + ROOM_BYTES, build !== 'engine-single', wide);
  const { default: create } = await import(`${folder}/${build}.mjs`);
  const module = await create({ wasmMemory: memory, poolThreads: threads - 1 });
  if (hole && !module._malloc(hole)) throw new Error('no memory for the hole');
  const engine = module._ptl_open(threads);
  const text = (pointer) => module.UTF8ToString(take(pointer));
  if (text(module._ptl_isa()) !== 'wasm simd128' || module._ptl_threads(engine) !== threads) throw new Error('another engine');
  if (take(engine) < hole) throw new Error('the engine lies below the hole');

  const said = [];
  const view = new DataView(blocks.buffer, blocks.byteOffset, blocks.byteLength);
  const tape = take(module._malloc(256));
  for (let at = 0; at < blocks.length; ) {
    const bytes = view.getUint32(at, true);
    const record = blocks.subarray(at + 4, at + 260);
    const image = blocks.subarray(at + 260, at + 260 + bytes);
    at += 260 + bytes;
    if (module._ptl_allocate(engine, ARENA, BigInt(bytes))) throw new Error(text(module._ptl_error(engine)));
    const start = take(module._ptl_region(engine, ARENA));
    new Uint8Array(memory.buffer, tape, 256).set(record);
    new Uint8Array(memory.buffer, start, bytes).set(image);
    if (module._ptl_replay(engine, give(tape), 1n)) said.push(`refused: ${text(module._ptl_error(engine))}`);
    else said.push(await sha256(new Uint8Array(memory.buffer, start, bytes).slice()));
  }
  return said;
}

if (globalThis.process?.versions?.node) {
  const [{ createHash }, { readFileSync }, { pathToFileURL }] = await Promise.all(['node:crypto', 'node:fs', 'node:url'].map((name) => import(name)));
  const [folder, file, build, threads, hole] = process.argv.slice(2);
  const sha256 = (bytes) => createHash('sha256').update(bytes).digest('hex');
  const where = { folder: pathToFileURL(folder).href, build, threads: Number(threads), hole: Number(hole) };
  for (const line of await replayed({ ...where, blocks: readFileSync(file), sha256 })) console.log(line);
  process.exit(0);
}
