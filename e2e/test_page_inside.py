"""The Inside view on the fake trainer: each of its views by pointer and by keyboard, in words as well as in pictures."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from e2e.conftest import SLOW, error, heard, let_through, phase, quiet, sent, stepping
from e2e.test_page_access import CONTRAST, UNLABELLED
from e2e.test_page_views import RUNS

TEXT = "ROMEO: O Romeo, Romeo!"
ROLES = "(each) => [each.getAttribute('role'), each.getAttribute('aria-roledescription')]"


def looking(open_page, view: str = "attention", fake: dict | None = None, **options) -> Page:
    """A page with a model that was just trained, on one of the Inside view's views."""
    page = open_page(fake={"steps": 20} | (fake or {}), **options)
    page.click("#train-start")
    phase(page, "ended")
    page.click("#tab-inside")
    page.check(f"#inside-view-{view}", force=True)
    expect(page.locator(f"#inside-{view}")).to_be_visible()
    quiet(page)
    return page


def test_nothing_to_look_at_yet(open_page):
    page = open_page(fake={"gates": ["boot"]}, wait=False)
    page.click("#tab-inside")
    page.click("#inside-look")
    error(page, "inside", "still loading")
    let_through(page, "boot")
    page.wait_for_selector("#engine.ready")
    page.click("#inside-look")
    error(page, "inside", "There is no model yet")
    assert not page.evaluate("sent.filter((each) => each.kind.startsWith('inside.')).length")


def test_attention_says_in_words_what_it_draws(open_page):
    page = looking(open_page)
    expect(page.locator("#inside-status")).to_have_text("shakespeare-medium, at step 20: 2 layers, 3 heads in each, 22 tokens of text.")
    expect(page.locator("#attention-heads canvas")).to_have_count(3)
    expect(page.locator("#attention-says")).to_have_text("Layer 0, head 0 looks at the token before: 70 % of what it takes, against 5.0 % by chance.")
    expect(page.locator("#attention-from")).to_contain_text("From “!” at position 21 it takes 70.0 % from “o” (20)")
    assert page.locator("#attention-lines path").count() == 1, "lines from 2 % on"
    page.check("#attention-head-2", force=True)
    expect(page.locator("#attention-from")).to_contain_text("it takes 90.0 % from “R” (0)")
    expect(page.locator("#attention-says")).to_contain_text("none of the known habits")
    assert "Layer 0, head 2" in page.get_attribute("#attention-map", "aria-label")
    assert page.locator("#attention-map").evaluate(ROLES) == ["application", "heat map"], "a picture would not get the arrow keys of a screen reader"
    page.click("#attention-table-box summary")
    rows = page.locator("#attention-rows tr")
    expect(rows).to_have_count(22)
    expect(rows.nth(2)).to_have_text("2 “M”90.0 % from “R” (0), 5.0 % from “O” (1), 5.0 % from itself")
    page.get_by_role("button", name="Layer 1, head 2").click()
    expect(page.locator("#attention-says")).to_contain_text("looks at what came after the same token before: 62 %")
    assert page.is_checked("#attention-layer-1") and page.is_checked("#attention-head-2")
    assert [each.get("layer") for each in sent(page, "inside.attention")] == [0, 1] and len(sent(page, "inside.heads")) == 1
    page.click("#attention-scores-box summary")
    expect(page.locator("#attention-scores tr")).to_have_count(7)


def test_attention_by_pointer_keyboard_and_position(open_page):
    page = looking(open_page)
    readout = page.locator("#attention-readout")
    page.locator("#attention-map").hover(position={"x": 30, "y": 30})
    expect(readout).to_have_text("Head 0: “R” at position 0 takes 100.00 % from “R” at position 0.")
    page.focus("#attention-head-0")
    page.keyboard.press("Tab")
    expect(page.locator("#attention-map")).to_be_focused()
    expect(readout).to_contain_text("at position 0 takes")
    for key, words in (("ArrowDown", "“O” at position 1 takes 70.00 % from “R” at position 0"), ("ArrowRight", "takes 30.00 % from “O” at position 1"),
                       ("ArrowDown", "“M” at position 2 takes 70.00 % from “O” at position 1"), ("Home", "from “R” at position 0"), ("End", "from “M” at position 2")):
        page.keyboard.press(key)
        expect(readout).to_contain_text(words)
    expect(page.locator("#announce")).to_contain_text("from “M” at position 2")
    asked = len(sent(page, "inside.attention"))
    page.locator("#inside-strip button").nth(4).click()
    expect(page.locator("#attention-from")).to_contain_text("From “O” at position 4")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#attention-from")).to_contain_text("From “E” at position 3")
    expect(page.locator("#inside-strip button").nth(3)).to_be_focused()
    page.locator("#attention-lines text").nth(8).click()
    expect(page.locator("#attention-from")).to_contain_text("From “␣” at position 8")
    assert len(sent(page, "inside.attention")) == asked, "what is there needs no question"


