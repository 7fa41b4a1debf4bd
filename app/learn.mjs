// Learn: files fetched when they are first looked at, and the little that is kept of a reader's way through the course.
const KEY = 'posttrainllm-learn';

/** A file of the site as text, to done(text); done(null) where it does not come. */
export async function get(url, done) {
  try {
    const response = await fetch(new URL(url, document.baseURI));
    done(response.ok ? await response.text() : null);
  } catch { done(null); }
}

/** What was kept (JSON), '{}' where nothing was. */
export function kept() {
  try { return localStorage.getItem(KEY) ?? '{}'; } catch { return '{}'; }
}

/** Keep it; false where this browser keeps nothing. */
export function keep(json) {
  try {
    localStorage.setItem(KEY, json);
    return true;
  } catch { return false; }
}

/** Scroll to the top of a lesson, below the page's head. */
export function top(id) { document.getElementById(id)?.scrollIntoView({ block: 'start' }); }

/** The address of this page without its fragment. */
export function here() { return location.href.split('#')[0]; }
