"""What the page does when something does not work out: it says so once, means it, and stays usable. On the fake trainer."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from e2e.conftest import error, heard, let_through, phase, sent, stepping
from e2e.test_page_views import RUNS, show_runs

NO_TEXT = "The text this run was trained on is not here. Choose it again under Text, then continue the run."
BAD_FILE = "This file is not text: it has bytes that no text has."


def continue_run(page: Page, run_id: str) -> None:
    show_runs(page)
    page.click(f"#run-{run_id}-continue")


def test_a_continuation_that_fails_after_opening(open_page):
    """The worker answers twice: `opened`, then `failed`."""
    page = open_page(fake={"runs": RUNS, "hold": 5, "fail": {"continue": NO_TEXT}})
    continue_run(page, "b")
    phase(page, "ended")
    expect(page.locator("#train-error")).to_contain_text(NO_TEXT)
    expect(page.locator("#run-title")).to_have_text("diary")
    expect(page.locator("#run-status")).to_contain_text("It can write. To train it further, choose its text first (Shakespeare).")
    expect(page.locator("#train-extend")).to_be_hidden()
    page.click("#train-again")
    phase(page, "running")


def test_a_continuation_that_fails_before_opening(open_page):
    page = open_page(fake={"runs": RUNS, "hold": 5, "fail": {"load": "This run is open in another tab."}})
    continue_run(page, "b")
    expect(page.locator("#train-error")).to_contain_text("open in another tab")
    phase(page, "idle")
    page.click("#train-start")
    phase(page, "running")


def test_a_stray_end_leaves_the_page_as_it_is(open_page):
    """A failed start, followed by the end of a run that never began."""
    page = open_page(fake={"fail": {"start": "There is not enough memory for this.", "stray": True}})
    page.click("#train-start")
    heard(page, "stopped")
    error(page, "train", "not enough memory")
    phase(page, "idle")
    expect(page.locator("#run-status")).to_contain_text("Ready: Shakespeare")
    expect(page.locator("#train-start")).to_be_visible()


def test_stopped_before_it_began(open_page):
    """Stop, pressed while a start that will fail is being prepared: two ends come, and neither claims that something is saved."""
    page = open_page(fake={"gates": ["start"], "fail": {"start": "There is not enough memory for this."}})
    page.click("#train-start")
    page.click("#train-stop")
    phase(page, "idle")
    let_through(page, "start")
    heard(page, "failed")
    assert "saved" not in page.inner_text("#announce")
    error(page, "train", "not enough memory")
    phase(page, "idle")
    expect(page.locator("#run-status")).to_contain_text("Ready: Shakespeare")


def test_adding_steps_that_fails(open_page):
    page = open_page(fake={"steps": 20, "fail": {"extend": "There is no run that was just trained."}})
    page.click("#train-start")
    phase(page, "ended")
    page.click("#train-extend")
    error(page, "train", "There is no run that was just trained")
    phase(page, "ended")
    expect(page.locator("#run-status")).to_contain_text("Finished 20 steps")


@pytest.mark.parametrize(("fail", "line"), [({}, "It is saved under Runs."), ({"save": True}, "It could not be saved: export it or free some space.")])
def test_the_end_says_whether_it_is_saved(open_page, fail, line):
    page = open_page(fake={"steps": 20, "fail": fail})
    page.click("#train-start")
    phase(page, "ended")
    expect(page.locator("#run-status")).to_contain_text(line)
    assert page.inner_text("#run-status").count("saved") == 1
    expect(page.locator("#stat-eta")).to_have_text("–")


def test_dismissing_an_error_does_not_accept_the_text(open_page, tmp_path):
    page = open_page(fake={"steps": 20, "fail": {"file": BAD_FILE}})
    (tmp_path / "picture.txt").write_bytes(bytes(range(256)) * 10)
    page.set_input_files("#corpus-file", tmp_path / "picture.txt")
    error(page, "corpus", BAD_FILE)
    page.click("#train-start")
    error(page, "train", "The text cannot be used as it is")
    assert not sent(page, "train.start")
    page.check("#corpus-bundled", force=True)
    page.click("#train-start")
    phase(page, "ended")


def test_training_waits_for_what_the_trainer_says_to_the_text(open_page, tmp_path):
    """Pressed before the answer: neither the text before it nor a bad one is trained."""
    page = open_page(fake={"steps": 20, "fail": {"file": BAD_FILE}, "gates": ["file"]})
    (tmp_path / "picture.txt").write_bytes(bytes(range(256)) * 10)
    page.set_input_files("#corpus-file", tmp_path / "picture.txt")
    page.click("#train-start")
    phase(page, "queued")
    expect(page.locator("#run-status")).to_have_text("Training starts by itself as soon as the text has been read…")
    let_through(page, "file")
    error(page, "train", "The text cannot be used as it is")
    phase(page, "idle")
    assert not sent(page, "train.start")


def test_dismissing_an_error_does_not_accept_the_size(open_page):
    page = open_page(fake={})
    page.check("#preset-custom", force=True)
    page.fill("#size-heads", "5")
    error(page, "plan", "5 heads do not divide")
    page.click("#train-start")
    error(page, "train", "The size cannot be used as it is")
    assert not sent(page, "train.start")


def test_deleting_the_run_in_use_leaves_nothing_of_it(open_page):
    page = open_page(fake={"steps": 20})
    page.click("#train-start")
    phase(page, "ended")
    show_runs(page)
    page.click("#run-r1-delete")
    page.click("#run-r1-delete-sure")
    expect(page.locator("#runs-empty")).to_be_visible()
    page.click("#tab-train")
    phase(page, "idle")
    expect(page.locator("#run-title")).to_have_text("Train a small GPT, right here")
    expect(page.locator("#run-status")).to_contain_text("Ready: Shakespeare")
    expect(page.locator("#stat-loss")).to_have_text("–")
    for button in ("write", "extend"):
        expect(page.locator(f"#train-{button}")).to_be_hidden()
    page.click("#tab-write")
    expect(page.locator("#write-model")).to_contain_text("Train a model, or open a saved run")
    page.click("#tab-train")
    page.click("#train-start")
    phase(page, "ended")


def test_a_run_being_trained_is_not_deleted(open_page):
    page = open_page(fake={"hold": 5, "runs": RUNS})
    continue_run(page, "b")
    stepping(page, 2000)
    show_runs(page)
    page.click("#run-b-delete")
    page.click("#run-b-delete-sure")
    error(page, "runs", "stop it first")
    phase(page, "running")
    expect(page.locator("#run-title")).to_have_text("diary")


def test_renaming_the_run_in_use(open_page):
    page = open_page(fake={"runs": RUNS}, path="#runs")
    page.click("#run-a-open")
    phase(page, "ended")
    show_runs(page)
    page.click("#run-a-rename")
    page.fill("#run-a-name", "ophelia")
    page.keyboard.press("Enter")
    expect(page.locator("#run-a h2")).to_have_text("ophelia")
    expect(page.locator("#run-title")).to_have_text("ophelia")
    expect(page.locator("#write-model")).to_contain_text("Writing with ophelia, at step 600")


def test_why_the_trainer_was_lost_stays_readable(open_page):
    """More messages follow the one that says why; none takes its place or that of the way out."""
    why = "The GPU was lost, and the engine with it."
    page = open_page(fake={"fail": {"fatal": [why, "The trainer stopped unexpectedly.", "There is no room left to save this run."]}}, viewport={"width": 360, "height": 740})
    page.click("#train-start")
    expect(page.locator("#page-error p")).to_have_text([why, "The trainer stopped unexpectedly.", "There is no room left to save this run."])
    phase(page, "idle")
    expect(page.locator("#run-status")).to_contain_text("The trainer has stopped. Train starts it again")
    expect(page.locator("#engine-why")).to_have_text(why)
    page.click("#restart")
    page.wait_for_selector("#engine.ready")
    expect(page.locator("#page-error")).to_be_hidden()
    expect(page.locator("#run-status")).to_contain_text("Ready: Shakespeare")
