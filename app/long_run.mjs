// What a run of hours needs of the browser: a lock, a screen that stays on, a save before the tab may go, a word when it came back or the run
// has ended, and what is known of heat and power. What is said is Python's (ui/long_run.py); events here are page.*.
let emit = () => {};
let post = () => {};
let release = null; // of the lock; while a run goes
let wake = null;
let keepAwake = false;

const warnBeforeLeaving = (event) => { event.preventDefault(); event.returnValue = ''; };
export function leave() { removeEventListener('beforeunload', warnBeforeLeaving); }

/** Called once, by the bridge. */
export function begin(emit_, post_) {
  emit = emit_;
  post = post_;
  if (document.wasDiscarded) emit({ kind: 'page.discarded', going: recall() });
  remember(null);
}

/** While a run goes: ask before leaving, and hold a lock, which keeps the tab from being frozen and an update from being swapped in. (The
 * worker holds one of its own: hold.mjs.) */
export function setBusy(busy) {
  if (busy === Boolean(release)) return;
  if (busy) {
    addEventListener('beforeunload', warnBeforeLeaving);
    release = () => {};
    navigator.locks?.request('posttrainllm-training', () => new Promise((resolve) => {
      if (release) release = resolve; else resolve();
    }));
  } else {
    leave();
    release();
    release = null;
    remember(null);
  }
  awake();
  watchHeat(busy);
}

// ---- the screen ---------------------------------------------------------------------------------------------------------------

/** Keep the screen on while training, where the browser can. */
export function setKeepAwake(on) { keepAwake = on; awake(); }

let asking = false;
async function awake() {
  const wanted = keepAwake && release && !document.hidden;
  if (asking) return;
  asking = true;
  try {
    if (wanted && !wake) {
      wake = await navigator.wakeLock?.request('screen') ?? null;
      wake?.addEventListener('release', () => { wake = null; });
      emit({ kind: 'page.awake', refused: false });
    } else if (!wanted && wake) await wake.release();
  } catch {
    wake = null; // low battery, or a hidden page
    emit({ kind: 'page.awake', refused: !document.hidden });
  } finally { asking = false; }
  if (Boolean(wake) !== Boolean(keepAwake && release && !document.hidden) && wake) awake(); // not wanted any more while it was asked for
}

// ---- hidden, frozen, discarded --------------------------------------------------------------------------------------------------

const GOING = 'posttrainllm-going';
let going = null; // JSON of the run that goes, as Python tells it

/** The run that goes: {run_id, name, steps} as JSON, or null. It is read again where the browser discards the page. */
export function remember(json) {
  going = json;
  try { if (json) sessionStorage.setItem(GOING, json); else sessionStorage.removeItem(GOING); } catch { /* no storage: the offer of the last run stays */ }
}

function recall() {
  try { return JSON.parse(sessionStorage.getItem(GOING)); } catch { return null; }
}

/** A hidden tab may be frozen or discarded without another word. */
function save() {
  if (release) for (const kind of ['train.save', 'tune.save']) post({ kind, id: 0 });
}

let frozenAt = 0;
document.addEventListener('visibilitychange', () => {
  awake();
  if (document.hidden) save();
});
document.addEventListener('freeze', () => { frozenAt = Date.now(); });
document.addEventListener('resume', () => {
  if (frozenAt) emit({ kind: 'page.resumed', seconds: (Date.now() - frozenAt) / 1000 });
  frozenAt = 0;
  awake();
});

// ---- a word at the end ----------------------------------------------------------------------------------------------------------

/** "missing", "default", "granted" or "denied". */
export function notifying() { return globalThis.Notification?.permission ?? 'missing'; }

/** Ask to be allowed; only ever called in a gesture. done("granted" | "denied" | "default"). */
export function askToNotify(done) {
  Notification.requestPermission().then(done, () => done('denied'));
}

/** Whether the person is looking elsewhere, and a notification is of use. */
export function elsewhere() { return document.hidden || !document.hasFocus(); }

/** Show it; done(false) where the browser would not. */
export async function notify(title, body, done) {
  const options = { body, icon: new URL('./icons/icon-192.png', import.meta.url).href, tag: 'posttrainllm-run' };
  try {
    const shown = new Notification(title, options);
    shown.onclick = () => { window.focus(); shown.close(); };
    done(true);
  } catch { // on phones only a service worker may
    try {
      const registration = await navigator.serviceWorker?.getRegistration();
      await registration.showNotification(title, options);
      done(true);
    } catch { done(false); }
  }
}

/** Keep a choice for the next visit; storage may be off. */
export function keepChoice(name, on) { try { localStorage.setItem(`posttrainllm-${name}`, on ? 'yes' : 'no'); } catch { /* asked again next time */ } }
export function keptChoice(name) { try { return localStorage.getItem(`posttrainllm-${name}`) === 'yes'; } catch { return false; } }

// ---- heat and power -------------------------------------------------------------------------------------------------------------

let observer = null;
function watchHeat(on) {
  if (!globalThis.PressureObserver) return;
  observer?.disconnect();
  observer = null;
  if (!on) { emit({ kind: 'page.pressure', state: 'nominal' }); return; }
  try {
    observer = new PressureObserver((records) => emit({ kind: 'page.pressure', state: records.at(-1).state }));
    Promise.resolve(observer.observe('cpu', { sampleInterval: 5000 })).catch(() => {});
  } catch { observer = null; }
}

/** Tell of the battery now and when it changes; nothing where the browser does not say. */
export async function watchBattery() {
  try {
    const battery = await navigator.getBattery?.();
    if (!battery) return;
    const tell = () => emit({ kind: 'page.battery', charging: battery.charging, level: battery.level });
    for (const kind of ['chargingchange', 'levelchange']) battery.addEventListener(kind, tell);
    tell();
  } catch { /* not allowed: nothing is said */ }
}
