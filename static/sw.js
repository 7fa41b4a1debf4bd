// The one service worker: offline, and the headers that threads need, on hosts that send none.
//
// precache.json lists every file of the site with its sha256. Files live in one cache under their digest, so a new version fetches
// only what changed and a half-finished download goes on where it stopped. Versions are lists, kept in a second cache.
//   first install   the shell only (small), so that the page is isolated soon; the rest follows on the page's `fill`
//   later installs  everything, before the new version may take over; any failure leaves the old version as it is
const SCOPE = registration.scope;
const VERSION = new URL(location.href).searchParams.get('v') ?? '';
const CONTENT = `posttrainllm files ${SCOPE}`;
const VERSIONS = `posttrainllm versions ${SCOPE}`;
const contentKey = (sha256) => `${SCOPE}__content/${sha256}`;
const versionKey = (version) => `${SCOPE}__version/${version}`;
const TYPES = { html: 'text/html; charset=utf-8', mjs: 'text/javascript', js: 'text/javascript', css: 'text/css', json: 'application/json',
  wasm: 'application/wasm', py: 'text/x-python; charset=utf-8', svg: 'image/svg+xml', png: 'image/png', txt: 'text/plain; charset=utf-8',
  webmanifest: 'application/manifest+json', zip: 'application/zip', whl: 'application/zip' };

let entries = null; // url within the scope -> {url, sha256, bytes, tier}, read once
let filling = null;

const hex = (buffer) => Array.from(new Uint8Array(buffer), (byte) => byte.toString(16).padStart(2, '0')).join('');
const digest = async (buffer) => hex(await crypto.subtle.digest('SHA-256', buffer));

async function manifest() {
  if (entries) return entries;
  const stored = await (await caches.open(VERSIONS)).match(versionKey(VERSION));
  if (!stored) return new Map();
  entries = byAddress(await stored.json());
  return entries;
}

const byAddress = (list) => new Map((list.files ?? list).map((entry) => [new URL(entry.url, SCOPE).href, entry]));

async function download() {
  const response = await fetch(new URL('precache.json', SCOPE), { cache: 'no-store' });
  if (!response.ok) throw new Error(`precache.json: ${response.status}`);
  const text = await response.arrayBuffer();
  if (!(await digest(text)).startsWith(VERSION)) throw new Error('another version is on the server now'); // its own script will install it
  await (await caches.open(VERSIONS)).put(versionKey(VERSION), new Response(text, { headers: { 'content-type': 'application/json' } }));
  return manifest();
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

async function keepAll(wanted) {
  const cache = await caches.open(CONTENT);
  const list = [...await manifest()].filter(([, entry]) => wanted(entry));
  const next = async () => { for (let item = list.shift(); item; item = list.shift()) await keep(cache, ...item); };
  await Promise.all(Array.from({ length: 6 }, next)); // six at a time, as browsers do anyway
}

self.addEventListener('install', (event) => {
  event.waitUntil((async () => {
    const first = !registration.active;
    await download();
    await keepAll(first ? (entry) => entry.tier === 'shell' : () => true);
    if (first) await self.skipWaiting();
  })());
});

self.addEventListener('activate', (event) => {
  event.waitUntil((async () => {
    const wanted = new Set([...(await manifest()).values()].map((entry) => contentKey(entry.sha256)));
    const versions = await caches.open(VERSIONS);
    for (const key of await versions.keys()) if (key.url !== versionKey(VERSION)) await versions.delete(key);
    const content = await caches.open(CONTENT);
    for (const key of await content.keys()) if (!wanted.has(key.url)) await content.delete(key);
    await self.clients.claim();
  })());
});

async function fill() {
  try {
    await keepAll(() => true);
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
      const held = (await navigator.locks?.query())?.held ?? [];
      if (held.some((lock) => lock.name === 'posttrainllm-training')) event.source?.postMessage({ kind: 'refused' });
      else await self.skipWaiting();
    })());
  }
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
