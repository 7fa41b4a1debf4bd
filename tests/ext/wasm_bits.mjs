// node wasm_bits.mjs ENGINE_FOLDER CALLS THREADS: replays calls written by test_wasm_bits.py on the WebAssembly engine and
// prints one SHA-256 of the arena a call; "refused: ..." where the engine refuses. THREADS 1 takes the single-thread build.
//
// CALLS is a file of blocks: u32 image bytes, record (256 bytes), image; little-endian.
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';

const [folder, file, count] = process.argv.slice(2);
const threads = Number(count);
const name = threads > 1 ? 'engine-threads' : 'engine-single';
const { default: create } = await import(pathToFileURL(`${folder}/${name}.mjs`).href);
const pages = 2048;
const memory = new WebAssembly.Memory({ initial: pages, maximum: pages, shared: threads > 1 });
const module = await create({ wasmMemory: memory, poolThreads: threads - 1 });
const engine = module._ptl_open(threads);
if (module.UTF8ToString(module._ptl_isa()) !== 'wasm simd128' || module._ptl_threads(engine) !== threads) throw new Error('another engine');

const blocks = readFileSync(file);
const tape = module._malloc(256) >>> 0;
const ARENA = 4;
for (let at = 0; at < blocks.length; ) {
  const bytes = blocks.readUInt32LE(at);
  const record = blocks.subarray(at + 4, at + 260);
  const image = blocks.subarray(at + 260, at + 260 + bytes);
  at += 260 + bytes;
  if (module._ptl_allocate(engine, ARENA, BigInt(bytes))) throw new Error(module.UTF8ToString(module._ptl_error(engine)));
  const start = module._ptl_region(engine, ARENA) >>> 0;
  new Uint8Array(memory.buffer, tape, 256).set(record);
  new Uint8Array(memory.buffer, start, bytes).set(image);
  if (module._ptl_replay(engine, tape, 1n)) console.log(`refused: ${module.UTF8ToString(module._ptl_error(engine))}`);
  else console.log(createHash('sha256').update(new Uint8Array(memory.buffer).slice(start, start + bytes)).digest('hex'));
}
process.exit(0);
