// The one service worker: offline, and the headers that threads need, on hosts that send none.
//
// precache.json lists every file of the site with its sha256. Files live in one cache under their digest, so a new version fetches
// only what changed and a half-finished download goes on where it stopped. Versions are lists, kept in a second cache.
//   first install   the shell only (small), so that the page is isolated soon; the rest follows on the page's `fill`
//   later installs  everything, before the new version may take over; any failure leaves the old version as it is
// The version before stays, list and files, until the next update or until the person lets it go. Which of the two is served is a note
// beside the lists: going back is one write, needs no network, and holds until a version comes that is neither (`undone`).
const SCOPE = registration.scope;
const VERSION = new URL(location.href).searchParams.get('v') ?? '';
const CONTENT = `posttrainllm files ${SCOPE}`;
const VERSIONS = `posttrainllm versions ${SCOPE}`;
const contentKey = (sha256) => `${SCOPE}__content/${sha256}`;
const versionKey = (version) => `${SCOPE}__version/${version}`;
const STATE = `${SCOPE}__state`; // {serving, previous, undone}: versions; previous and undone are '' where there is none
const TYPES = { html: 'text/html; charset=utf-8', mjs: 'text/javascript', js: 'text/javascript', css: 'text/css', json: 'application/json',
  wasm: 'application/wasm', py: 'text/x-python; charset=utf-8', svg: 'image/svg+xml', png: 'image/png', txt: 'text/plain; charset=utf-8',
  webmanifest: 'application/manifest+json', zip: 'application/zip', whl: 'application/zip' };

let entries = null; // of the version served: url within the scope -> {url, sha256, bytes, tier}, read once
let filling = null;

const hex = (buffer) => Array.from(new Uint8Array(buffer), (byte) => byte.toString(16).padStart(2, '0')).join('');
const digest = async (buffer) => hex(await crypto.subtle.digest('SHA-256', buffer));

async function state() {
  const kept = await (await caches.open(VERSIONS)).match(STATE);
  return kept ? kept.json() : { serving: VERSION, previous: '', undone: '' };
}

const keepState = async (now) => (await caches.open(VERSIONS)).put(STATE, new Response(JSON.stringify(now)));

async function listOf(version) {
  const kept = version && await (await caches.open(VERSIONS)).match(versionKey(version));
  return kept ? byAddress(await kept.json()) : new Map();
}

async function manifest() {
  if (entries) return entries;
  const found = await listOf((await state()).serving);
  if (found.size) entries = found;
  return found;
}

const byAddress = (list) => new Map((list.files ?? list).map((entry) => [new URL(entry.url, SCOPE).href, entry]));

async function download() {
  const response = await fetch(new URL('precache.json', SCOPE), { cache: 'no-store' });
  if (!response.ok) throw new Error(`precache.json: ${response.status}`);
  const text = await response.arrayBuffer();
  if (!(await digest(text)).startsWith(VERSION)) throw new Error('another version is on the server now'); // its own script will install it
  await (await caches.open(VERSIONS)).put(versionKey(VERSION), new Response(text, { headers: { 'content-type': 'application/json' } }));
}

/** Headers for everything we answer; the stored type wins only where the extension says nothing (some hosts serve .mjs as a download). */
function dressed(headers, url) {
  const dress = new Headers(headers);
  dress.delete('content-encoding'); // fetch has decoded the body already
  const type = TYPES[new URL(url).pathname.split('.').pop()];
  if (type) dress.set('content-type', type);
  dress.set('cross-origin-opener-policy', 'same-origin');
  dress.set('cross-origin-embedder-policy', 'require-corp');
  dress.set('cross-origin-resource-policy', 'same-origin');
  return dress;
}

const stored = (buffer, entry, address) => new Response(buffer, { headers: dressed({
  'content-type': 'application/octet-stream', 'content-length': String(buffer.byteLength), etag: `"${entry.sha256}"` }, address) });

/** One file into the cache, unless its content is there. The browser's own cache may answer, but only with the right bytes. */
async function keep(cache, address, entry) {
  if (await cache.match(contentKey(entry.sha256))) return;
  for (const mode of ['default', 'reload']) {
    const response = await fetch(address, { cache: mode });
    if (!response.ok) continue;
    const buffer = await response.arrayBuffer();
    if (await digest(buffer) !== entry.sha256) continue;
    await cache.put(contentKey(entry.sha256), stored(buffer, entry, address));
    return;
  }
  throw new Error(`${entry.url} did not arrive as listed`);
}

async function keepAll(files, wanted = () => true) {
  const cache = await caches.open(CONTENT);
  const list = [...files].filter(([, entry]) => wanted(entry));
  const next = async () => { for (let item = list.shift(); item; item = list.shift()) await keep(cache, ...item); };
  await Promise.all(Array.from({ length: 6 }, next)); // six at a time, as browsers do anyway
}

self.addEventListener('install', (event) => {
  event.waitUntil((async () => {
    const first = !registration.active;
    await download();
    await keepAll(await listOf(VERSION), (entry) => !first || entry.tier === 'shell');
    if (first) await self.skipWaiting();
  })());
});

