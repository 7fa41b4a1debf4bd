// Starts the page: the worker (through bridge.mjs), the service worker (offline.mjs) and PyScript, which runs ui/main.py.
import { begin } from './bridge.mjs';
import { hooks } from './pyscript/core.js';

// PyScript turns its hooks for *workers* into source text with Function(), even when the page has no PyScript worker, and our content
// security policy forbids that. We start our own worker, so these hooks are never needed. Delete when PyScript builds them lazily.
for (const hook of Object.values(hooks.worker)) hook.clear?.();

begin();

// If MicroPython never comes up the page would look alive and do nothing: say so instead.
setTimeout(() => {
  if (document.body.dataset.python) return;
  const place = document.getElementById('page-error');
  place.textContent = 'The page’s own Python did not start. Reload the page; if that does not help, this browser may block WebAssembly.';
  place.classList.add('shown');
}, 20_000);
