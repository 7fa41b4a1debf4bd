"""Learning from corrections on the fake trainer: what stands under a written text, the list of records, an improvement, its versions."""

from __future__ import annotations

import json

from playwright.sync_api import Page, expect

from e2e.conftest import error, heard, phase, quiet, sent
from e2e.test_page_access import CONTRAST, UNLABELLED

MANY = [{"id": f"c{at}", "created": "2026-12-01T01:00:00Z", "what": "edit", "prompt": f"<b>Who</b> is {at}?", "offered": "I am the old king.", "kept": "I am the young king.", "version": None}
        for at in range(1, 25)]
REASON = "Held-out corrections: better by at least 0.1 nats a token is asked; 1.900 before and 1.880 after came (+0.020)."


def trained(open_page, fake: dict | None = None, view: str = "tune", **options) -> Page:
    page = open_page(fake={"steps": 20} | (fake or {}), **options)
    page.click("#train-start")
    phase(page, "ended")
    page.click(f"#tab-{view}")
    quiet(page)
    return page


def write(page: Page) -> str:
    page.fill("#write-tokens", "40")
    page.fill("#write-prompt", "Who are you?")
    page.click("#write-start")
    expect(page.locator("#write-stats")).to_contain_text("a second ·")
    return page.inner_text("#write-text")


def test_each_verdict_on_a_text_is_a_record(open_page):
    page = trained(open_page, view="write")
    expect(page.locator("#verdict")).to_be_hidden()
    page.check("#write-ask")
    offered = write(page)
    assert sent(page, "write.start")[-1]["ask"] is True
    page.focus("#write-copy")
    page.focus("#verdict-accept")
    page.keyboard.press("Enter")
    expect(page.locator("#verdict-said")).to_have_text("Accepted.")
    assert sent(page, "improve.record") == [{"kind": "improve.record", "id": sent(page, "improve.record")[0]["id"], "what": "accept", "prompt": "Who are you?", "offered": offered}]

    page.click("#verdict-edit")
    expect(page.locator("#verdict-text")).to_be_focused()
    assert page.input_value("#verdict-text") == offered.strip("\n")
    page.keyboard.press("Escape")
    expect(page.locator("#verdict-edit")).to_be_focused()
    page.click("#verdict-edit")
    page.fill("#verdict-text", " héllo <i>you</i>")
    page.click("#verdict-keep")
    expect(page.locator("#verdict-said")).to_have_text("Your edit is kept.")
    assert sent(page, "improve.record")[-1]["kept"] == " héllo <i>you</i>"

    page.click("#verdict-correct")
    assert page.input_value("#verdict-text") == ""
    page.click("#verdict-keep")
    error(page, "verdict", "nothing to keep")
    page.fill("#verdict-text", "My own answer")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#verdict-said")).to_have_text("Your answer is kept.")

    page.click("#verdict-retry")
    page.wait_for_function("heard['wrote'] >= 2")
    assert sent(page, "improve.record")[-1]["what"] == "retry" and len(sent(page, "write.start")) == 2
    expect(page.locator("#verdict")).to_be_visible()
    page.click("#tab-tune")
    expect(page.locator("#records-list > li")).to_have_count(4)
    expect(page.locator("#records-list")).to_contain_text("<i>you</i>")
    assert page.locator("#records-list i").count() == 0, "never as HTML"


def test_a_record_that_cannot_be_kept_and_one_kept_in_memory(open_page):
    page = trained(open_page, {"fail": {"record": "There is no room left."}}, view="write")
    write(page)
    page.click("#verdict-accept")
    error(page, "verdict", "no room left")
    page = trained(open_page, {"saved": False}, view="write")
    write(page)
    page.click("#verdict-accept")
    expect(page.locator("#verdict-said")).to_contain_text("This run is not saved")
    page.click("#tab-tune")
    expect(page.locator("#records-lead")).to_contain_text("gone when the tab closes")


def test_the_list_is_edited_deleted_exported_and_imported(open_page, tmp_path):
    page = trained(open_page, {"records": MANY})
    expect(page.locator("#records-list > li")).to_have_count(20)
    page.click("#records-more")
    expect(page.locator("#records-list > li")).to_have_count(24)
    first = page.locator("#record-c24")
    expect(first.locator("del")).to_have_text("old")
    expect(first.locator("ins")).to_have_text("young")
    expect(first).to_contain_text("<b>Who</b> is 24?")
    first.get_by_role("button", name="Edit").click()
    page.fill("#record-c24-text", "I am the new king.")
    page.click("#record-c24-save")
    expect(first.locator("ins")).to_have_text("new")
    first.get_by_role("button", name="Delete").click()
    page.click("#record-c24-keep")
    expect(page.locator("#record-c24-delete")).to_be_focused()
    first.get_by_role("button", name="Delete").click()
    page.click("#record-c24-delete-sure")
    expect(page.locator("#records-list > li")).to_have_count(23)
    with page.expect_download() as download:
        page.click("#records-export")
    file = tmp_path / "corrections.jsonl"
    download.value.save_as(file)
    assert len(file.read_text().splitlines()) == 23
    page.click("#records-clear")
    expect(page.locator("#records-keep")).to_be_focused()
    page.click("#records-clear-sure")
    expect(page.locator("#records-list > li")).to_have_count(0)
    expect(page.locator("#records-title")).to_be_focused()
    file.write_text("".join(json.dumps(each) + "\n" for each in MANY[:2]))
    page.set_input_files("#records-import", file)
    expect(page.locator("#records-list > li")).to_have_count(2)


