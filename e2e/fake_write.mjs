// The writing half of the fake trainer (see fake_worker.mjs, which e2e/conftest.py puts before this): tokenizers, and texts with
// probabilities, rules and drafts. Gates: write (what comes after the first hundred letters), learn (the end of learning), check.
const BYTES = { name: 'bytes', vocabulary: 256, sha256: '' };
const BPE = { name: 'bpe', vocabulary: 1024, sha256: 'abc', source: 'Shakespeare', seconds: 0.8, learned: true, merges: 768, specials: [], tokens: 400_000, train_tokens: 360_000,
  validation_tokens: 40_000, bytes_per_token: 2.5 };
let tokenizer = BYTES;
const words = (text) => text.match(/\s?\S+|\s+/g) ?? [];
const numberOf = (word) => 256 + [...word].reduce((sum, letter) => (sum * 31 + letter.codePointAt(0)) % 768, 7);
const bytesOf = (text) => new TextEncoder().encode(text);

function piecesOf(text) {
  let begin = 0;
  const parts = tokenizer === BYTES ? [...bytesOf(text)].map((byte) => [byte, byte < 128 ? String.fromCharCode(byte) : `\\x${byte.toString(16)}`, 1])
    : words(text).map((word) => [numberOf(word), word, bytesOf(word).length]);
  return parts.map(([id, shown, size]) => ({ id, text: shown, begin, end: begin += size, special: false }));
}

const tellTokens = (request) => post({ kind: 'tokens', reply_to: request?.id ?? null, ...tokenizer });

async function learn(request) {
  if (scenario.fail.tokens) { failed(request, scenario.fail.tokens); return; }
  post({ kind: 'learning', done_bytes: 400_000, total_bytes: 1_000_000 });
  await passed('learn');
  post({ kind: 'learning', done_bytes: 1_000_000, total_bytes: 1_000_000 });
  await passed('join');
  tokenizer = { ...BPE, vocabulary: request.vocabulary ?? 1024, merges: (request.vocabulary ?? 1024) - 256 };
  tellTokens(request);
}

const mergeRow = (rank) => ({ rank, left: ['t', ' ', 'e'][rank % 3], right: ['h', 'a', '\n'][rank % 3], text: ['th', ' a', 'e\n'][rank % 3] + rank, id: 256 + rank, count: 5000 - rank });

/** What the model "held likely" where it wrote a letter: made up, always the same. */
function told(text) {
  const top = [[97, text, -0.5], ...Array.from({ length: 9 }, (_, i) => [98 + i, ['e', ' ', '\n', 'q'][i % 4], -1.6 - i])];
  return { text, token: 97, shown: text, logprob_nats: -0.5, rank: 0, top };
}

/** é is two tokens: nothing can be read after the first. */
const toldOf = (text) => [...text].flatMap((letter) => (letter === 'é' ? [{ ...told(''), token: 0xc3, shown: '\\xc3', logprob_nats: -6, rank: 41 }, { ...told('é'), token: 0xa9, shown: '\\xa9' }]
  : [{ ...told(letter), logprob_nats: letter === 'h' ? -3 : -0.5 }]));

Object.assign(handlers, {
  'tokens.use'(request) {
    if (request.name === 'bpe') { learn(request); return; }
    tokenizer = BYTES;
    tellTokens(request);
  },
  'tokens.load'(request) {
    if (scenario.fail.load_tokens) { failed(request, scenario.fail.load_tokens); return; }
    tokenizer = { ...BPE, vocabulary: 700, merges: 444, source: request.name, learned: false, sha256: 'def' };
    tellTokens(request);
  },
  'tokens.save'(request) {
    const { buffer } = bytesOf('{"model": {}}');
    post({ kind: 'exported', reply_to: request.id, name: 'tokenizer.json', bytes: buffer.byteLength, buffer }, [buffer]);
  },
  'tokens.split'(request) {
    const tokens = piecesOf(request.text);
    const bytes = bytesOf(request.text).length;
    post({ kind: 'split', reply_to: request.id, of: request.of, tokens: tokens.slice(0, 2000), count: tokens.length, bytes, bytes_per_token: bytes / Math.max(1, tokens.length), distinct: 1 });
  },
  'tokens.merges'(request) {
    const all = tokenizer === BYTES ? [] : Array.from({ length: tokenizer.merges }, (_, rank) => mergeRow(rank));
    const found = all.filter((row) => row.text.includes(request.search));
    post({ kind: 'merges', reply_to: request.id, of: request.of, rows: found.slice(request.first, request.first + 100), first: request.first, found: found.length, total: all.length, search: request.search });
  },
  async 'write.check'(request) {
    await passed('check');
    if (scenario.fail.rule) { failed(request, scenario.fail.rule); return; }
    post({ kind: 'checked', reply_to: request.id, shortest_tokens: 12 });
  },
  async 'write.start'(request) {
    if (!run) { failed(request, 'There is no model to write with.'); return; }
    if (scenario.fail.write) { failed(request, scenario.fail.write); return; }
    writing = request;
    const began = performance.now();
    const text = ` héllo ${SAMPLE}`.repeat(60).slice(0, request.tokens);
    const context = scenario.context ?? 128;
    const prompt = bytesOf(request.prompt).length;
    const forgotten = (count) => Math.ceil(Math.max(0, prompt + count - context) / (context / 4)) * (context / 4);
    const speculation = (count) => (request.draft ? { speculation: { proposed: count * 2, accepted: Math.floor(count * 1.5), passes: Math.ceil(count / 2.5), tokens: count,
      acceptance: 0.75, tokens_per_pass: 2.5, tokens_per_second: 1280, plain_tokens_per_second: 640, speed_up: 2 } } : {});
    post({ kind: 'writing', reply_to: request.id, prompt_tokens: prompt, context, forgotten: forgotten(0), unit: scenario.unit ?? 'byte' });
    let sent = 0;
    for (; sent < text.length && writing; sent += 2) {
      await wait(3);
      while (sent >= 100 && shut.has('write') && writing) await wait(5);
      if (!writing) break;
      const part = text.slice(sent, sent + 2);
      const last = scenario.held && sent + 2 >= text.length; // what was held back comes without a token of its own
      post({ kind: 'token', text: part, tokens: sent + 2, tokens_per_second: 640, forgotten: forgotten(sent), ...speculation(sent + 2), ...(request.choices && scenario.tells !== false ? { choices: last ? [{ ...told(''), text: '' }, { text: part }] : toldOf(part) } : {}) });
    }
    post({ kind: 'wrote', reply_to: request.id, tokens: sent, tokens_per_second: (sent * 1000) / (performance.now() - began), first_token_seconds: 0.012, forgotten: forgotten(sent),
      ...speculation(sent), reason: writing ? (request.constraint ? 'complete' : 'length') : 'stopped' });
    writing = null;
  },
  'write.stop'() { writing = null; },
});
