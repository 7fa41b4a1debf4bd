"""What the page promises: nothing becomes HTML or script by itself, and nothing is asked of another origin."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from e2e.conftest import REAL_MS, number, phase, train_tiny
from tools import paths

HOSTILE = "<img src=x onerror=\"document.body.dataset.hurt='1'\"><script>document.body.dataset.hurt='1'</script>"


def test_text_cannot_become_html_or_a_script(open_page):
    """Under the page's own policy, which bypass_csp leaves on here."""
    page = open_page(fake={}, bypass_csp=False, wait=False)
    if not page.evaluate("'trustedTypes' in window"):
        pytest.skip("this browser has no Trusted Types")
    for attempt in (
        "document.body.innerHTML = '<p>no</p>'",
        "document.body.insertAdjacentHTML('beforeend', '<p>no</p>')",
        "document.createElement('script').src = 'boot.mjs'",
        "new Worker('worker.mjs', { type: 'module' })",
        "document.createRange().createContextualFragment('<p>no</p>')",
        "trustedTypes.createPolicy('other', { createHTML: (text) => text })",
        "trustedTypes.createPolicy('posttrainllm', { createHTML: (text) => text })",
    ):
        caught = page.evaluate(f"() => {{ try {{ {attempt}; return 'allowed'; }} catch (error) {{ return error.name; }} }}")
        assert caught == "TypeError", attempt
    address = "import('./trusted.mjs').then(({ scriptAddress }) => String(scriptAddress(%r)))"
    assert page.evaluate(address % "worker.mjs").endswith("/worker.mjs")
    for other in ("boot.mjs", "https://example.org/worker.mjs", "./ui/worker.mjs", "sw.js?v=1&x", "data:text/javascript,1"):
        with pytest.raises(Exception, match="no script that this page starts"):
            page.evaluate(address % other)


@pytest.fixture(autouse=True)
def refused(contexts):
    contexts.expected += ["TrustedHTML", "TrustedScript", "Content Security Policy", "blocked"]


def test_no_source_of_ours_writes_html():
    sinks = re.compile(r"\b(innerHTML|outerHTML|insertAdjacentHTML|srcdoc|createContextualFragment|DOMParser|setHTMLUnsafe)\b|document\.write")
    for folder in ("app", "static"):
        for file in (paths.REPO / folder).rglob("*"):
            if file.suffix in (".py", ".mjs", ".js", ".html"):
                found = [line for line in file.read_text(encoding="utf-8").splitlines() if sinks.search(line)]
                assert not found, f"{file.name}: {found}"


def test_the_policy_names_no_other_origin_and_nothing_unsafe():
    page = (paths.REPO / "app" / "index.html").read_text()
    [policy] = re.findall(r'Content-Security-Policy" content="([^"]+)"', page)
    rules = {words[0]: words[1:] for words in (rule.split() for rule in policy.split(";"))}
    assert rules["default-src"] == ["'none'"] and rules["script-src"] == ["'self'", "'wasm-unsafe-eval'"]
    assert rules["require-trusted-types-for"] == ["'script'"] and rules["trusted-types"] == ["posttrainllm"]
    assert rules["connect-src"] == ["'self'"] and "unsafe-inline" not in policy
    assert set().union(*rules.values()) <= {"'none'", "'self'", "'wasm-unsafe-eval'", "data:", "'script'", "posttrainllm"}
    assert not re.search(r"<script(?![^>]*\bsrc=)|\son[a-z]+=|<[^>]+\sstyle=", page), "a script or a style in the page itself"


def test_hostile_words_stay_words_and_no_request_leaves_the_origin(open_page):
    """The main job by the real trainer on a text and a prompt full of HTML; every request of page and worker is listened to (no service worker here)."""
    asked: list[str] = []
    page = open_page(wait=False)
    page.context.on("request", lambda request: asked.append(request.url))
    page.reload()
    page.wait_for_selector("#engine.ready", timeout=REAL_MS)
    train_tiny(page, (HOSTILE + "\n") * 200)
    page.click("#tab-write")
    page.fill("#write-prompt", HOSTILE)
    page.click("#write-start")
    expect(page.locator("#write-output")).to_contain_text("<", timeout=REAL_MS)
    for view in ("tokens", "inside", "tune", "runs", "learn", "train"):
        page.click(f"#tab-{view}")
        page.wait_for_selector(f"#view-{view}:not([hidden])")
    assert page.evaluate("document.body.dataset.hurt ?? document.querySelectorAll('img[src=x]').length") == 0
    origin = urlsplit(page.url).netloc
    elsewhere = [url for url in asked if url.split(":")[0] in ("http", "https", "ws", "wss") and urlsplit(url).netloc != origin]
    assert len(asked) > 50 and not elsewhere, elsewhere
    assert number(page, "step") == 200
    phase(page, "ended")


def test_names_tags_and_notes_of_runs_stay_words(open_page):
    """In the list, the offer to go on, the comparison, the questions, the sentences and the titles."""
    base = {"step": 800, "steps": 1000, "preset": "medium", "parameters": 842496, "bytes": 10_100_000, "resumable": True, "validation_loss_nats": 1.8}
    marks = {"tags": [HOSTILE[:30]], "note": HOSTILE}
    runs = [{"run_id": run_id, "name": f"{HOSTILE} {run_id}", "updated": 1_790_000_000, "marks": marks, "note": HOSTILE, **base} for run_id in "ab"]
    page = open_page(fake={"runs": runs, "hold": 805, "notes": [HOSTILE]})
    expect(page.locator("#resume-offer-text")).to_contain_text(HOSTILE)
    page.click("#tab-runs")
    expect(page.locator("#runs-list h2").first).to_have_text(f"{HOSTILE} a")
    for run_id in "ab":
        page.check(f"#run-{run_id}-pick")
    page.click("#beside-go")
    page.wait_for_selector("#beside-chart canvas")
    expect(page.locator("#beside-legend")).to_contain_text(HOSTILE)
    page.click("#run-b-delete")
    expect(page.locator("#run-b .question")).to_contain_text(f"Delete “{HOSTILE} b”")
    page.click("#run-b-keep")
    page.click("#run-b-rename")
    expect(page.locator("#run-b-name")).to_have_value(f"{HOSTILE} b"[:200])
    page.keyboard.press("Escape")
    page.click("#run-a-open")
    phase(page, "ended")
    expect(page.locator("#run-title")).to_have_text(f"{HOSTILE} a")
    assert "<" not in page.title()
    assert page.evaluate("document.body.dataset.hurt ?? document.querySelectorAll('img[src=x]').length") == 0
