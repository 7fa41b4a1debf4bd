"""The engine with 64-bit addresses (Memory64) gives the bits of the one with 32, also beyond 4 GiB; what a browser without it says."""

from __future__ import annotations

import pytest
from e2e.driver import Driver, same_state
from e2e.test_same_bits import STEPS, native, train  # noqa: F401 - native is a fixture
from playwright.sync_api import Page

from tests.ext.calls import calls
from tests.ext.in_wasm import BUILDS, SCRIPT, assert_native_bits, blocks, require_build
from tests.ext.tapes import KERNELS

WORKER = """
import { replayed } from '%(url)swasm_bits.mjs';
const sha256 = async (bytes) => [...new Uint8Array(await crypto.subtle.digest('SHA-256', bytes))].map((byte) => byte.toString(16).padStart(2, '0')).join('');
self.onmessage = async ({ data }) => {
  try {
    const blocks = new Uint8Array(await (await fetch('%(url)scalls.bin')).arrayBuffer());
    self.postMessage({ lines: await replayed({ ...data, folder: '%(url)sengine', blocks, sha256 }) });
  } catch (error) { self.postMessage({ error: String(error.stack ?? error) }); }
};
"""
REUSE = """
import { openEngine } from '%(url)swasm.mjs';
const open = (bytes, wide) => openEngine({ base: '%(url)s', bytes, threads: 2, wide });
self.onmessage = async () => {
  try {
    const first = await open(96 << 20, true);
    first.allocate(4, 60 << 20);
    first.view(4, 0, 60 << 20).fill(7);
    first.close();
    const second = await open(92 << 20, true); // goes on in the same memory, which the first one's region may not fill
    const grown = second.allocate(4, 60 << 20) && second.grow(4, 62 << 20, 60 << 20);
    const clean = second.view(4, 0, 62 << 20).every((byte) => byte === 0);
    let stale = false;
    try { first.view(4, 0, 1); } catch { stale = true; }
    second.close();
    const third = await open(91 << 20, true); // so much less that it would hold more than was foreseen for it
    third.close();
    const fourth = await open(128 << 20, true);
    const narrow = await open(64 << 20, false);
    self.postMessage({ bytes: [first, second, third, fourth, narrow].map((engine) => engine.bytes >> 20), grown, clean, stale });
  } catch (error) { self.postMessage({ error: String(error.stack ?? error) }); }
};
"""
RUN = """([source, data]) => new Promise((resolve) => {
  const worker = new Worker(URL.createObjectURL(new Blob([source], { type: 'text/javascript' })), { type: 'module' });
  worker.onmessage = ({ data }) => resolve(data);
  worker.onerror = (event) => resolve({ error: event.message });
  worker.postMessage(data);
})"""
HEADERS = {"cross-origin-embedder-policy": "require-corp", "cross-origin-resource-policy": "same-origin"}
MOST_BYTES = 1 << 18  # of a call: they go to the page through Playwright
PRESET = {"layers": 24, "channels": 1280, "heads": 20, "context": 512, "vocabulary": 256, "batch": 1}


def serve(page: Page, name: str, body: bytes, kind: str) -> None:
    """A file that the site has not."""
    page.route(f"**/{name}", lambda route: route.fulfill(body=body, headers={"content-type": kind, **HEADERS}))


@pytest.mark.parametrize("variant", [name for name in BUILDS if "64" in name])
def test_every_kernel_gives_the_native_bits(contexts, site, variant):
    """Above 4 GiB too: of the memory below nothing is touched."""
    build, threads, hole = BUILDS[variant]
    require_build(build)
    sent = [call for call in calls(seed=6) if call.image.nbytes < MOST_BYTES]
    assert {call.name for call in sent} == set(KERNELS)
    page = contexts().new_page()
    serve(page, "wasm_bits.mjs", SCRIPT.read_bytes(), "text/javascript")
    serve(page, "calls.bin", blocks(sent), "application/octet-stream")
    page.route("**/favicon.ico", lambda route: route.fulfill(status=204))
    page.goto(site.url + "licences.txt")
    said = page.evaluate(RUN, [WORKER % {"url": site.url}, {"build": build, "threads": threads, "hole": hole}])
    assert "error" not in said, said
    assert_native_bits(sent, said["lines"])


def test_the_next_model_goes_on_in_the_memory_of_the_last(contexts, site):
    """What was there is gone; a larger one gets a memory of its own, and so does a much smaller one and one that 32 bits reach."""
    page = contexts().new_page()
    page.route("**/favicon.ico", lambda route: route.fulfill(status=204))
    page.goto(site.url + "licences.txt")
    said = page.evaluate(RUN, [REUSE % {"url": site.url}, {}])
    assert said == {"bytes": [96, 96, 91, 128, 64], "grown": True, "clean": True, "stale": True}, said


def test_a_run_with_64_bit_addresses_gives_the_native_weights(contexts, site, native):  # noqa: F811 - the fixture
    driver = Driver(contexts().new_page(), site.url, memory_64="always")
    assert driver.wait("ready")["threads"] > 1
    run_id = train(driver, STEPS)
    assert same_state(driver.checkpoint(run_id), native)


def test_a_browser_without_them_says_what_it_can(contexts, site):
    driver = Driver(contexts().new_page(), site.url, memory_64="never")
    assert "behemoth" not in driver.wait("ready")["presets"]
    plan = driver.call("plan", "planned", config=PRESET)
    assert not plan["fits"] and "needs 7,7" in plan["reason"] and "can use 4,2" in plan["reason"], plan["reason"]
    driver.ask("corpus.bundled")
    driver.ask("train.start", config=PRESET)
    assert "4,2" in driver.wait("failed")["message"]
