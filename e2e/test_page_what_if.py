"""Inside's What if on the fake trainer: maps of changes by pointer and by keyboard, refused, mended, and stopped while they are made."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from e2e.conftest import error, let_through, sent
from e2e.test_page_inside import looking


def test_what_if(open_page):
    page = looking(open_page, "change")
    expect(page.locator("#change-says")).to_have_text("After “!” at position 21 the score of “e” is 3.10 above that of “⏎”. The loss is 1.25 nats.")
    expect(page.locator("#change-most")).to_have_text("Blue: that difference goes up; orange: it goes down. Most for layer 1, head 0: −2.50 without it.")
    expect(page.locator("#change-cells thead th")).to_have_text(["", "Head 0", "Head 1", "Head 2"])
    cells, readout = page.locator("#change-cells td"), page.locator("#change-readout")
    expect(cells).to_have_count(6)
    cells.nth(3).click()
    expect(readout).to_have_text("Layer 1, head 0, without it: the difference goes from +3.10 to +0.60, the loss from 1.25 to 1.50 nats.")
    page.keyboard.press("ArrowUp")
    page.select_option("#change-measure", "loss_change")
    expect(cells.nth(3)).to_have_text("+0.25")
    expect(page.locator("#change-most")).to_contain_text("the loss goes up")
    page.select_option("#change-what", "residual")
    expect(cells).to_have_count(44)
    page.focus("#change-cells")
    page.keyboard.press("Home")
    expect(readout).to_contain_text("Layer 1, the stream at “R” (position 0), without it")
    page.select_option("#change-what", "mlps")
    expect(page.locator("#change-cells thead th").last).to_have_text("whole")
    page.select_option("#change-how", "swap")
    expect(page.locator("#change-says")).to_contain_text("After the second text it is 1.90 below.")
    cells.nth(1).click()
    expect(readout).to_contain_text("that is 50 % of the way to the second text’s.")
    page.fill("#change-source", "too short")
    page.keyboard.press("Tab")
    error(page, "inside", "equally long")
    assert [(each["what"], each["how"], each.get("source")) for each in sent(page, "inside.change")][-2:] == [("mlps", "swap", "JULIO: O Julio, Julio!"), ("mlps", "swap", "too short")]


def test_what_if_can_be_mended_after_a_refusal(open_page):
    page = looking(open_page, "change")
    page.select_option("#change-how", "swap")
    page.fill("#change-source", "too short")
    page.keyboard.press("Tab")
    error(page, "inside", "equally long")
    page.fill("#change-source", "JULIA: O Julia, Julia!")
    page.keyboard.press("Tab")
    expect(page.locator("#change-cells td")).to_have_count(6)


def test_a_map_in_the_making_can_be_stopped(open_page):
    page = looking(open_page)
    page.evaluate("tell({ kind: 'test.shut', gate: 'map' })")
    page.check("#inside-view-change", force=True)
    expect(page.locator("#change-progress-says")).to_have_text("2 of 6 runs made")
    assert page.evaluate("document.getElementById('change-progress').position") == pytest.approx(1 / 3)
    expect(page.locator("#change-result")).to_be_hidden()
    page.focus("#change-stop")
    page.keyboard.press("Enter")
    expect(page.locator("#inside-status")).to_have_text("Stopped: there is no map.")
    expect(page.locator("#change-stop")).to_be_hidden()
    expect(page.locator("#change-what")).to_be_focused()
    page.select_option("#change-what", "residual")  # another one, which a third question takes the place of
    expect(page.locator("#change-progress-says")).to_have_text("2 of 44 runs made")
    page.check("#inside-view-next", force=True)
    expect(page.locator("#next-says")).to_contain_text("the model expects")
    assert len(sent(page, "inside.stop")) == 2, "what nobody waits for is not made to its end"
    let_through(page, "map")
    page.check("#inside-view-change", force=True)
    expect(page.locator("#change-cells td")).to_have_count(44)
    expect(page.locator("#change-stop")).to_be_hidden()


def test_a_map_that_is_left_before_it_is_told_of_is_stopped(open_page):
    page = looking(open_page, "change", {"gates": []})
    page.evaluate("tell({ kind: 'test.shut', gate: 'inside' })")
    page.select_option("#change-what", "residual")
    expect(page.locator("#inside-status")).to_have_text("Looking…")
    assert not sent(page, "inside.stop")
    page.check("#inside-view-lens", force=True)
    assert len(sent(page, "inside.stop")) == 1
    let_through(page, "inside")
    expect(page.locator("#inside-lens")).to_be_visible()
    page.check("#inside-view-change", force=True)
    expect(page.locator("#change-says")).to_contain_text("the score of")
    page.check("#inside-view-lens", force=True)
    expect(page.locator("#inside-lens")).to_be_visible()
    assert len(sent(page, "inside.stop")) == 1, "what was answered needs no stop"
