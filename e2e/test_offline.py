"""The service worker: isolation on hosts without headers, work without a server, updates that never disturb a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

from e2e.conftest import DIST, REAL_MS, fake_trainer, phase, stepping
from e2e.sites import Host

STORED = "Stored on this device: it works offline."
ONE_CORE = "It runs on one core"
NO_SERVER = "Failed to load resource"  # how Chromium tells of a request that no server answers


@pytest.fixture
def host(tmp_path) -> Iterator[Callable[..., Host]]:
    made = []

    def make(fake: dict | None = None, **options) -> Host:
        worker = fake_trainer(fake or {})
        made.append(Host(DIST, tmp_path / str(len(made)), worker, **{"path": "/sub/path/", **options}).start())
        return made[-1]

    yield make
    for each in made:
        each.stop()


@pytest.fixture
def visit(contexts) -> Callable[..., Page]:
    """Opens the host's page in a profile where service workers work; `page.loads` counts how often it was loaded."""

    def open_(host: Host, page: Page | None = None, ready: bool = True, script: str = "", **options) -> Page:
        if page is None:
            context = contexts(**{"service_workers": "allow", **options})
            context.add_init_script(script)
            page = context.new_page()
            page.loads = []
            page.on("framenavigated", lambda frame: page.loads.append(frame.url))
        page.goto(host.url, wait_until="commit")  # it may load itself anew before it is whole
        if ready:
            settled(page)
        return page

    return open_


def settled(page: Page) -> None:
    page.wait_for_selector("#engine.ready", timeout=REAL_MS)


def isolated(page: Page) -> bool:
    return page.evaluate("crossOriginIsolated")


def stored(page: Page) -> None:
    expect(page.locator("#offline-state")).to_contain_text(STORED, timeout=REAL_MS)


def training_locked(page: Page, locked: bool) -> None:
    """The lock by which a tab that trains holds up updates, taken or given back."""
    page.wait_for_function(f"navigator.locks.query().then((locks) => locks.held.length === {int(locked)})")


def test_first_visit_without_headers_reloads_once_and_is_isolated(host, visit):
    page = visit(host())
    assert isolated(page)
    assert len(page.loads) == 2, page.loads
    expect(page.locator("#engine-name")).to_have_text("CPU, WebAssembly SIMD, 2 threads")
    page.reload()
    settled(page)
    assert isolated(page) and len(page.loads) == 3, "a second visit needs no further reload"


def test_a_host_with_headers_needs_no_reload(host, visit):
    page = visit(host(isolated=True))
    assert isolated(page) and len(page.loads) == 1
    stored(page)
    assert len(page.loads) == 1


def test_hard_reload_does_not_loop(host, visit):
    page = visit(host())
    stored(page)
    before = len(page.loads)
    session = page.context.new_cdp_session(page)
    with page.expect_navigation(wait_until="commit"):
        session.send("Page.reload", {"ignoreCache": True})
    settled(page)
    assert isolated(page)
    assert len(page.loads) - before <= 2, page.loads
    with page.expect_navigation(wait_until="commit"):
        session.send("Page.reload", {"ignoreCache": True})  # and once more: the count starts again after success
    settled(page)
    assert isolated(page) and len(page.loads) - before <= 4, page.loads


def test_where_isolation_never_comes_it_says_so_and_trains(host, visit):
    page = visit(host({"steps": 30}), script="Object.defineProperty(window, 'crossOriginIsolated', { get: () => false })")
    assert len(page.loads) == 2, "one try, no loop"
    page.click("#engine summary")
    expect(page.locator("#engine-isolation")).to_contain_text(ONE_CORE)
    expect(page.locator("#engine-name")).to_have_text("CPU, WebAssembly SIMD, 1 thread")
    page.click("#train-start")
    phase(page, "ended")
    page.reload()
    settled(page)
    assert len(page.loads) == 3, "nor on the next visit"


def test_where_service_workers_are_blocked_it_trains_on_one_core(host, visit):
    page = visit(host({"steps": 30}), script="delete Navigator.prototype.serviceWorker")
    assert len(page.loads) == 1 and not isolated(page)
    page.click("#engine summary")
    expect(page.locator("#engine-isolation")).to_contain_text("has no service workers")
    page.keyboard.press("Escape")
    page.click("#train-start")
    phase(page, "ended")


def test_a_press_before_the_first_reload_is_kept(host, visit):
    script = """addEventListener('DOMContentLoaded', () => { if (!crossOriginIsolated) document.getElementById('train-start').click(); });
        if (location.protocol === 'http:' && sessionStorage.getItem('posttrainllm-queued')) sessionStorage.setItem('posttrainllm-queued', String(Date.now()));"""
    # The second line: a press is good for some seconds, and here the reload takes none of them.
    page = visit(host({"steps": 30}), ready=False, script=script)
    phase(page, "ended")
    assert isolated(page) and len(page.loads) == 2


def test_typing_before_the_first_reload_is_not_lost(host, visit):
    script = """addEventListener('DOMContentLoaded', () => {
        const box = document.getElementById('corpus-text'); box.value = 'typed early'; box.dispatchEvent(new InputEvent('input', { bubbles: true })); })"""
    page = visit(host(), script=script)
    assert len(page.loads) == 1 and not isolated(page)
    expect(page.locator("#isolation-notice")).to_contain_text("This page runs on one core. Loaded once more")
    assert page.input_value("#corpus-text") == "typed early"
    page.click("#isolation-notice button")
    page.wait_for_function("crossOriginIsolated")


