"""Updates by the real service worker: carried over, cut off in the middle, undone, taken up again. What waits for a run is in test_offline.py."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import Page, expect

from e2e.test_offline import NO_SERVER, host, settled, stepping, stored, training_locked, visit  # noqa: F401

PREVIOUS = "the version before it again"


def publish(site, words: str) -> None:
    """A new version whose title begins with these words."""
    page = (site.folder / "index.html").read_text()
    head, tail = page.split("<title>", 1)
    site.change("index.html", f"{head}<title>{words}: {tail.split(': ', 1)[-1]}")


def update(page: Page, words: str) -> None:
    """Take the version that waits, which the page says it has."""
    page.reload()
    settled(page)
    page.click("#update-notice button")
    page.wait_for_function("(words) => document.title.startsWith(words)", arg=words)
    settled(page)


def turn(page: Page, which: str, words: str) -> None:
    page.click("#engine summary")
    page.click(f"#version-{which}")
    page.wait_for_function("(words) => document.title.startsWith(words)", arg=words)
    settled(page)


def lists(page: Page) -> int:
    """How many versions' lists are kept."""
    return page.evaluate(
        """async () => { for (const name of await caches.keys()) if (name.includes(' versions '))
        return (await (await caches.open(name)).keys()).filter((key) => key.url.includes('__version/')).length; }"""
    )


def files(page: Page) -> int:
    return page.evaluate(
        "async () => { for (const name of await caches.keys()) if (name.includes(' files ')) return (await (await caches.open(name)).keys()).length; }"
    )


def offered(page: Page, which: str) -> bool:
    """Whether the panel offers to go `back` or `forward`, once the service worker has said what there is."""
    page.evaluate(
        """() => new Promise((done) => { navigator.serviceWorker.addEventListener('message', ({ data }) => { if (data.kind === 'versions') requestAnimationFrame(done); });
        navigator.serviceWorker.controller.postMessage({ kind: 'versions' }); })"""
    )
    return page.evaluate("(which) => !document.getElementById('version-box').hidden && !document.getElementById('version-' + which).hidden", which)


@pytest.fixture
def updated(host, visit):  # noqa: F811
    """A page that has taken an update named two, and its host."""
    site = host({"steps": 100_000, "step_ms": 5})
    publish(site, "one")
    page = visit(site)
    stored(page)
    assert not offered(page, "back"), "there is no version before the first"
    publish(site, "two")
    update(page, "two")
    return site, page


def test_an_update_is_undone_without_a_network_and_stays_undone(updated, contexts):
    contexts.expected.append(NO_SERVER)
    site, page = updated
    assert offered(page, "back") and lists(page) == 2
    site.stop()
    turn(page, "back", "one")
    expect(page.locator("#version-note")).to_contain_text("You went back")
    site.start()
    page.reload()
    settled(page)
    assert page.title().startswith("one"), "the version that was undone comes back by itself"
    assert not page.evaluate("navigator.serviceWorker.getRegistration().then((reg) => Boolean(reg.waiting ?? reg.installing))")
    expect(page.locator("#update-notice")).to_be_hidden()
    publish(site, "three")
    update(page, "three")
    assert offered(page, "back") and not offered(page, "forward")
    assert lists(page) == 2, "of three versions the one that was undone is gone"
    turn(page, "back", "one")


def test_what_was_undone_can_be_used_again(updated):
    _, page = updated
    turn(page, "back", "one")
    assert offered(page, "forward") and not offered(page, "back")
    turn(page, "forward", "two")
    assert offered(page, "back")


def test_the_version_before_can_be_let_go(updated):
    site, page = updated
    before = files(page)
    page.click("#engine summary")
    page.click("#version-forget")
    expect(page.locator("#version-box")).to_be_hidden()
    assert lists(page) == 1 and files(page) == before - 1, "one file of it was other"
    page.reload()
    settled(page)
    assert page.title().startswith("two")


def test_no_version_is_changed_while_another_tab_trains(updated):
    site, page = updated
    other = page.context.new_page()
    other.goto(site.url)
    settled(other)
    other.click("#train-start")
    stepping(other, 2)
    training_locked(other, True)
    page.click("#engine summary")
    page.click("#version-back")
    expect(page.locator("#engine-error")).to_contain_text("A tab of this page is training")
    other.click("#train-stop")
    training_locked(other, False)
    page.click("#version-back")
    page.wait_for_function("document.title.startsWith('one')")
    expect(other.locator("#update-notice")).to_contain_text("Another tab has")


def test_a_network_cut_in_the_middle_of_an_update_leaves_the_old_version_and_the_next_try_goes_on(host, visit, contexts):  # noqa: F811
    contexts.expected += [NO_SERVER, "500"]
    site = host({"steps": 30})
    publish(site, "one")
    page = visit(site)
    stored(page)
    site.change("style.css", (site.folder / "style.css").read_text() + "/* newer */\n")
    publish(site, "two")
    site.broken = {"style.css"}
    page.reload()
    settled(page)
    page.wait_for_function("navigator.serviceWorker.getRegistration().then((reg) => !reg.installing && !reg.waiting)")
    page.reload()
    settled(page)
    assert page.title().startswith("one") and not offered(page, "back")
    site.broken = set()
    site.asked.clear()
    update(page, "two")
    assert "posttrainllm.zip" not in site.asked, "what had not changed was carried over"
    site.stop()
    page.reload()
    settled(page)
    assert page.title().startswith("two")
    turn(page, "back", "one")


def test_a_visitor_of_the_time_before_versions_were_noted_can_go_back_too(host, visit):  # noqa: F811
    site = host({"steps": 30})
    publish(site, "one")
    page = visit(site)
    stored(page)
    page.evaluate(
        """async () => { for (const name of await caches.keys()) { const cache = await caches.open(name);
        for (const key of await cache.keys()) if (key.url.endsWith('__state')) await cache.delete(key); } }"""
    )
    publish(site, "two")
    update(page, "two")
    turn(page, "back", "one")
    assert json.loads((site.folder / "precache.json").read_text())