def test_no_head_has_a_habit_yet(open_page):
    page = looking(open_page, fake={"unformed": True})
    expect(page.locator("#attention-named")).to_have_text("No head is beyond the thresholds yet. Habits form with training.")


def test_layer_by_layer(open_page):
    page = looking(open_page, "lens")
    expect(page.locator("#lens-says")).to_have_text("On this text the loss falls from 4.20 nats at the embedding to 0.70 after the last layer.")
    rows = page.locator("#lens-cells tbody tr")
    expect(rows).to_have_count(3)
    expect(rows.nth(0).locator("td").first).to_have_text("a17 % · 8th")
    expect(rows.nth(2).locator("td").first).to_have_text("O50 % ✓")
    expect(page.locator("#lens-cells tfoot th").nth(1)).to_have_text("O")
    readout = page.locator("#lens-readout")
    rows.nth(1).locator("td").nth(3).hover()
    expect(readout).to_contain_text("After “E” at position 3, layer 0 says: “a” 33.3 %, “␣” 13.3 %, “O” 6.7 %")
    expect(readout).to_contain_text("“O” came, which it has at 6.67 %, in place 3.")
    page.focus("#lens-train")
    page.keyboard.press("Tab")
    expect(page.locator("#lens-cells")).to_be_focused()
    expect(readout).to_contain_text("After “!” at position 21, layer 1 says")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowUp")
    expect(readout).to_contain_text("After “R” at position 0, layer 0 says")
    page.locator("#inside-strip button").nth(5).click()
    expect(readout).to_contain_text("After “:” at position 5, layer 1 says")
    page.fill("#inside-text", "a")
    expect(page.locator("#lens-says")).to_contain_text("nothing came next")


def test_the_next_token_and_who_says_so(open_page):
    page = looking(open_page, "next")
    expect(page.locator("#next-says")).to_have_text("After “!” at position 21 the model expects “a” with 50.0 %.")
    expect(page.locator("#next-choices label")).to_have_count(10)
    expect(page.locator("#next-choices label").nth(2)).to_have_text("␣12.50 %")
    expect(page.locator("#next-parts li")).to_have_text(["The token itself+0.25", "Its position+0.25", "Layer 0’s attention+0.25", "Layer 0’s MLP−0.50",
                                                         "Layer 1’s attention+3.00", "Layer 1’s MLP+0.25", "Last norm’s bias+0.25", "Together, its logit+3.75"])
    expect(page.locator("#next-layers li").nth(1)).to_have_text("Layer 020.0 %")
    page.focus("#next-choice-0")
    page.keyboard.press("ArrowDown")
    expect(page.locator("#next-parts-title")).to_have_text("What each part adds to the score of “b”")
    expect(page.locator("#next-parts li").nth(4)).to_contain_text("+2.75")
    page.locator("#inside-strip button").nth(9).click()
    expect(page.locator("#next-says")).to_have_text("After “R” at position 9 the model expects “o” with 50.0 %. What came is “o”, in place 1.")
    assert sent(page, "inside.next")[-1]["position"] == 9 and "position" not in sent(page, "inside.next")[0]


