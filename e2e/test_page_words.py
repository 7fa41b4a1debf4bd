"""What the page shows and says, to the letter: settings that follow, labels, numbers, and nothing twice. On the fake trainer."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from e2e.conftest import SLOW, eventually, phase, sent, stepping


def warmup(page) -> str:
    return page.input_value("#setting-warmup_steps")


def test_the_warm_up_follows_the_steps(open_page):
    page = open_page(fake={"steps": 2000, "step_ms": 0})
    page.click("#settings summary")
    assert warmup(page) == "100"
    for steps, expected in ((50, "5"), (9, "0"), (400, "40"), (100_000, "100"), (100, "10")):
        page.fill("#setting-steps", str(steps))
        assert (warmup(page), page.input_value("#setting-decay_steps")) == (expected, str(steps))
    page.fill("#setting-decay_steps", "60")  # an earlier end of the fade-out counts too
    assert warmup(page) == "6"
    page.fill("#setting-warmup_steps", "7")
    page.fill("#setting-steps", "50")
    assert warmup(page) == "7", "a field that was typed into stays"
    page.click("#settings-reset")
    assert warmup(page) == "100"
    page.check("#preset-custom", force=True)
    page.fill("#setting-steps", "50")
    page.click("#train-start")
    phase(page, "ended")
    assert sent(page, "train.start")[0]["training"] == {"steps": 50, "decay_steps": 50, "warmup_steps": 5}


def test_settings_follow_after_a_restart(open_page, contexts):
    page = open_page(fake={"steps": 2000, "fail": {"fatal": ["Lost."]}})
    page.click("#settings summary")
    page.fill("#setting-steps", "50")
    page.click("#train-start")
    page.click("#restart")
    page.wait_for_selector("#engine.ready")
    assert warmup(page) == "5"
    page.fill("#setting-steps", "30")
    assert warmup(page) == "3"


@pytest.mark.parametrize("width", [1280, 360])
def test_chips_of_a_locked_choice(open_page, width):
    """No native circle over a chip, disabled or not."""
    page = open_page(fake=SLOW, viewport={"width": width, "height": 740})
    page.click("#train-start")
    stepping(page)
    radios = page.locator(".choices input:disabled")
    assert radios.count() > 5
    assert set(radios.evaluate_all("all => all.map((each) => [getComputedStyle(each).appearance, getComputedStyle(each).opacity].join())")) == {"none,0"}


def test_the_engine_is_described_once(open_page):
    page = open_page(fake={})
    expect(page.locator("#engine-name")).to_have_text("CPU, WebAssembly SIMD, 2 threads")
    expect(page.locator("#engine-why")).to_have_text("Runs on: CPU, WebAssembly SIMD, 2 threads. It passed its self-test.")


@pytest.mark.parametrize("steps", [2000, 10_000_000])
@pytest.mark.parametrize("width", [1280, 360])
def test_the_last_step_fits_the_chart(open_page, steps, width):
    """The label under the end of the axis is centred there: as much room is left as half of it takes."""
    page = open_page(fake={"steps": steps, "step_ms": 5}, viewport={"width": width, "height": 740})
    page.click("#train-start")
    stepping(page)
    look = """(label) => {
        const over = document.querySelector('#chart .u-over');
        if (!over) return [0, 0];
        const plot = over.getBoundingClientRect(), all = document.querySelector('#chart canvas').getBoundingClientRect();
        const pen = document.createElement('canvas').getContext('2d');
        pen.font = '12px system-ui, sans-serif';
        return [all.right - plot.right, pen.measureText(label).width / 2];
    }"""
    eventually(lambda: page.evaluate(look, f"{steps:,}"), lambda found: found[1] < found[0] < found[1] + 30, "room and half a label")


def test_short_times(open_page):
    page = open_page(fake={"steps": 2000})
    page.fill("#setting-steps", "5")
    expect(page.locator("#plan-estimate")).to_contain_text("Under 1 s for 5 steps")
    expect(page.locator("#run-status")).to_contain_text("parameters, under 1 s.")
    page.fill("#setting-steps", "100")
    expect(page.locator("#run-status")).to_contain_text("parameters, about 10 s.")


def test_a_warning_is_given_once(open_page):
    """The text's own check and the plan both find it small; the plan knows the model."""
    page = open_page(fake={})
    page.check("#corpus-paste", force=True)
    page.fill("#corpus-text", "a short text " * 20)
    expect(page.locator("#plan-warnings")).to_contain_text("This text is small for the model: 260 training tokens against 842496 parameters.")
    expect(page.get_by_text("This text is small")).to_have_count(1)
    page.check("#preset-tiny", force=True)
    expect(page.locator("#plan-warnings")).to_contain_text("70464 parameters")
    expect(page.get_by_text("This text is small")).to_have_count(1)
    page.check("#preset-custom", force=True)
    page.fill("#size-heads", "5")  # no plan, so the text's own warning stands
    expect(page.locator("#corpus-warnings")).to_contain_text("This text is small")
    page.check("#corpus-bundled", force=True)
    expect(page.get_by_text("This text is small")).to_have_count(0)


def test_samples_say_when_they_were_written(open_page):
    page = open_page(fake={"steps": 50})
    page.click("#train-start")
    phase(page, "ended")
    expect(page.locator("#sample-step")).to_have_text("written at steps 31–40")
    page.click("#sample-history-box summary")
    expect(page.locator("#sample-history .hint")).to_have_text(["Step 20"])
    page.fill("#train-extend-steps", "30")
    page.click("#train-extend")
    expect(page.locator("#sample-history .hint")).to_have_text(["Steps 51–60", "Steps 31–40", "Step 20"])
    expect(page.locator("#sample-step")).to_have_text("written at steps 71–80")
