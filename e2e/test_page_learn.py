"""Learn, on the fake trainer: the list, a lesson with its words, questions and code, progress, a teacher's link."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import Page, expect

from e2e.conftest import DIST, error, phase, stepping
from tools import paths

LESSONS = json.loads((DIST / "learn" / "index.json").read_text())


@pytest.fixture
def lesson(open_page) -> Page:
    page = open_page(fake={}, path="#learn/softmax")
    expect(page.locator("#lesson h1")).to_have_text("Softmax")
    return page


def test_the_list_and_the_way_through(open_page):
    page = open_page(fake={})
    page.click("#tab-learn")
    expect(page.locator("#learn-list a")).to_have_count(len(LESSONS) + 2)  # and the scratch pad, and How fast
    expect(page.locator("#lesson h1")).to_contain_text("dot product")
    page.click("#learn-list a >> nth=0")
    expect(page.locator("#lesson h1")).to_have_text(LESSONS[0]["title"])
    expect(page.locator("#learn-list a[aria-current=page]")).to_have_count(1)
    expect(page.locator("#lesson")).to_be_focused()
    page.go_back()
    expect(page.locator("#lesson h1")).to_contain_text("dot product")
    expect(page.locator("#lesson .actions a")).to_contain_text("Go on with")


def test_all_lessons_are_built(open_page):
    """Each lesson is fetched and drawn with all its sections; nothing on the way is an error."""
    page = open_page(fake={}, path="#learn")
    for each in LESSONS:
        page.evaluate("address => { location.hash = address; }", f"#learn/{each['name']}")
        expect(page.locator("#lesson h1")).to_have_text(each["title"])
        expect(page.locator("#lesson section")).to_have_count(5)
        expect(page.locator("#learn-error")).to_be_empty()


def test_a_question_answers_itself_and_the_lesson_is_done(lesson):
    page = lesson
    page.click(".answer >> nth=0")
    expect(page.locator(".told").first).to_contain_text("No:")
    expect(page.locator(".lesson-is-done")).to_be_hidden()
    page.click(".answer >> nth=1")
    expect(page.locator(".told").first).to_contain_text("Yes:")
    expect(page.locator(".lesson-is-done")).to_be_visible()
    page.reload()
    expect(page.locator(".lesson-is-done")).to_be_visible()
    expect(page.locator("#learn-progress")).to_contain_text("1 of")
    page.click("#learn-title a")
    page.click("text=Forget my progress")
    expect(page.locator("#learn-progress")).not_to_contain_text("done")


def test_a_word_is_explained_by_pointer_and_keyboard(lesson):
    page = lesson
    word = page.locator("#lesson .word", has_text="token").first
    word.hover()
    expect(page.locator("#word-tip")).to_contain_text("reads as one number")
    page.mouse.move(0, 0)
    expect(page.locator("#word-tip")).to_be_hidden()
    word.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#word-tip")).to_be_visible()
    expect(word).to_have_attribute("aria-expanded", "true")
    page.keyboard.press("Escape")
    expect(page.locator("#word-tip")).to_be_hidden()


def test_the_source_of_a_function_is_shown(lesson):
    page = lesson
    page.click(".source summary >> nth=0")
    expect(page.locator(".source pre").first).to_contain_text("def _forward")
    expect(page.locator(".source .hint").first).to_contain_text("pysrc/posttrainllm/ops/cross_entropy.py, line ")


def test_a_link_sets_the_page_up_and_carries_settings_only(open_page):
    page = open_page(fake={}, path="#learn/softmax?preset=tiny&text=shakespeare&steps=123&nonsense=<b>x")
    expect(page.locator("#lesson h1")).to_have_text("Softmax")
    expect(page.locator("#preset-tiny")).to_be_checked()
    expect(page.locator("#setting-steps")).to_have_value("123")
    error(page, "learn", "nonsense")
    page.click(".share summary")
    expect(page.locator(".share input")).to_have_value(re.compile("#learn/softmax.preset=tiny&text=shakespeare&steps=123&learning_rate=0.0003$"))


def test_a_lesson_that_is_none(open_page):
    page = open_page(fake={}, path="#learn/nowhere")
    error(page, "learn", "no lesson called nowhere")
    expect(page.locator("#learn-list a")).to_have_count(len(LESSONS) + 2)


def test_the_softmax_instrument(lesson):
    page = lesson
    said = page.locator(".instrument-said")
    expect(said).to_contain_text("At temperature 1, a gets 64.4 %")
    page.locator(".knob input").first.fill("0.1")
    expect(said).to_contain_text("a gets 100.0 %")
    page.locator(".knob input").first.fill("5")
    expect(said).to_contain_text("a gets 32.9 %")


def test_how_fast_shows_the_records(open_page):
    """Each figure is the record's own, with its host and date."""
    record = json.loads((paths.REPO / "bench" / "results" / "bench.json").read_text())
    page = open_page(fake={}, path="#learn/how-fast")
    expect(page.locator("#lesson h1")).to_have_text("How fast")
    section = page.locator("#lesson section", has=page.locator("h2", has_text="A training step on a CPU"))
    for name in ("native", "torch", "tab", "jax_js"):
        expect(section).to_contain_text(f"{record['parts']['steps']['medium']['contestants'][name]['tokens_per_second']:,}")
    expect(section).to_contain_text(record["date"][:10])
    expect(section).to_contain_text(record["command"])


def test_from_landing_to_a_falling_loss_to_the_first_lesson(open_page):
    page = open_page(fake={"steps": 60, "step_ms": 1})
    page.click("#train-start")
    stepping(page, 5)
    page.click("#learn-way")
    page.click("#lesson .actions a")
    expect(page.locator("#lesson h1")).to_have_text(LESSONS[0]["title"])
    page.click("#tab-train")
    phase(page, "ended")


NAMES = ("attention", "supporting-cast", "training", "lora", "answers-and-preferences", "continual-learning", "whole-model")


@pytest.mark.parametrize(("name", "knob"), [("sampling", 2), *((name, 0) for name in NAMES)])
def test_a_knob_changes_what_an_instrument_says(open_page, name, knob):
    """The line in words, not only the knob's own value: a handler that fails would leave it as it was."""
    page = open_page(fake={}, path=f"#learn/{name}")
    box = page.locator("#lesson .instrument").first
    sliders = box.locator(".knob input")
    expect(sliders.first).to_be_attached()
    said = box.locator(".instrument-said").first
    before = said.inner_text()
    slider = sliders.nth(knob)
    end = "min" if slider.input_value() == slider.get_attribute("max") else "max"
    slider.fill(slider.get_attribute(end))
    expect(said).not_to_have_text(before)
