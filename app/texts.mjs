// The texts that runs were trained on, kept under their hashes, so that runs can go on another day. Several tabs keep and delete them: each holds
// a lock with the name of every text it has kept for as long as it lives, since what it trains may not be saved, and so not be seen, yet.
const FOLDER = 'posttrainllm-texts';
const LOCK = 'posttrainllm-text-';
const held = new Map(); // sha256 -> what lets its lock go

const texts = async (create) => (await navigator.storage.getDirectory()).getDirectoryHandle(FOLDER, { create });

/** Do something while no other tab does; `mode` "shared": while none sweeps. */
const alone = (mode, what) => (navigator.locks ? navigator.locks.request(FOLDER, { mode }, what) : what());

function hold(sha256) {
  if (held.has(sha256) || !navigator.locks) return undefined;
  return new Promise((granted) => {
    navigator.locks.request(LOCK + sha256, { mode: 'shared' }, () => {
      granted();
      return new Promise((release) => held.set(sha256, release));
    });
  });
}

export const keepText = (sha256, bytes) => alone('shared', async () => {
  await hold(sha256);
  const file = await (await texts(true)).getFileHandle(sha256, { create: true });
  const handle = await file.createSyncAccessHandle();
  try {
    if (handle.getSize() !== bytes.byteLength) {
      handle.truncate(0);
      if (handle.write(bytes, { at: 0 }) !== bytes.byteLength) { handle.truncate(0); throw new Error('quota'); }
      handle.flush();
    }
  } finally { handle.close(); }
});

export async function keptText(sha256) {
  try {
    const file = await (await (await texts(false)).getFileHandle(sha256)).getFile();
    return new Uint8Array(await file.arrayBuffer());
  } catch { return undefined; }
}

/** Delete the kept texts that no run needs any more, here or in another tab; `wanted` is a JSON list of hashes. */
export const sweepTexts = (wanted) => alone('exclusive', async () => {
  try {
    const keep = new Set(JSON.parse(wanted));
    for (const [sha256, release] of held) if (!keep.has(sha256)) { held.delete(sha256); release(); }
    await new Promise((resolve) => setTimeout(resolve)); // a lock let go is out of the list a turn later
    const inUse = navigator.locks ? (await navigator.locks.query()).held : [];
    const own = new Set([...held.keys()].map((sha256) => LOCK + sha256));
    for (const { name } of inUse) if (name.startsWith(LOCK) && !own.has(name)) keep.add(name.slice(LOCK.length));
    const folder = await texts(false);
    for await (const name of folder.keys()) if (!keep.has(name)) await folder.removeEntry(name);
  } catch { /* none were ever kept */ }
});

export async function textsBytes() {
  let total = 0;
  try {
    for await (const entry of (await texts(false)).values()) total += (await entry.getFile()).size;
  } catch { /* none were ever kept */ }
  return total;
}
