"""Runs on the page alone: finding, marking, comparing; the word at the end of a run, heat, power, the screen, hidden tabs."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import Page, expect

from e2e.conftest import SLOW, error, phase, quiet, sent, stepping

BASE = {"step": 800, "steps": 800, "preset": "medium", "parameters": 842496, "bytes": 10_100_000, "resumable": True}
HOSTILE = "<img src=x onerror=alert(1)>"
RUNS = [
    {"run_id": "a", "name": "shakespeare baseline", "updated": 1_790_000_000, **BASE, "validation_loss_nats": 1.83, "marks": {"tags": ["baseline", "Bard"], "note": "The first good one."}},
    {"run_id": "b", "name": "high rate", "updated": 1_789_000_000, **BASE, "validation_loss_nats": 1.61, "rate": 1e-3, "pace": 45, "marks": {"tags": ["bard"]}},
    {"run_id": "c", "name": "wide", "updated": 1_788_000_000, **BASE, "step": 400, "validation_loss_nats": 2.1, "pace": 150, "tokens_per_step": 4096, "marks": {"tags": [HOSTILE], "note": HOSTILE}},
    {"run_id": "d", "name": "of before", "updated": 1_787_000_000, **BASE, "step": 600},
    {"run_id": "e", "name": "broken", **BASE, "corrupt": True},
]
# A notification as the page makes it: kept in window.told, whatever the browser would do with it.
NOTIFICATIONS = """{
  window.told = [];
  window.asked = 0;
  class Told { constructor(title, options) { told.push([title, options.body]); } close() {} }
  Told.permission = %s;
  Told.requestPermission = async () => { asked += navigator.userActivation.isActive ? 1 : 100; return (Told.permission = %s); };
  window.Notification = Told;
  document.hasFocus = () => false;
}"""
PRESSURE = """window.PressureObserver = class {
  constructor(handler) { window.press = (state) => handler([{ state }]); }
  observe() { window.pressing = true; return Promise.resolve(); }
  disconnect() { window.pressing = false; }
};"""


def names(page: Page) -> list[str]:
    return page.locator("#runs-list h2").all_inner_texts()


@pytest.fixture
def runs_page(open_page) -> Page:
    page = open_page(fake={"runs": RUNS, "hold": 5}, path="#runs")
    expect(page.locator("#run-a")).to_be_visible()
    return page


def test_runs_are_found_by_tag_and_words_and_put_in_order(runs_page):
    page = runs_page
    assert names(page) == ["shakespeare baseline", "high rate", "wide", "of before", "broken"]
    tags = page.locator("#runs-tags button")
    assert tags.all_inner_texts() == [HOSTILE, "Bard", "baseline"], "one for each, whatever its case"
    page.get_by_role("button", name="Bard", exact=True).click()
    assert names(page) == ["shakespeare baseline", "high rate"]
    expect(page.get_by_role("button", name="Bard", exact=True)).to_be_focused()
    page.fill("#runs-search", "GOOD ONE")
    assert names(page) == ["shakespeare baseline"]
    page.fill("#runs-search", "nothing like it")
    expect(page.locator("#runs-none")).to_have_text("No run is like that.")
    page.fill("#runs-search", "")
    page.get_by_role("button", name="Bard", exact=True).click()
    page.select_option("#runs-sort", "loss")
    assert names(page)[:3] == ["high rate", "shakespeare baseline", "wide"]
    page.select_option("#runs-sort", "name")
    assert names(page) == ["broken", "high rate", "of before", "shakespeare baseline", "wide"]


def test_hostile_marks_are_text(runs_page):
    page = runs_page
    expect(page.locator("#run-c .tags li")).to_have_text(HOSTILE)
    expect(page.locator("#run-c .own-note")).to_have_text(HOSTILE)
    assert page.locator("#view-runs img").count() == 0


def test_tags_and_a_note_are_written_by_keyboard(runs_page):
    page = runs_page
    page.focus("#run-d-marks")
    page.keyboard.press("Enter")
    expect(page.locator("#run-d-tags")).to_be_focused()
    page.keyboard.type("night, second try")
    page.keyboard.press("Tab")
    page.keyboard.type("Line one.")
    page.keyboard.press("Enter")
    page.keyboard.type("Line two.")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("#run-d .tags li")).to_have_text(["night", "second try"])
    expect(page.locator("#run-d .own-note")).to_have_text("Line one.\nLine two.")
    expect(page.locator("#run-d-marks")).to_be_focused()
    [request] = sent(page, "runs.mark")
    assert request["tags"] == ["night", " second try"] and request["note"] == "Line one.\nLine two."
    page.click("#run-d-marks")
    expect(page.locator("#run-d-tags")).to_have_value("night, second try")
    page.keyboard.press("Escape")
    expect(page.locator("#run-d-marks")).to_be_focused()


def test_marks_that_are_refused_stay_to_be_mended(open_page):
    page = open_page(fake={"runs": RUNS, "fail": {"mark": "tags: a tag has at most 40 letters."}}, path="#runs")
    page.click("#run-d-marks")
    page.fill("#run-d-tags", "x" * 41)
    page.keyboard.press("Enter")
    error(page, "runs", "at most 40 letters")
    expect(page.locator("#run-d-tags")).to_have_value("x" * 41)


def compare(page: Page, *runs: str) -> None:
    for run in runs:
        page.check(f"#run-{run}-pick")
    page.click("#beside-go")
    expect(page.locator("#beside-title")).to_be_focused()
    page.wait_for_selector("#beside-chart canvas")


def test_runs_side_by_side(runs_page):
    page = runs_page
    assert page.locator("#run-e-pick").count() == 0
    page.check("#run-a-pick")
    expect(page.locator("#beside-count")).to_contain_text("Choose another")
    expect(page.locator("#beside-go")).to_be_disabled()
    compare(page, "b", "c")
    assert sent(page, "runs.compare")[0]["run_ids"] == ["a", "b", "c"]
    assert page.locator("#beside-legend span").all_inner_texts() == ["shakespeare baseline", "high rate", "wide"]
    expect(page.locator("#beside-chart")).to_have_attribute("aria-label", "Training loss of 3 runs. shakespeare baseline ends at 1.417; high rate ends at 1.416; wide ends at 1.694.")
    dashes = page.eval_on_selector_all("#beside-legend line", "lines => lines.map((line) => line.getAttribute('stroke-dasharray'))")
    colours = page.eval_on_selector_all("#beside-legend line", "lines => lines.map((line) => getComputedStyle(line).stroke)")
    assert len(set(dashes)) == len(set(colours)) == 3
    expect(page.locator("#beside-value-1")).to_have_text("1.417")

    page.click("#beside-figures summary")
    rows = page.locator("#beside-table-box tbody tr")
    assert rows.last.inner_text().split("\t") == ["At its end", "1.417", "1.416", "1.694"]
    expect(page.locator("#beside-table-box thead th")).to_have_text(["Step", "1 · shakespeare baseline", "2 · high rate", "3 · wide"])
    assert page.locator("#beside-table-box tbody tr").nth(2).locator("td").nth(2).inner_text() == "–", "the third ended before"
    expect(page.locator("#beside-settings tbody tr")).to_have_text("Training: Learning rate0.00030.0010.0003")

    page.focus("#beside-chart")
    page.keyboard.press("Home")
    expect(page.locator("#beside-where")).to_contain_text("At 4 steps")
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    assert float(page.inner_text("#beside-value-1")) > 3
    page.keyboard.press("End")
    expect(page.locator("#beside-value-3")).to_have_text("1.694 at its end")

    page.check("#beside-rate", force=True)
    page.check("#beside-tokens", force=True)
    expect(page.locator("#beside-about")).to_have_text("Learning rate, by tokens learned from.")
    expect(page.locator("#beside-table-box thead th").first).to_have_text("Tokens")
    page.click("#beside-close")
    expect(page.locator("#beside-card")).to_be_hidden()
    expect(page.locator("#beside-go")).to_be_focused()
    page.click("#beside-none")
    expect(page.locator("#beside-bar")).to_be_hidden()
    assert not page.is_checked("#run-a-pick")


def test_axes_that_not_all_have_are_not_offered_and_failures_are_said(open_page):
    page = open_page(fake={"runs": [RUNS[0], RUNS[1] | {"untimed": True}], "settings": [], "notes": ["These runs learn different texts."]}, path="#runs")
    compare(page, "a", "b")
    expect(page.locator("#beside-seconds-box")).to_be_hidden()
    expect(page.locator("#beside-settings")).to_have_text("None: these runs were made with the same settings.")
    expect(page.locator("#beside-notes li")).to_have_text("These runs learn different texts.")
    page = open_page(fake={"runs": RUNS, "fail": {"compare": "This run cannot be read."}}, path="#runs")
    page.check("#run-a-pick")
    page.check("#run-b-pick")
    page.click("#beside-go")
    error(page, "runs", "cannot be read")


def test_a_ninth_is_too_many(open_page):
    page = open_page(fake={"runs": [{"run_id": f"r{at}", "name": f"run {at}", **BASE, "pace": 40 + 20 * at} for at in range(9)]}, path="#runs")
    for at in range(8):
        page.check(f"#run-r{at}-pick")
    page.click("#run-r8-pick")
    error(page, "runs", "At most 8 runs")
    assert not page.is_checked("#run-r8-pick")
    page.click("#beside-go")
    page.wait_for_selector("#beside-chart canvas")
    strokes = "lines => lines.map((line) => getComputedStyle(line).stroke + line.getAttribute('stroke-dasharray'))"
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert len(set(page.eval_on_selector_all("#beside-legend line", strokes))) == 8
        assert page.evaluate(CONTRAST) == [], scheme


CONTRAST = """() => {
  const light = (colour) => colour.match(/[\\d.]+/g).slice(0, 3).map((each) => { const c = each / 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; }).reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = light(getComputedStyle(document.getElementById('beside-card')).backgroundColor);
  return [...document.querySelectorAll('#beside-legend line')].map((line) => getComputedStyle(line).stroke).filter((colour) => {
    const [a, b] = [light(colour), ground].sort((x, y) => y - x);
    return (a + 0.05) / (b + 0.05) < 3;
  });
}"""


def option(page: Page, name: str):
    """A choice in the engine panel, which is opened."""
    if not page.evaluate("document.getElementById('engine').open"):
        page.click("#engine summary")
    return page.locator(f"#{name}")


@pytest.mark.parametrize("ending, title", [(None, "Finished: shakespeare-medium, loss 3.159"), ({"kind": "stopped", "reason": "error", "message": "The GPU is gone.", "validation_loss_nats": None}, "Ended early: shakespeare-medium")])
def test_a_run_that_ends_is_told_where_the_person_asked(open_page, ending, title):
    page = open_page(fake={"steps": 40, "hold": 30}, script=NOTIFICATIONS % ("'default'", "'granted'"))
    assert page.evaluate("asked") == 0, "nobody is asked before they ask for it"
    option(page, "notify").check()
    page.wait_for_function("asked === 1")
    page.keyboard.press("Escape")
    page.click("#train-start")
    stepping(page, 29)
    page.evaluate("(event) => tell(event ? { kind: 'test.end', event } : { kind: 'test.go_on', steps: null })", ending)
    page.wait_for_function("told.length === 1")
    [[head, body]] = page.evaluate("told")
    assert head.startswith(title), head
    assert ("The GPU is gone" if ending else "40 steps") in body


def test_nothing_is_told_unasked(open_page):
    page = open_page(fake={"steps": 10}, script=NOTIFICATIONS % ("'granted'", "'granted'"))
    page.click("#train-start")
    phase(page, "ended")
    quiet(page)
    assert page.evaluate("[told.length, asked]") == [0, 0]


def test_notifications_that_are_denied_or_missing_are_said(open_page):
    page = open_page(fake={}, script=NOTIFICATIONS % ("'default'", "'denied'"))
    option(page, "notify").click()
    expect(page.locator("#notify-note")).to_contain_text("does not let this page notify you")
    assert not page.is_checked("#notify")
    page = open_page(fake={}, script="delete window.Notification")
    option(page, "notify-note")
    expect(page.locator("#notify-box")).to_be_hidden()
    expect(page.locator("#notify-note")).to_contain_text("cannot show notifications")


def step_event(step: int, rate: float) -> dict:
    return {"kind": "step", "step": step, "steps": 100_000, "loss_nats": 2.0, "learning_rate": 3e-4, "gradient_norm": 1, "tokens_per_second": rate, "elapsed_seconds": 9, "eta_seconds": 9, "rows": []}


def test_heat_is_said_once_training_is_slower_for_it(open_page):
    page = open_page(fake={**SLOW, "hold": 3}, script=PRESSURE)
    assert not page.evaluate("window.pressing")
    page.click("#train-start")
    stepping(page, 2)
    assert page.evaluate("window.pressing")
    tell = "(event) => tell({ kind: 'test.post', event })"
    page.evaluate(tell, step_event(4, 10_000_000))
    page.evaluate("press('critical')")
    for step in range(5, 30):
        page.evaluate(tell, step_event(step, 9_500_000))
    quiet(page)
    expect(page.locator("#heat-notice")).to_be_hidden()
    for step in range(30, 45):
        page.evaluate(tell, step_event(step, 6_000_000))
    expect(page.locator("#heat-notice")).to_contain_text("warm or has much else to do: training is slower, at 60 %")
    page.evaluate("press('fair')")
    expect(page.locator("#heat-notice")).to_be_hidden()
    page.click("#train-stop")
    phase(page, "ended")
    assert not page.evaluate("window.pressing")


def test_the_battery_is_told_where_it_is_known(open_page):
    battery = "navigator.getBattery = async () => (window.battery = Object.assign(new EventTarget(), { charging: false, level: 0.15 }))"
    page = open_page(fake={**SLOW, "hold": 3}, script=battery)
    option(page, "power-note")
    expect(page.locator("#power-note")).to_have_text("On battery, at 15 %. Training uses much power.")
    expect(page.locator("#battery-notice")).to_be_hidden()
    page.keyboard.press("Escape")
    page.click("#train-start")
    expect(page.locator("#battery-notice")).to_contain_text("plug this computer in")
    page.evaluate("battery.charging = true; battery.dispatchEvent(new Event('chargingchange'))")
    expect(page.locator("#battery-notice")).to_be_hidden()
    expect(page.locator("#power-note")).to_be_hidden()


WAKE = """{
  window.wakes = [];
  const request = async () => {
    if (window.refuse) throw new DOMException('low battery', 'NotAllowedError');
    const lock = Object.assign(new EventTarget(), { async release() { wakes.push('released'); lock.dispatchEvent(new Event('release')); } });
    window.lock = lock;
    wakes.push('requested');
    return lock;
  };
  Object.defineProperty(navigator, 'wakeLock', { value: { request } });
}"""
HIDE = """(hidden) => {
  Object.defineProperty(document, 'hidden', { value: hidden, configurable: true });
  document.dispatchEvent(new Event('visibilitychange'));
}"""


def test_the_screen_stays_on_while_it_trains_and_no_longer(open_page):
    page = open_page(fake={**SLOW, "hold": 3}, script=WAKE)
    option(page, "keep-awake").check()
    page.keyboard.press("Escape")
    quiet(page)
    assert page.evaluate("wakes") == []
    page.click("#train-start")
    page.wait_for_function("wakes.join() === 'requested'")
    page.evaluate(HIDE, True)
    page.evaluate("lock.dispatchEvent(new Event('release'))")  # as browsers do with a hidden page's
    page.evaluate(HIDE, False)
    page.wait_for_function("wakes.filter((each) => each === 'requested').length === 2")
    assert sent(page, "train.save"), "a tab that is hidden is saved first"
    page.evaluate("window.refuse = true")
    page.evaluate("lock.dispatchEvent(new Event('release'))")
    page.evaluate(HIDE, False)
    option(page, "keep-awake")
    expect(page.locator("#keep-awake-note")).to_contain_text("did not keep the screen on")
    page.evaluate("window.refuse = false")
    page.evaluate(HIDE, False)
    page.wait_for_function("wakes.filter((each) => each === 'requested').length === 3")
    expect(page.locator("#keep-awake-note")).to_be_hidden()
    page.keyboard.press("Escape")
    page.click("#train-stop")
    phase(page, "ended")
    page.wait_for_function("wakes.at(-1) === 'released'")


def test_a_browser_without_a_wake_lock_says_so(open_page):
    page = open_page(fake={}, script="delete Navigator.prototype.wakeLock")
    option(page, "keep-awake-note")
    expect(page.locator("#keep-awake-note")).to_contain_text("cannot keep the screen on")
    expect(page.locator("#keep-awake-box")).to_be_hidden()


def discarded(run_id: str, steps: int = 2000) -> str:
    going = json.dumps(json.dumps({"run_id": run_id, "name": "hamlet", "steps": steps}))
    return f"Object.defineProperty(document, 'wasDiscarded', {{ value: true }}); if (location.protocol === 'http:') sessionStorage.setItem('posttrainllm-going', {going});"


def test_a_discarded_tab_goes_on_and_says_what_happened(open_page):
    page = open_page(fake={"runs": RUNS, "hold": 3}, script=discarded("a"), wait=False)
    stepping(page, 800)
    [request] = sent(page, "runs.continue")
    assert (request["run_id"], request["steps"]) == ("a", 1200)
    expect(page.locator("#back-notice")).to_contain_text("closed this tab to save memory while “shakespeare baseline” was training. It goes on exactly from step 800")
    page = open_page(fake={"runs": RUNS}, script=discarded("gone"))
    expect(page.locator("#back-notice")).to_contain_text("so it is lost")
    assert sent(page, "runs.continue") == []
    page = open_page(fake={"runs": RUNS}, script=discarded("a", 800))
    expect(page.locator("#back-notice")).to_contain_text("done by then")


def test_what_goes_is_known_to_the_tab_while_it_goes(open_page):
    page = open_page(fake={**SLOW, "hold": 3})
    kept = "JSON.parse(sessionStorage.getItem('posttrainllm-going'))"
    assert page.evaluate(kept) is None
    page.click("#train-start")
    stepping(page, 2)
    assert page.evaluate(kept) == {"run_id": "r1", "name": "shakespeare-medium", "steps": 100_000}
    page.click("#train-stop")
    phase(page, "ended")
    assert page.evaluate(kept) is None
