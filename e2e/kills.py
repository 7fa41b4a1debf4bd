"""A Chromium of our own on a profile folder that outlives it, so that it can be killed as a power cut or the system's own killer does.

Playwright speaks to it over its debugging port; it is started here, as the leader of a process group, so that SIGKILL takes all of it
at once: no process of it writes, flushes or tells anything after that. What the system's page cache holds survives, as after a crash
of the browser; that writes can be lost too, and in any order, is tests/store's matter.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import ClassVar

from playwright.sync_api import Page, Playwright

from e2e.conftest import FLAGS, PAGE_MS, launch_options

QUIET = ["--headless", "--no-first-run", "--no-default-browser-check", "--password-store=basic", "--disable-gpu", "--remote-debugging-port=0"]
START_SECONDS = 60


class Chromium:
    """One start of the browser on a profile; `page` is its one tab. `kill` and `close` end it; a profile is used by one at a time."""

    living: ClassVar[list[Chromium]] = []  # what a test that fails leaves behind

    def __init__(self, playwright: Playwright, profile: Path) -> None:
        self._browser = None
        port = profile / "DevToolsActivePort"
        port.unlink(missing_ok=True)
        program = launch_options().get("executable_path") or playwright.chromium.executable_path
        self._process = subprocess.Popen(
            [program, *FLAGS, *QUIET, f"--user-data-dir={profile}", "about:blank"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        Chromium.living.append(self)
        end = time.monotonic() + START_SECONDS
        while not (port.exists() and port.read_text().count("\n")):
            assert time.monotonic() < end and self._process.poll() is None, "Chromium does not start on this profile"
            time.sleep(0.02)
        self._browser = playwright.chromium.connect_over_cdp(f"http://127.0.0.1:{port.read_text().split()[0]}")
        context = self._browser.contexts[0]
        context.set_default_timeout(PAGE_MS)
        self.page: Page = context.pages[0] if context.pages else context.new_page()

    def kill(self) -> None:
        """SIGKILL to every process of it."""
        if self in Chromium.living:
            Chromium.living.remove(self)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        with contextlib.suppress(Exception):  # it is gone already
            if self._browser is not None:
                self._browser.close()

    def close(self) -> None:
        """As a person quits it."""
        with contextlib.suppress(Exception):
            self._browser.new_browser_cdp_session().send("Browser.close")
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            pass
        self.kill()


def fresh(folder: Path) -> Path:
    """An empty profile folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


HEADS = """async (run) => {
  const root = await navigator.storage.getDirectory();
  const walk = async (folder) => { for await (const [name, entry] of folder.entries()) if (entry.kind === 'directory') {
    if (name === run) return entry; const inside = await walk(entry); if (inside) return inside; } };
  const folder = await walk(root), found = {};
  for (const name of ['slot-A.bin', 'slot-B.bin']) {
    const file = await (await folder.getFileHandle(name)).getFile();
    const head = new Uint8Array(await file.slice(0, 8).arrayBuffer());
    found[name] = { bytes: file.size, head: String.fromCharCode(...head) === 'PTL-SLOT' };
  }
  return found;
}"""
"""What lies in a run's slots before a worker has touched them: whether each has a header. One without was being written."""

SAVING = """() => {
  const again = () => worker.postMessage({ kind: 'train.save', id: 1e6 });
  window.saves = 0;
  worker.addEventListener('message', ({ data }) => { if (data.kind === 'saved') { window.saves += 1; again(); } });
  for (let i = 0; i < 12; i += 1) again();
}"""
"""From now on one save follows another: twelve wait at any time, so most of the worker's time is writing."""

UPDATE = """async ([version, phases]) => {
  const until = (look) => new Promise((done) => { const timer = setInterval(() => { const found = look(); if (found) { clearInterval(timer); done(found); } }, 5); });
  window.reached = '';
  const reg = await navigator.serviceWorker.register(`sw.js?v=${version}`, { updateViaCache: 'none' });
  const ours = (worker) => worker?.scriptURL.endsWith(version) && worker;
  if (phases.includes('install')) { await until(() => ours(reg.waiting) || ours(reg.active)); window.reached = 'install'; }
  if (phases.includes('take-over')) {
    reg.waiting?.postMessage({ kind: 'take-over' });
    await until(() => ours(reg.active)?.state === 'activated' && ours(navigator.serviceWorker.controller)); window.reached = 'take-over';
  }
  if (phases.includes('turn')) {
    const turned = new Promise((done) => navigator.serviceWorker.addEventListener('message', ({ data }) => { if (data.kind === 'turned') done(); }));
    reg.active.postMessage({ kind: 'turn', back: true });
    await turned; window.reached = 'turn';
  }
  return window.reached;
}"""

FILL = """async (version) => {
  const reg = await navigator.serviceWorker.register(`sw.js?v=${version}`, { updateViaCache: 'none' });
  await navigator.serviceWorker.ready;
  const filled = new Promise((done) => navigator.serviceWorker.addEventListener('message', ({ data }) => { if (data.kind === 'filled') done(data.complete); }));
  while (!navigator.serviceWorker.controller) await new Promise((next) => setTimeout(next, 20));
  reg.active.postMessage({ kind: 'fill' });
  return filled;
}"""

DIGESTS = """async (urls) => Object.fromEntries(await Promise.all(urls.map(async (url) => {
  const response = await fetch(url);
  if (!response.ok) return [url, String(response.status)];
  const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', await response.arrayBuffer()));
  return [url, Array.from(digest, (byte) => byte.toString(16).padStart(2, '0')).join('')];
})))"""
"""The digest of each file of the site as the page gets it."""