@pytest.mark.parametrize("headers", [False, True])
def test_trains_with_the_server_gone(host, visit, contexts, headers):
    contexts.expected.append(NO_SERVER)
    site = host({"steps": 40}, isolated=headers)
    page = visit(site)
    stored(page)
    site.stop()
    page.reload()
    settled(page)
    assert isolated(page)
    page.click("#train-start")
    phase(page, "ended")
    other = page.context.new_page()
    other.goto(site.url)
    settled(other)
    assert isolated(other)


def test_broken_network_while_installing(host, visit, contexts):
    site = host({"steps": 20})
    site.broken = {"style.css"}
    page = visit(site)
    assert not isolated(page), "no shell, no service worker"
    page.click("#train-start")
    phase(page, "ended")
    site.broken = {"posttrainllm.zip"}
    page.reload()
    settled(page)
    assert isolated(page)
    expect(page.locator("#offline-state")).to_contain_text("Not yet stored for use offline")
    site.broken = set()
    page.evaluate("dispatchEvent(new Event('online'))")
    stored(page)
    contexts.expected.append("500")


def test_an_update_waits_for_the_run_and_fetches_only_what_changed(host, visit, contexts):
    contexts.expected.append(NO_SERVER)
    site = host({"steps": 100_000, "step_ms": 5})
    page = visit(site)
    stored(page)
    site.change("style.css", (site.folder / "style.css").read_text() + "/* newer */\n")
    site.change("index.html", (site.folder / "index.html").read_text().replace("<title>", "<title>newer "))
    page.reload()
    settled(page)
    assert not page.title().startswith("newer"), "the old version is whole until the new one is"
    page.click("#train-start")
    stepping(page, 3)
    expect(page.locator("#update-notice")).to_contain_text("An update is ready. It waits until this run is done.")
    assert page.locator("#update-notice button").count() == 0
    fetched = set(site.asked[len(site.asked) - 1 - site.asked[::-1].index("sw.js") :])
    assert fetched <= {"sw.js", "precache.json", "style.css", "index.html"}, fetched
    training_locked(page, True)
    page.evaluate("navigator.serviceWorker.getRegistration().then((reg) => reg.waiting.postMessage({ kind: 'take-over' }))")  # even if asked
    expect(page.locator("#update-notice")).to_contain_text("Another tab is training. The update waits until it is done.")
    assert page.evaluate("document.body.dataset.phase") == "running"
    page.click("#train-stop")
    phase(page, "ended")
    training_locked(page, False)
    page.click("#update-notice button")
    page.wait_for_function("document.title.startsWith('newer')")
    settled(page)
    site.stop()
    page.reload()
    settled(page)
    assert page.title().startswith("newer")


def test_another_tab_is_told_of_an_update(host, visit):
    site = host({"steps": 100_000, "step_ms": 5})
    page = visit(site)
    stored(page)
    site.change("index.html", (site.folder / "index.html").read_text().replace("<title>", "<title>newer "))
    page.reload()
    settled(page)
    other = page.context.new_page()
    other.goto(site.url)
    settled(other)
    expect(page.locator("#update-notice button")).to_be_visible()
    other.click("#train-start")
    stepping(other, 2)
    training_locked(other, True)
    page.click("#update-notice button")
    expect(page.locator("#update-notice")).to_contain_text("Another tab is training")
    other.click("#train-stop")
    phase(other, "ended")
    training_locked(other, False)
    page.reload()
    settled(page)
    page.click("#update-notice button")
    page.wait_for_function("document.title.startsWith('newer')")
    expect(other.locator("#update-notice")).to_contain_text("Another tab has updated this page.")


def test_types_and_headers_of_a_careless_host(host, visit):
    """A host that sends modules as plain downloads: after the service worker they have the right type."""
    page = visit(host())
    stored(page)
    answers = page.evaluate(
        """async () => Object.fromEntries(await Promise.all(['boot.mjs', 'micropython/micropython.wasm', 'ui/main.py', './'].map(async (name) => {
        const { headers } = await fetch(name); return [name, ['content-type', 'cross-origin-embedder-policy', 'cross-origin-resource-policy'].map((key) => headers.get(key))]; })))"""
    )
    assert answers["boot.mjs"] == ["text/javascript", "require-corp", "same-origin"]
    assert answers["micropython/micropython.wasm"][0] == "application/wasm"
    assert answers["./"][0].startswith("text/html")


def test_installable(host, visit):
    page = visit(host(isolated=True))
    manifest = page.evaluate("fetch(document.querySelector('link[rel=manifest]').href).then((answer) => answer.json())")
    assert {"name", "start_url", "id", "display", "icons"} <= set(manifest)
    for icon in manifest["icons"]:
        size = page.evaluate(
            """(src) => new Promise((done) => { const image = new Image(); image.onload = () => done([image.naturalWidth, image.naturalHeight]); image.onerror = () => done(null); image.src = src; })""",
            icon["src"],
        )
        if icon["sizes"] != "any":
            assert size == [int(side) for side in icon["sizes"].split("x")]
    problems = page.context.new_cdp_session(page).send("Page.getInstallabilityErrors")
    kinds = {each["errorId"] for each in problems.get("installabilityErrors", [])}
    assert kinds <= {"in-incognito"}, kinds  # a test's profile counts as a private window
