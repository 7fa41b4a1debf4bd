"""Training a tuned lens on the page, on the fake trainer."""

from __future__ import annotations

from playwright.sync_api import expect

from e2e.conftest import error, let_through, sent
from e2e.test_page_inside import looking


def test_a_tuned_lens(open_page):
    page = looking(open_page, "lens", {"gates": ["lens"]})
    assert page.is_disabled("#lens-tuned")
    page.click("#lens-train")
    expect(page.locator("#lens-tuned-says")).to_have_text("Step 3 of 200: at the embedding it is 1.00 nats from what the model says in the end.")
    expect(page.locator("#lens-train")).to_be_hidden()
    let_through(page, "lens")
    expect(page.locator("#lens-says")).to_contain_text("falls from 1.90 nats")
    expect(page.locator("#lens-tuned-says")).to_have_text("A tuned lens of 200 steps. Training the model on makes it out of date.")
    assert page.is_checked("#lens-tuned")
    page.check("#lens-plain", force=True)
    expect(page.locator("#lens-says")).to_contain_text("falls from 4.20 nats")
    assert [each["which"] for each in sent(page, "inside.lens")] == ["plain", "tuned", "plain"]


def test_a_tuned_lens_stopped_let_go_or_refused(open_page):
    page = looking(open_page, "lens", {"gates": ["lens"]})
    page.click("#lens-train")
    expect(page.locator("#lens-tuned-says")).to_contain_text("Step 3 of 200")
    page.focus("#lens-stop")
    page.keyboard.press("Enter")
    expect(page.locator("#lens-tuned-says")).to_contain_text("A tuned lens of 3 steps.")
    expect(page.locator("#lens-train")).to_be_focused()
    page = looking(open_page, "lens", {"fail": {"lens_usable": True}})
    page.click("#lens-train")
    expect(page.locator("#lens-tuned-says")).to_contain_text("this lens was let go")
    assert page.is_disabled("#lens-tuned")
    page = looking(open_page, "lens", {"fail": {"lens": "The text it was trained on is not here any more."}})
    page.click("#lens-train")
    error(page, "inside", "not here any more")
    expect(page.locator("#lens-train")).to_be_visible()


def test_a_tuned_lens_of_another_text(open_page):
    page = looking(open_page, "lens", {"other_text": "Hamlet"})
    page.click("#lens-train")
    expect(page.locator("#lens-tuned-says")).to_have_text(
        "A tuned lens of 200 steps. Training the model on makes it out of date. It learned on “Hamlet”, the text under Text: the one that the model learned from is not here."
    )


def test_how_the_lens_sharpened_under_an_adapter(open_page):
    page = looking(open_page, "lens", {"adapted": True})
    page.click("#lens-sharpened-box summary")
    expect(page.locator("#lens-sharpened-head th")).to_have_text(["Loss, nats", "Step 0", "Step 16", "Now, with the adapter"])
    expect(page.locator("#lens-sharpened-says")).to_have_text(
        "From step 0 to step 16 the loss on this text went from 5.50 to 3.20 nats after the last layer, and from 5.60 to 4.90 at the embedding. "
        "With the adapter it is 0.70 now; no snapshots are kept while an adapter is tuned."
    )


def test_how_the_lens_sharpened(open_page):
    page = looking(open_page, "lens", {"damaged": [8]})
    assert not sent(page, "inside.sharpening"), "nobody has asked"
    page.focus("#lens-sharpened-box summary")
    page.keyboard.press("Enter")
    says = page.locator("#lens-sharpened-says")
    expect(says).to_have_text("From step 0 to step 20 the loss on this text went from 5.50 to 0.70 nats after the last layer, and from 5.60 to 4.20 at the embedding. Left out as damaged: step 8.")
    expect(page.locator("#lens-sharpened-head th")).to_have_text(["Loss, nats", "Step 0", "Step 16", "Step 20"])
    expect(page.locator("#lens-sharpened-rows tr").nth(2)).to_have_text("Layer 15.503.200.70")
    shades = page.locator("#lens-sharpened-rows td").evaluate_all("cells => cells.map((each) => Number(each.style.getPropertyValue('--share')))")
    assert shades[0] == 0 and shades[-1] == 1 and shades[6] < shades[7] < shades[8]
    page.fill("#inside-text", "To be")
    expect(page.locator("#lens-cells thead th")).to_have_count(6)
    expect(says).to_contain_text("From step 0 to step 20")
    assert [each["text"] for each in sent(page, "inside.sharpening")] == ["ROMEO: O Romeo, Romeo!", "To be"]
    page.fill("#inside-text", "T")
    expect(page.locator("#lens-sharpened-box")).to_be_hidden()


def test_what_has_no_shape_is_seen(open_page):
    page = looking(open_page, "lens")
    page.evaluate("document.getElementById('inside-text').value = 'a\\x02b\\x7f'; document.getElementById('inside-text').dispatchEvent(new Event('input'))")
    expect(page.locator("#inside-strip button")).to_have_text(["a", "\\x02", "b", "\\x7f"])
    expect(page.locator("#lens-readout")).to_be_visible()
    page.locator("#lens-cells tbody tr").last.locator("td").nth(1).click()
    expect(page.locator("#lens-readout")).to_contain_text("After “\\x02” at position 1")


def test_a_run_without_snapshots_says_why(open_page):
    page = looking(open_page, "lens", {"unkept": True})
    page.click("#lens-sharpened-box summary")
    expect(page.locator("#lens-sharpened-says")).to_contain_text("This run keeps no snapshots")
    expect(page.locator("#lens-sharpened")).to_be_hidden()


def test_training_a_lens_keeps_the_keyboards_focus(open_page):
    page = looking(open_page, "lens", {"gates": ["lens"]})
    for ends in ("stopped", "by itself"):
        page.focus("#lens-train")
        page.keyboard.press("Enter")
        expect(page.locator("#lens-stop")).to_be_focused()
        expect(page.locator("#lens-tuned-says")).to_contain_text("Step 3 of 200")
        if ends == "stopped":
            page.keyboard.press("Enter")
        else:
            let_through(page, "lens")
        expect(page.locator("#lens-train")).to_be_focused()
