// The tokenizer in the tab: the built site's engine on one thread, called as the package's Python calls it.
import { openEngine } from '/site/wasm.mjs';
import { serve } from './serve.mjs';

const bytesOf = async (url) => new Uint8Array(await (await fetch(url)).arrayBuffer());
const int32 = (values) => new Uint8Array(new Int32Array(values).buffer);

/** A tokenizer and the text's pieces, which bench/bpe.py put below `folder`. */
async function opened({ folder, pieces, table }) {
  const engine = await openEngine({ base: new URL('/site/', import.meta.url).href, bytes: 256 << 20, threads: 1 });
  const bpe = engine.openBpe(await bytesOf(`${folder}runs`));
  if (!bpe || bpe.load(int32(table)) !== 0) throw new Error('no tokenizer');
  const texts = [];
  for (let i = 0; i < pieces; i++) texts.push(await bytesOf(`${folder}piece${i}`));
  return { engine, bpe, texts };
}

serve({
  /** {folder, pieces, table, tokens, minimum} -> {ms, merges}: count and learn. */
  train: async (asked) => {
    const { engine, bpe, texts } = await opened(asked);
    const began = performance.now();
    for (const text of texts) bpe.count(text);
    bpe.train(asked.tokens, asked.minimum);
    const merges = bpe.result();
    const ms = performance.now() - began;
    engine.close();
    return { ms, merges: [...new Int32Array(merges.buffer)] };
  },
  /** {folder, pieces, table, repeats} -> {ms, tokens}: encode the pieces; ms of each repeat, the first with nothing remembered. */
  encode: async (asked) => {
    const { engine, bpe, texts } = await opened(asked);
    const ms = [];
    let tokens = 0;
    for (let i = 0; i < asked.repeats; i++) {
      const began = performance.now();
      tokens = 0;
      for (const text of texts) { bpe.encode(text); tokens += bpe.result().byteLength / 4; }
      ms.push(performance.now() - began);
    }
    engine.close();
    return { ms, tokens };
  },
});
