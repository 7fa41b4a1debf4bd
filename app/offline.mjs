// Service worker, isolation and updates, as the page sees them. static/sw.js is the other half.
//
// Isolation (SharedArrayBuffer, so threads) needs two headers. Hosts that do not send them get them from our service worker, after one
// reload. Two times bound that: of this tab's last try, and of the last success in any tab. A try is allowed when there was none, or
// when it worked since: so a hard reload (which bypasses the worker) gets one more, and a browser that never isolates gets one in all.
// The success is in local storage: an isolated page has a session storage apart from the same tab's page without isolation.

import { scriptAddress } from './trusted.mjs';

const TRIED = 'posttrainllm-isolation-tried';
const WORKED = 'posttrainllm-isolation-worked';
const PATIENCE_MS = 4000; // longer than this, and a person would rather train on one core now
let emit = () => {};
let registration = null;
let swapping = false;
let turning = false; // back to the version before, or forward again

export function onOffline(callback) { emit = callback; }

const workers = () => (isSecureContext ? navigator.serviceWorker : undefined);

function mayTry() {
  try {
    const tried = Number(sessionStorage.getItem(TRIED) ?? 0);
    return tried === 0 || Number(localStorage.getItem(WORKED) ?? 0) > tried;
  } catch { return false; } // no storage: nothing would stop a reload loop, so never start one
}

function note(place, key) {
  try {
    globalThis[place].setItem(key, String(Date.now()));
    return true;
  } catch { return false; }
}

const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Resolves with {isolated, why, reload_helps} when the trainer may start; reloads instead where that isolates the page. */
export async function isolate(used, beforeReload) {
  if (crossOriginIsolated) {
    note('localStorage', WORKED);
    return { isolated: true, why: '', reload_helps: false };
  }
  if (!workers()) {
    const why = isSecureContext ? 'this browser (perhaps a private window) has no service workers' : 'the page is not served over https';
    return { isolated: false, why, reload_helps: false };
  }
  if (!mayTry()) return { isolated: false, why: 'this browser or a proxy removes the headers that threads need', reload_helps: false };
  const active = register().then(activated, () => null);
  const worker = await Promise.race([active, wait(PATIENCE_MS)]); // undefined: not yet; null: it cannot be set up
  if (worker && !used() && note('sessionStorage', TRIED)) {
    beforeReload();
    location.reload();
    await new Promise(() => {}); // the page is going away: start nothing
  }
  if (worker === null) return { isolated: false, why: 'its service worker cannot be set up (blocked, or the network broke)', reload_helps: false };
  active.then((late) => { if (late) emit({ kind: 'page.reload_helps' }); });
  return { isolated: false, why: 'the page has to be loaded once more before it may use several cores', reload_helps: Boolean(worker) };
}

/** The version is the digest of the list of files, so a new build is a new script address and needs no other stamp. */
async function register() {
  const existing = await workers().getRegistration();
  if (existing?.active && !registration) {
    registration = existing;
    watch();
    refresh().catch(() => {}); // in the background: offline it fails, and that is fine
    return existing;
  }
  return refresh();
}

async function refresh() {
  const response = await fetch('precache.json', { cache: 'no-store' });
  if (!response.ok) throw new Error(`precache.json: ${response.status}`);
  const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', await response.arrayBuffer()));
  const version = Array.from(digest.slice(0, 8), (byte) => byte.toString(16).padStart(2, '0')).join('');
  registration = await workers().register(scriptAddress(`sw.js?v=${version}`), { updateViaCache: 'none' });
  watch();
  return registration;
}

function activated(reg) {
  if (reg.active) return reg.active;
  return new Promise((resolve) => {
    const next = reg.installing ?? reg.waiting;
    if (!next) { resolve(null); return; }
    next.addEventListener('statechange', () => {
      if (next.state === 'activated') resolve(next);
      if (next.state === 'redundant') resolve(null); // the network broke: the next visit tries again
    });
  });
}

let watched = null;
function watch() {
  if (watched === registration) return;
  watched = registration;
  const notice = () => { if (registration.waiting && registration.active) emit({ kind: 'page.update' }); };
  notice();
  registration.addEventListener('updatefound', () => {
    registration.installing?.addEventListener('statechange', notice);
  });
}

/** Once the trainer is up: register (where headers made that unnecessary so far), fill the offline cache, listen for versions. */
export async function keepFresh() {
  if (!workers()) { emit({ kind: 'page.offline', complete: false, possible: false }); return; }
  const hadController = Boolean(workers().controller);
  workers().addEventListener('message', ({ data }) => {
    if (data?.kind === 'filled') emit({ kind: 'page.offline', possible: true, complete: data.complete });
    if (data?.kind === 'refused') {
      emit({ kind: turning ? 'page.turn_refused' : 'page.update_refused' });
      swapping = turning = false;
    }
    if (data?.kind === 'versions') { if (turning) swapping = turning = false; emit({ ...data, kind: 'page.versions' }); }
    if (data?.kind === 'turned') {
      if (swapping) location.reload();
      else emit({ kind: 'page.outdated' });
    }
  });
  let first = !hadController;
  workers().addEventListener('controllerchange', () => {
    if (swapping) location.reload();
    else if (!first) emit({ kind: 'page.outdated' }); // another tab brought in a new version
    first = false;
  });
  const fill = async () => {
    try {
      const reg = registration ?? await register();
      const active = await activated(reg);
      active?.postMessage({ kind: 'fill' });
      active?.postMessage({ kind: 'versions' });
    } catch { emit({ kind: 'page.offline', possible: true, complete: false }); }
  };
  addEventListener('online', fill);
  await fill();
}

/** Ask the waiting version to take over; it refuses while any tab trains. The page reloads once when it has. */
export function applyUpdate() {
  if (!registration?.waiting) { location.reload(); return; }
  swapping = true;
  registration.waiting.postMessage({ kind: 'take-over' });
}

/** Go back to the version before, or (back = false) forward again to the one that was undone. Refused while any tab trains. */
export function turnVersion(back) {
  swapping = turning = true;
  registration?.active?.postMessage({ kind: 'turn', back });
}

/** The version before is not wanted any more: its files may go. */
export function forgetVersion() { registration?.active?.postMessage({ kind: 'forget' }); }