def test_an_improvement_is_promoted_rolled_back_and_put_on_again(open_page):
    page = trained(open_page, {"records": MANY, "improve_hold": 12})
    expect(page.locator("#improve-plan")).to_contain_text("It would learn from 20 answers. 4 others are held out")
    page.click("#improve-dropped-box summary")
    expect(page.locator("#improve-dropped li")).to_have_text(["1 × Its answer is empty.", "2 × A newer record answers the same prompt otherwise."])
    page.click("#improve-start")
    expect(page.locator("#improve-status")).to_contain_text("Learning your answers: step 12 of 40")
    expect(page.locator("#improve-stop")).to_be_focused()
    page.click("#tune-start")
    error(page, "tune", "An improvement is going")
    page.evaluate("tell({ kind: 'test.improve_on' })")
    expect(page.locator("#improve-status")).to_have_text("Promoted: version 1 is on. It learned from 33 answers.")
    expect(page.locator("#improve-verdict-text")).to_have_text("It passed.")
    expect(page.locator("#improve-figures tr")).to_have_count(10)
    expect(page.locator("#improve-figures tr").first).to_contain_text("1.900")
    assert page.locator("#improve-figures .missed").count() == 0
    expect(page.locator("#version-1")).to_contain_text("promoted")
    page.click("#version-1 summary")
    expect(page.locator("#version-1 details li").first).to_contain_text("<b>Who</b>")
    page.click("#version-0-use")
    expect(page.locator("#version-0 .badge")).to_have_text("on")
    page.click("#version-1-use")
    expect(page.locator("#version-1 .badge")).to_have_text("on")
    assert [each["version"] for each in sent(page, "improve.use")] == [0, 1]
    assert page.is_checked("#adapter-r1\\.version-1"), "it is in the list of adapters, to compare with the base"


def test_one_that_fails_is_kept_aside_with_the_reason(open_page):
    page = trained(open_page, {"records": MANY, "improve_reasons": [REASON], "improve_figures": {"held_out_after_nats": 1.88, "held_out_wins": None}})
    page.click("#improve-start")
    expect(page.locator("#improve-status")).to_contain_text("Kept aside: version 1 did not pass")
    expect(page.locator("#improve-reasons")).to_contain_text(REASON)
    expect(page.locator("#improve-figures .missed")).to_have_count(1)
    assert page.locator("#version-1-use").count() == 0 and page.locator("#version-0 .badge").count() == 1


def test_stop_a_fault_too_few_and_one_cut_off(open_page):
    page = trained(open_page, {"records": MANY[:3], "unfinished": "2026-12-01T01:00:00Z"})
    expect(page.locator("#improve-note")).to_contain_text("was cut off before its test")
    page.click("#improve-start")
    error(page, "improve", "at least 8 answers")
    assert not sent(page, "improve.start")
    page = trained(open_page, {"records": MANY, "improve_hold": 5})
    page.click("#improve-start")
    expect(page.locator("#improve-status")).to_contain_text("step 5 of 40")
    page.click("#improve-stop")
    expect(page.locator("#improve-status")).to_contain_text("Stopped, as asked")
    page = trained(open_page, {"records": MANY, "fail": {"improve_at": 5}})
    page.click("#improve-start")
    error(page, "improve", "The engine failed")
    expect(page.locator("#improve-status")).to_contain_text("What was on is still on")


def test_it_begins_by_itself_only_when_asked_and_gives_way(open_page):
    page = trained(open_page, {"records": MANY, "improve_hold": 5}, script="addEventListener('DOMContentLoaded', () => { document.body.dataset.idleSeconds = '1'; });")
    assert not page.is_checked("#improve-idle")
    page.check("#improve-idle")
    heard(page, "improve.idle")
    expect(page.locator("#improve-status")).to_contain_text("step 5 of 40")
    assert sent(page, "improve.start")[-1]["by_itself"] is True
    page.keyboard.press("Shift")
    expect(page.locator("#improve-status")).to_contain_text("It gave way to you")
    page.uncheck("#improve-idle")


def test_its_words_are_readable_and_named(open_page):
    for scheme in ("light", "dark"):
        page = trained(open_page, {"records": MANY, "improve_reasons": [REASON]}, color_scheme=scheme)
        page.click("#improve-start")
        expect(page.locator("#improve-status")).to_contain_text("Kept aside")
        assert page.evaluate(UNLABELLED) == []
        assert page.evaluate(CONTRAST) == []
