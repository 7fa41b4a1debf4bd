"""The built page on localhost in Chromium: how soon it is usable and ready, how soon a loss falls, what three minutes give."""

from __future__ import annotations

import statistics
import time

from bench.browser import WEB, Served, launch
from tools import paths

PATIENCE_MS = 120_000
CACHED = """async () => {
  const listed = (await (await fetch('precache.json')).json()).length;
  let held = 0;
  for (const key of await caches.keys()) held += (await (await caches.open(key)).keys()).length;
  return Boolean(navigator.serviceWorker.controller) && held >= listed;
}"""


class Site:
    """dist/ served with the headers that isolate a page, and a browser; every visit() is watched by web/watch.js."""

    def __init__(self, playwright) -> None:
        self._served = Served(paths.DIST)
        self._served.__enter__()
        self._browser = launch(playwright)

    def profile(self):
        """A fresh profile: nothing cached, no service worker."""
        context = self._browser.new_context(bypass_csp=True)
        context.set_default_timeout(PATIENCE_MS)
        context.add_init_script(path=str(WEB / "watch.js"))
        return context

    def visit(self, context):
        """A new tab on the site."""
        page = context.new_page()
        page.goto(self._served.url, wait_until="commit")
        return page

    def close(self) -> None:
        """Close browser and server."""
        self._browser.close()
        self._served.__exit__()


def marks(page, wanted: str) -> dict:
    """The page's marks once `wanted` (an expression in `marks`) holds."""
    page.wait_for_function(f"(() => {{ const marks = benchMarks; return {wanted}; }})()", polling=50)
    return page.evaluate("benchMarks")


def timings(site: Site, repeats: int) -> dict:
    """Milliseconds since the navigation (a second visit has the service worker and its cache), medians and samples.

    falling_after_click: from the click on Train, in a page that is ready, to the first report of a loss below the first one.
    falling_after_landing: the same since the navigation, cold, when Train is pressed as soon as the page is usable.
    """
    found: dict[str, list[float]] = {}

    def note(name: str, value: float) -> None:
        found.setdefault(name, []).append(round(value, 1))

    for _ in range(repeats):
        context = site.profile()
        page = site.visit(context)
        seen = marks(page, "marks.usable && marks.ready")
        note("usable_cold_ms", seen["usable"])
        note("ready_cold_ms", seen["ready"])
        page.click("#train-start")
        seen = marks(page, "marks.falling")
        note("falling_after_click_ms", seen["falling"]["at"] - seen["clicked"])
        _wait(page, CACHED)
        page.close(run_before_unload=False)
        page = site.visit(context)
        seen = marks(page, "marks.usable && marks.ready")
        note("usable_cached_ms", seen["usable"])
        note("ready_cached_ms", seen["ready"])
        context.close()

        context = site.profile()
        page = site.visit(context)
        marks(page, "marks.usable")
        page.click("#train-start")
        note("falling_after_landing_ms", marks(page, "marks.falling")["falling"]["at"])
        context.close()
    return {name: {"median": statistics.median(values), "samples": values} for name, values in found.items()}


def _wait(page, script: str) -> None:
    until = time.monotonic() + PATIENCE_MS / 1000
    while not page.evaluate(script):
        if time.monotonic() > until:
            raise TimeoutError("the service worker did not fill its cache")
        time.sleep(0.2)


def three_minutes(site: Site, seconds: float = 180.0, training: dict | None = None) -> dict:
    """Press Train on the page as it is (medium, Shakespeare), stop after `seconds`; what a person would have got.

    Live samples, evaluations and saves are on, as they are by default. `training` changes settings of the run.
    """
    context = site.profile()
    page = site.visit(context)
    marks(page, "marks.ready")
    if training:
        page.evaluate("(changes) => { globalThis.benchTraining = changes; }", training)
    page.click("#train-start")
    marks(page, "marks.clicked")
    ends = page.evaluate(f"benchMarks.clicked + {1000 * seconds}")
    page.wait_for_function(
        f"performance.now() >= {ends} || benchMarks.events.some((event) => event.kind === 'stopped')",
        polling=200, timeout=1000 * seconds + PATIENCE_MS,
    )
    if not page.evaluate("benchMarks.events.some((event) => event.kind === 'stopped')"):
        page.click("#train-stop")
    seen = marks(page, "marks.events.some((event) => event.kind === 'stopped')")
    context.close()
    started, stopped = (next(event for event in seen["events"] if event["kind"] == kind) for kind in ("started", "stopped"))
    evals = [[event["step"], round(event["validation_loss_nats"], 4)] for event in seen["events"] if event["kind"] == "eval"]
    return {
        "seconds": round((stopped["at"] - seen["clicked"]) / 1000, 1),
        "steps": stopped["step"],
        "validation_loss_nats": round(stopped["validation_loss_nats"], 4),
        "evaluations": evals,
        "ms_per_step": round(1000 * (seen["last"]["elapsed_seconds"]) / stopped["step"], 1),
        "config": started["config"],
        "training": started["training"],
        "engine": started["engine"]["description"],
    }
