// The one Trusted Types policy of the page. Where a browser has them, no text can become HTML or the address of a script by itself; the
// only scripts that the page starts by address are its worker and its service worker, and only those two get through here.

const HERE = new URL('./', import.meta.url).href;

function checked(address) {
  const { href, origin } = new URL(address, HERE);
  const name = href.slice(HERE.length);
  if (origin !== location.origin || !href.startsWith(HERE) || !/^(worker\.mjs|sw\.js\?v=[0-9a-f]+)$/.test(name)) {
    throw new TypeError(`${name} is no script that this page starts`);
  }
  return href;
}

const policy = globalThis.trustedTypes?.createPolicy('posttrainllm', { createScriptURL: checked });

/** The address of one of our two workers, as `new Worker` and `register` want it. */
export function scriptAddress(address) { return policy ? policy.createScriptURL(address) : checked(address); }