def test_one_tokens_way(open_page):
    page = looking(open_page, "flow")
    expect(page.locator("#flow-says")).to_have_text("“!” at position 21 goes in; after 2 layers “e” comes out likeliest, at 50.0 %.")
    expect(page.locator("#flow-steps canvas")).to_have_count(27)
    expect(page.locator("#flow-block-0 .words li")).to_have_text(["Head 0: 70 % from “o” (20), 1 % from “R” (0)", "Head 1: 5 % from “R” (0), 5 % from “O” (1)", "Head 2: 90 % from “R” (0), 0 % from “O” (1)"])
    expect(page.locator("#flow-steps")).to_contain_text("blocks.0.attn.q · 3 × 16")
    for name in ("embed", "blocks-0-attn-k", "logits"):
        assert page.locator(f"#flow-{name}").evaluate(ROLES) == ["application", "strip of numbers"]
    readout = page.locator("#flow-readout")
    page.focus("#inside-view-flow")
    page.keyboard.press("Tab")
    expect(page.locator("#flow-embed")).to_be_focused()
    expect(readout).to_have_text("embed, number 0 of 48: 0.0000")
    page.keyboard.press("ArrowRight")
    expect(readout).to_contain_text("embed, number 1 of 48: +0.4")
    page.focus("#flow-blocks-0-attn-k")
    for key in ("ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    expect(readout).to_contain_text("blocks.0.attn.k, head 1, number 1 of 16")
    expect(page.locator("#announce")).to_contain_text("blocks.0.attn.k, head 1")
    expect(page.locator("#flow-blocks-1-ln_1")).to_be_hidden()
    page.get_by_text("Layer 1", exact=True).click()
    page.locator("#flow-blocks-1-ln_1").hover()
    expect(readout).to_contain_text("blocks.1.ln_1, number")
    page.locator("#inside-strip button").nth(2).click()
    expect(page.locator("#flow-says")).to_contain_text("“M” at position 2")
    expect(page.locator("#flow-steps canvas")).to_have_count(27)


def test_all_of_a_strips_numbers_in_figures(open_page):
    page = looking(open_page, "flow")
    for name, rows, head in (("embed", 3, ["0 to 15", "16 to 31", "32 to 47"]), ("blocks-0-attn-k", 3, ["Head 0", "Head 1", "Head 2"]), ("logits", 16, None)):
        box = page.locator(f"#flow-{name}-all")
        assert not box.locator("td").count(), "nothing is made before it is asked for"
        box.locator("summary").focus()
        page.keyboard.press("Enter")
        expect(box.locator("tbody tr")).to_have_count(rows)
        expect(box.locator("thead th")).to_have_text(["", *map(str, range(16))])
        if head:
            expect(box.locator("tbody th")).to_have_text(head)
        for at in (0, 17):  # the same as the arrow keys tell
            page.focus(f"#flow-{name}")
            page.keyboard.press("Home")
            for _ in range(at):
                page.keyboard.press("ArrowRight")
            told = page.inner_text("#flow-readout").split(": ")[1]
            expect(box.locator("td").nth(at)).to_have_text(told)


def test_a_text_that_is_refused_and_the_next_that_is_not(open_page):
    page = looking(open_page)
    page.fill("#inside-text", "x" * 70)
    error(page, "inside", "reads 1 to 64 at once")
    expect(page.locator("#inside-attention")).to_be_hidden()
    page.fill("#inside-text", "a<b>b")
    expect(page.locator("#inside-strip button")).to_have_text(list("a<b>b"))
    page.fill("#inside-text", "")
    error(page, "inside", "Type a text")


def test_the_chosen_position_is_in_sight_in_a_long_text(open_page):
    page = looking(open_page, viewport={"width": 360, "height": 740})
    page.fill("#inside-text", "a rose is a rose " * 3 + "is a rose")
    expect(page.locator("#inside-strip button")).to_have_count(60)
    strip, token = page.locator("#inside-strip").bounding_box(), page.locator("#inside-strip button").last.bounding_box()
    assert strip["y"] <= token["y"] and token["y"] + token["height"] <= strip["y"] + strip["height"] + 1
    page.locator("#inside-strip button").last.focus()
    page.keyboard.press("Home")
    expect(page.locator("#inside-strip button").first).to_be_focused()
    token = page.locator("#inside-strip button").first.bounding_box()
    strip = page.locator("#inside-strip").bounding_box()
    assert strip["y"] <= token["y"]


def test_an_answer_that_comes_late_does_not_win(open_page):
    page = looking(open_page, fake={})
    page.evaluate("tell({ kind: 'test.shut', gate: 'inside' })")
    page.fill("#inside-text", "first")
    heard(page, "inside.attention", 1)
    page.wait_for_function("sent.filter((each) => each.kind === 'inside.attention').at(-1).text === 'first'")
    page.fill("#inside-text", "second")
    page.wait_for_function("sent.filter((each) => each.kind === 'inside.attention').at(-1).text === 'second'")
    let_through(page, "inside")
    expect(page.locator("#inside-strip button")).to_have_count(6)
    quiet(page)
    expect(page.locator("#inside-strip button")).to_have_text(list("second"))


def test_an_answer_that_is_not_awaited_is_not_shown_nor_kept(open_page):
    """What the pointer reads must be what is drawn."""
    page = looking(open_page)
    page.evaluate(
        """() => trainer.dispatchEvent(new MessageEvent('message', { data: { kind: 'inside.attention', reply_to: 1, layers: 2, heads: 1, step: 5, layer: 0,
          labels: ['x'], text_tokens: [120], arrays: [['pattern', [1, 1, 1]]], buffer: new Float32Array([1]).buffer } }))"""
    )
    page.locator("#attention-map").hover(position={"x": 30, "y": 30})
    page.focus("#attention-head-0")
    page.keyboard.press("Tab")
    page.keyboard.press("End")
    expect(page.locator("#attention-readout")).to_contain_text("Head 0: “")
    page.check("#attention-head-2", force=True)
    expect(page.locator("#attention-from")).to_contain_text("it takes 90.0 % from “R” (0)")


def test_while_it_trains_and_with_another_run(open_page):
    page = open_page(fake={"runs": RUNS} | SLOW)
    page.click("#train-start")
    stepping(page, 3)
    page.click("#tab-inside")
    expect(page.locator("#inside-attention")).to_be_visible()
    quiet(page)
    asked = len(sent(page, "inside.attention"))
    stepping(page, int(page.inner_text("#inside-status").split("step ")[1].split(":")[0].replace(",", "")) + 20)
    assert len(sent(page, "inside.attention")) == asked, "steps alone ask nothing"
    page.click("#inside-look")
    heard(page, "inside.attention", asked + 1)
    page.click("#tab-train")
    page.click("#train-stop")
    phase(page, "ended")
    page.click("#tab-runs")
    quiet(page)
    page.click("#run-a-open")
    phase(page, "ended")
    page.click("#tab-inside")
    heard(page, "inside.attention", asked + 2)


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_labels_and_width(open_page, width, scheme):
    page = looking(open_page, viewport={"width": width, "height": 740}, color_scheme=scheme, reduced_motion="reduce")
    for view in page.locator("#inside-views input").evaluate_all("(all) => all.map((each) => each.value)"):
        page.check(f"#inside-view-{view}", force=True)
        expect(page.locator(f"#inside-{view}")).to_be_visible()
        quiet(page)
        page.evaluate("document.querySelectorAll('main details').forEach((each) => { each.open = true; })")
        assert page.evaluate(CONTRAST) == [], view
        assert page.evaluate(UNLABELLED) == [], view
        assert page.evaluate("document.documentElement.scrollWidth") <= width, view


@pytest.mark.parametrize("width", [360, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_readout_covers_nothing_before_one_reads(open_page, width, scheme):
    page = looking(open_page, "flow", viewport={"width": width, "height": 740}, color_scheme=scheme)
    for readout in (False, True):
        if readout:
            page.locator("#flow-embed").hover()
            expect(page.locator("#flow-readout")).to_contain_text("embed, number")
        page.evaluate("scrollTo(0, 0)")
        box = page.locator("#flow-readout").bounding_box()
        said = page.locator("#flow-says").bounding_box()
        assert box["y"] >= said["y"] + said["height"], "not over the paragraphs"
    page.evaluate("scrollTo(0, document.getElementById('flow-steps').getBoundingClientRect().top + scrollY)")
    box = page.locator("#flow-readout").bounding_box()
    assert 0 < box["y"] + box["height"] <= 740, "in sight beside the strips"
