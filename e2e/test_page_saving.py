"""Ways of sparing memory on the Train view, on the fake trainer."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from e2e.conftest import phase, quiet, sent


def opened(page: Page) -> None:
    quiet(page)
    page.locator("#plan-memory-box summary").click()
    expect(page.locator("#saving-box")).to_be_visible()


def hint(page: Page, name: str) -> str:
    label = page.locator(f"#saving-{name}")
    return page.locator("#" + label.get_attribute("aria-describedby")).inner_text().replace("\u00a0", " ")


def test_each_way_says_what_it_costs(open_page):
    page = open_page(fake={})
    opened(page)
    assert page.locator("#saving-choices label > span > span").all_inner_texts() == [
        "Whatever is quickest and fits", "Keeps everything", "Computes the activations of all blocks again", "Keeps AdamW’s moments in 8 bits",
    ]  # fmt: skip
    assert page.locator("#saving-auto").is_checked()
    assert hint(page, "plain") == "53.5 MB · no slower"
    assert hint(page, "recompute") == "32.5 MB · about 31 % more time a step"
    expect(page.locator("#saving-taken")).to_have_text("")


def test_the_way_taken_is_planned_and_trained(open_page):
    page = open_page(fake={})
    opened(page)
    page.locator("#saving-recompute").check()
    expect(page.locator("#plan-facts")).to_contain_text("32.5")
    wanted = {"micro_batches": 1, "recompute": 4, "moments": "f32"}
    assert sent(page, "plan")[-1]["saving"] == wanted
    assert page.evaluate("document.activeElement.id") == "saving-recompute", "the answer must not take the focus away"
    page.click("#train-start")
    phase(page, "running")
    [start] = sent(page, "train.start")
    assert start["saving"] == wanted and start["preset"] == "medium"


def test_a_way_keeps_over_sizes_and_gives_its_own_numbers(open_page):
    page = open_page(fake={})
    opened(page)
    page.locator("#saving-recompute").check()
    page.locator("#preset-large").check()
    page.wait_for_function("window.sent.some((message) => message.kind === 'plan' && message.saving?.recompute === 6)")
    expect(page.locator("#saving-recompute")).to_be_checked()
    page.locator("#saving-auto").check()
    page.wait_for_function("window.sent.findLast((message) => message.kind === 'plan').saving === undefined")


def test_what_was_spared_to_fit_is_said(open_page):
    page = open_page(fake={"room_bytes": 45e6})
    opened(page)
    expect(page.locator("#saving-taken")).to_have_text("So that it fits, this run computes the activations of all blocks again.")
    assert hint(page, "plain").endswith("does not fit here")
    page.locator("#saving-plain").check()
    expect(page.locator("#plan-warnings")).to_contain_text("needs more memory")
    page.click("#train-start")
    expect(page.locator("#train-error")).to_have_text(re.compile("needs more memory"))
    assert not sent(page, "train.start")