self.addEventListener('activate', (event) => {
  event.waitUntil((async () => {
    const versions = await caches.open(VERSIONS);
    const known = await versions.match(STATE);
    let now = known ? await known.json() : null;
    if (!now) { // nothing was noted yet: the one other list, if there is one, is of the version before
      const others = (await versions.keys()).map((key) => key.url).filter((url) => url !== versionKey(VERSION));
      now = { serving: others.length === 1 ? others[0].split('/').pop() : VERSION, previous: '', undone: '' };
    }
    if (now.serving !== VERSION && now.undone !== VERSION) {
      now = { serving: VERSION, previous: await whole(now.serving) ? now.serving : '', undone: '' };
    }
    entries = null;
    await keepState(now);
    await sweep(now);
    await self.clients.claim();
  })());
});

/** Whether every file of a version is here. */
async function whole(version) {
  const files = await listOf(version);
  const cache = await caches.open(CONTENT);
  const there = new Set((await cache.keys()).map((key) => key.url));
  return files.size > 0 && [...files.values()].every((entry) => there.has(contentKey(entry.sha256)));
}

/** Delete what neither the version served, nor the one to go back (or forward) to, nor one that waits needs. */
async function sweep({ serving, previous, undone }) {
  const waiting = [registration.waiting, registration.installing].map((worker) => worker && new URL(worker.scriptURL).searchParams.get('v'));
  const kept = new Set([serving, previous, undone, VERSION, ...waiting].filter(Boolean));
  const wanted = new Set();
  for (const version of kept) for (const entry of (await listOf(version)).values()) wanted.add(contentKey(entry.sha256));
  const lists = new Set([STATE, ...[...kept].map(versionKey)]);
  const versions = await caches.open(VERSIONS);
  for (const key of await versions.keys()) if (!lists.has(key.url)) await versions.delete(key);
  const content = await caches.open(CONTENT);
  for (const key of await content.keys()) if (!wanted.has(key.url)) await content.delete(key);
}

/** Serve the version before, or again the one that was undone; the pages load themselves anew. Resolves with whether it was done. */
async function turn(back) {
  const now = await state();
  const target = back ? now.previous : now.undone;
  if (!target || !await whole(target)) return false;
  await keepState(back ? { serving: target, previous: '', undone: now.serving } : { serving: target, previous: now.serving, undone: '' });
  entries = null;
  for (const client of await self.clients.matchAll({ includeUncontrolled: true })) client.postMessage({ kind: 'turned' });
  return true;
}

async function forget() {
  const now = { ...await state(), previous: '' };
  await keepState(now);
  await sweep(now);
}

async function training() {
  const held = (await navigator.locks?.query())?.held ?? [];
  return held.some((lock) => lock.name === 'posttrainllm-training');
}

/** What a page is told of the versions here. */
async function versions() {
  const { previous, undone } = await state();
  return { kind: 'versions', previous: Boolean(previous) && await whole(previous), undone: Boolean(undone) };
}

async function fill() {
  try {
    await keepAll(await manifest());
    return true;
  } catch { return false; } // the network broke; what arrived is kept, and the page asks again
}

self.addEventListener('message', (event) => {
  if (event.data?.kind === 'fill') {
    filling ??= fill().finally(() => { filling = null; });
    event.waitUntil(filling.then((complete) => event.source?.postMessage({ kind: 'filled', complete })));
  }
  if (event.data?.kind === 'take-over') {
    event.waitUntil((async () => {
      if (await training()) event.source?.postMessage({ kind: 'refused' });
      else await self.skipWaiting();
    })());
  }
  if (event.data?.kind === 'turn') {
    event.waitUntil((async () => {
      if (await training()) event.source?.postMessage({ kind: 'refused' });
      else if (!await turn(event.data.back)) event.source?.postMessage(await versions());
    })());
  }
  if (event.data?.kind === 'forget') event.waitUntil(forget().then(versions).then((told) => event.source?.postMessage(told)));
  if (event.data?.kind === 'versions') event.waitUntil(versions().then((told) => event.source?.postMessage(told)));
});

self.addEventListener('fetch', (event) => {
  const { request } = event;
  const url = new URL(request.url);
  if (request.method !== 'GET' || !request.url.startsWith(SCOPE)) return;
  if (request.cache === 'only-if-cached' && request.mode !== 'same-origin') return;
  url.search = url.hash = '';
  if (url.href.endsWith('/precache.json') || url.href.endsWith('/sw.js')) return; // what says which version is current is never old
  event.respondWith(answer(event, request, url.href === SCOPE ? `${SCOPE}index.html` : url.href));
});

async function answer(event, request, address) {
  const entry = (await manifest()).get(address);
  if (entry) {
    const hit = await (await caches.open(CONTENT)).match(contentKey(entry.sha256));
    if (hit) return hit;
  }
  let response;
  try {
    response = await fetch(request);
  } catch {
    return new Response('This file is not stored on this device, and the network cannot be reached.', { status: 504,
      headers: dressed({ 'content-type': 'text/plain; charset=utf-8' }, `${SCOPE}offline.txt`) });
  }
  if (response.type === 'opaque' || response.type === 'opaqueredirect' || response.status === 0) return response;
  if (entry && response.ok) event.waitUntil(learn(response.clone(), entry, address));
  const bodiless = response.status === 204 || response.status === 304;
  return new Response(bodiless ? null : response.body, { status: response.status, statusText: response.statusText,
    headers: entry ? dressed(response.headers, address) : dressed(response.headers, request.url) });
}

async function learn(response, entry, address) {
  try {
    const buffer = await response.arrayBuffer();
    if (await digest(buffer) !== entry.sha256) return; // the server has another version by now: show it, do not keep it
    await (await caches.open(CONTENT)).put(contentKey(entry.sha256), stored(buffer, entry, address));
  } catch { /* the page left, or no room: the next visit fetches it again */ }
}
