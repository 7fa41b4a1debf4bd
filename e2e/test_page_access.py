"""What the page asks of a person and of the browser: keyboard, small screens, contrast, labels, and a strict security policy."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from e2e.conftest import REAL_MS, SLOW, phase, quiet, stepping
from e2e.test_page_views import RUNS
from tools import paths

VIEWS = ("train", "write", "tokens", "tune", "inside", "runs", "learn")

# Every visible text against the background it stands on: the worst ratio, and where.
CONTRAST = """() => {
  const parse = (colour) => { const c = document.createElement('canvas').getContext('2d'); c.fillStyle = colour; c.fillRect(0, 0, 1, 1); return [...c.getImageData(0, 0, 1, 1).data]; };
  const light = ([r, g, b]) => { const f = (v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }; return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b); };
  const ground = (element) => { for (let e = element; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c[3] === 255) return c; } return [255, 255, 255]; };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const bad = [];
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !element.checkVisibility({ opacityProperty: true, visibilityProperty: true }) || element.closest('.visually-hidden, :disabled')) continue;
    const [a, b] = [light(parse(getComputedStyle(element).color)), light(ground(element))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) bad.push(`${ratio.toFixed(2)} ${element.tagName}#${element.id}.${element.className} ${walker.currentNode.textContent.trim().slice(0, 30)}`);
  }
  return bad;
}"""

UNLABELLED = """() => [...document.querySelectorAll('input, textarea, select, button, summary, [role=tab], progress')]
  .filter((e) => e.checkVisibility() && !(e.labels?.length || e.getAttribute('aria-label') || e.getAttribute('aria-labelledby') || e.textContent.trim()))
  .map((e) => e.outerHTML)"""


def show_everything(page: Page) -> None:
    """Opens what is folded, with errors and notices on the page."""
    page.evaluate("document.querySelectorAll('main details').forEach((each) => { each.open = true; })")
    page.check("#corpus-paste", force=True)
    page.fill("#corpus-text", "a short text " * 20)
    page.check("#preset-custom", force=True)
    page.fill("#size-heads", "3")
    expect(page.locator("#plan-error")).to_contain_text("divide")


def test_tabs_by_keyboard(open_page):
    page = open_page(fake={})
    page.focus("#tab-train")
    for key, view in (("ArrowRight", "write"), ("ArrowRight", "tokens"), ("ArrowRight", "tune"), ("ArrowRight", "inside"), ("ArrowRight", "runs"), ("ArrowRight", "learn"), ("ArrowRight", "train"), ("ArrowLeft", "learn"), ("Home", "train"), ("End", "learn")):
        page.keyboard.press(key)
        expect(page.locator(f"#tab-{view}")).to_be_focused()
        expect(page.locator(f"#view-{view}")).to_be_visible()
        assert page.locator("[role=tabpanel]:visible").count() == 1
    page.go_back()
    expect(page.locator("#view-train")).to_be_visible()
    page.reload()
    expect(page.locator("#view-train")).to_be_visible()


def test_the_main_job_by_keyboard(open_page):
    """From the top of the page with Tab and Enter alone; the focus is never lost when a button gives way to another."""
    page = open_page(fake=SLOW)
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "train-start":
            break
    page.keyboard.press("Enter")
    stepping(page, 3)
    for expected, then in (("train-stop", None), ("train-pause", "paused"), ("train-resume", "running")):
        if page.evaluate("document.activeElement.id") != expected:
            page.focus(f"#{expected}")
        if then:
            page.keyboard.press("Enter")
            phase(page, then)
            assert page.evaluate("document.activeElement.tagName") == "BUTTON", then
    page.focus("#train-stop")
    page.keyboard.press("Enter")
    phase(page, "ended")
    expect(page.locator("#train-write")).to_be_focused()


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_and_width(open_page, width, scheme):
    # Without motion: in the middle of a transition colours are neither the one nor the other.
    page = open_page(fake={"runs": RUNS}, viewport={"width": width, "height": 740}, color_scheme=scheme, reduced_motion="reduce")
    show_everything(page)
    for view in VIEWS:
        page.click(f"#tab-{view}")
        if view == "runs":
            quiet(page)
            page.click("#run-a-rename")
            page.wait_for_selector("#run-a-name")
        assert page.evaluate(CONTRAST) == [], view
        assert page.evaluate(UNLABELLED) == [], view
        assert page.evaluate("document.documentElement.scrollWidth") <= width, f"{view} scrolls sideways"


def test_train_button_is_in_sight(open_page):
    """Landing on a small phone: the one button is there without scrolling, and large enough for a thumb."""
    page = open_page(fake={}, viewport={"width": 360, "height": 640})
    box = page.locator("#train-start").bounding_box()
    assert box["y"] + box["height"] < 640 and box["height"] >= 44 and box["x"] >= 0


def test_focus_can_be_seen(open_page):
    page = open_page(fake={})
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_no_motion_when_asked(open_page):
    page = open_page(fake={}, reduced_motion="reduce")
    assert page.evaluate("getComputedStyle(document.getElementById('train-start')).transitionProperty") in ("none", "all")
    assert page.evaluate("getComputedStyle(document.getElementById('train-start')).transitionDuration") == "0s"


def test_strict_policy_and_no_foreign_requests(contexts, site):
    """Without bypass: the policy forbids eval and inline scripts, the page breaks none of it, and asks no other host for anything."""
    context = contexts(bypass_csp=False)
    asked = []
    context.on("request", lambda request: asked.append(request.url))
    page = context.new_page()
    page.goto(site.url)
    page.wait_for_selector("body[data-python]")
    page.wait_for_selector("#engine.ready", timeout=REAL_MS)
    policy = page.get_attribute("meta[http-equiv=Content-Security-Policy]", "content")
    assert "script-src 'self' 'wasm-unsafe-eval';" in policy and "unsafe-inline" not in policy
    with pytest.raises(Exception, match="Content Security Policy|TrustedScript"):
        page.add_script_tag(content="window.inline = 1")
    assert page.evaluate("window.inline") is None
    contexts.expected += ["inline", "TrustedScript"]  # the attempt itself
    assert {url for url in asked if not url.startswith(site.url)} == set()


def test_every_python_file_is_listed_and_asked_for_early():
    folder = paths.REPO / "app" / "ui"
    files = {file.name for file in folder.glob("*.py")}
    listed = set(re.findall(r'"\./(\w+\.py)"', (folder / "pyscript.json").read_text()))
    early = set(re.findall(r'rel="preload" as="fetch" crossorigin href="ui/(\w+\.py)"', (paths.REPO / "app" / "index.html").read_text()))
    assert listed | {"main.py"} == files
    assert early == files
