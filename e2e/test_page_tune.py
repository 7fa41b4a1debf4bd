"""The Tune view on the fake trainer: tuning on each kind of data, and its adapters. What can be tried with one: test_page_compare.py."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import Page, expect

from e2e.conftest import error, heard, let_through, phase, quiet, sent
from e2e.test_page_access import CONTRAST, UNLABELLED
from e2e.test_page_views import RUNS

ADAPTER = {"adapter_id": "old", "name": "Dickens", "how": "text", "rank": 4, "step": 200, "steps": 200, "parameters": 8192, "bytes": 41_000,
           "updated": "2026-11-30T18:00:00Z", "validation_loss_nats": 1.9, "fits": True, "note": ""}
OTHER = ADAPTER | {"adapter_id": "other", "name": "Austen", "rank": 8}
UNKEPT = ADAPTER | {"adapter_id": "unkept", "name": "Not saved", "kept": False, "note": "It is not saved: export it."}
STRANGE = ADAPTER | {"adapter_id": "strange", "name": "From another model", "fits": False, "note": "It was made for a model of another size, so it cannot be used with this one."}


def trained(open_page, fake: dict | None = None, **options) -> Page:
    """A page with a model that was just trained, on the Tune view."""
    page = open_page(fake={"steps": 20} | (fake or {}), **options)
    page.click("#train-start")
    phase(page, "ended")
    page.click("#tab-tune")
    quiet(page)
    return page


def go_on(page: Page) -> None:
    """Let the fake tune on from where it stands at tune_hold."""
    page.evaluate("tell({ kind: 'test.tune_on' })")


def test_nothing_to_tune_yet(open_page):
    page = open_page(fake={"gates": ["boot"]}, wait=False)
    page.click("#tab-tune")
    page.click("#tune-start")
    error(page, "tune", "still loading")
    let_through(page, "boot")
    page.wait_for_selector("#engine.ready")
    page.click("#tune-start")
    error(page, "tune", "There is no model yet")
    page.click("#compare-start")
    error(page, "compare", "There is no model yet")
    page.click("#memorise-start")
    error(page, "memorise", "There is no model yet")
    expect(page.locator("#tune-facts")).to_have_text("Known once a model is open.")
    assert page.locator("#adapters-list li").count() == 1 and page.is_disabled("#adapter-none") and page.is_disabled("#strength")


def test_tuning_on_a_second_text(open_page):
    page = trained(open_page, {"tune_hold": 12})
    expect(page.locator("#tune-facts")).to_have_text("8,192 trainable parameters, 0.97 % of the model’s 842,496; 32.8 kB as a file.")
    page.click("#tune-start")
    error(page, "tune", "There is nothing to learn from yet")
    page.fill("#tune-text", "It was the best of times. " * 40)
    page.fill("#tune-rank", "8")
    expect(page.locator("#tune-facts")).to_contain_text("1.9 %")
    page.fill("#tune-name", "Two cities")
    page.click("#tune-start")
    expect(page.locator("#tune-step")).to_have_text("12 of 40")
    expect(page.locator("#tune-stop")).to_be_focused()
    expect(page.locator("#tune-status")).to_contain_text("Step 12 of 40")
    assert page.is_disabled("#tune-rank") and page.is_disabled("#adapter-none"), "settings and adapters stand still meanwhile"
    page.click("#tab-train")
    page.click("#train-again")
    error(page, "train", "A tune is going")
    page.click("#tab-tune")
    go_on(page)
    expect(page.locator("#tune-status")).to_have_text("Finished 40 steps. The adapter “Two cities” is saved, and on.")
    expect(page.locator("#forgetting-verdict")).to_contain_text("It forgot something: on Shakespeare")
    expect(page.locator("#forgetting-after")).to_have_text("1.720")
    expect(page.locator("#forgetting-after-bits")).to_have_text("2.481")
    assert page.is_checked("#adapter-a1") and page.is_enabled("#strength")
    [request] = sent(page, "tune.start")
    assert request["text"].startswith("It was the best") and request["how"] == "text" and request["name"] == "Two cities"
    assert request["adapter"] == {"rank": 8, "alpha": 8, "targets": ["attn.q", "attn.v"], "rslora": False}
    assert request["training"] == {"steps": 40, "learning_rate": 0.002}
    assert page.evaluate("document.getElementById('tune-chart').getAttribute('aria-label')").startswith("Loss 2.1")
    expect(page.locator("#tune-chart canvas")).to_be_visible()


def test_stopping_a_tune_keeps_the_adapter(open_page):
    page = trained(open_page, {"tune_hold": 7})
    page.fill("#tune-text", "words " * 50)
    page.click("#tune-start")
    expect(page.locator("#tune-step")).to_have_text("7 of 40")
    page.click("#tune-stop")
    expect(page.locator("#tune-status")).to_contain_text("Stopped after 7 steps. The adapter “my text” is saved, and on.")
    expect(page.locator("#tune-start")).to_be_focused()


def test_answers_typed_in(open_page):
    page = trained(open_page)
    page.check("#tune-how-pairs", force=True)
    page.fill("#tune-row-0-prompt", "Who is there?")
    page.click("#tune-start")
    error(page, "tune", "Row 1 has no “answer”")
    page.fill("#tune-row-0-response", "Nay, answer me.")
    page.click("#tune-rows-add")
    expect(page.locator("#tune-row-2-prompt")).to_be_focused()
    page.fill("#tune-row-2-prompt", "Long live?")
    page.fill("#tune-row-2-response", "The king!")
    page.check("#tune-how-preferences", force=True)
    expect(page.locator("#tune-beta")).to_be_visible()
    page.check("#tune-how-pairs", force=True)
    expect(page.locator("#tune-row-0-response")).to_have_value("Nay, answer me.")  # what was typed is still there
    page.click("#tune-row-1-remove")
    page.click("#tune-start")
    expect(page.locator("#tune-status")).to_contain_text("Finished 40 steps")
    page.click("#compare-start")
    expect(page.locator("#compare-stats")).to_contain_text("Done")
    page.uncheck("#compare-ask")
    page.click("#compare-start")
    heard(page, "compare.wrote", 4)
    assert [each.get("ask") for each in sent(page, "compare.start")] == [True, None]
    rows = [{"prompt": "Who is there?", "response": "Nay, answer me."}, {"prompt": "Long live?", "response": "The king!"}]
    assert sent(page, "tune.start")[0]["rows"] == rows


def test_preferences_from_a_file(open_page, tmp_path):
    page = trained(open_page)
    file = tmp_path / "better.jsonl"
    file.write_text(json.dumps({"prompt": "a", "chosen": "b", "rejected": "c"}) + "\n")
    page.set_input_files("#tune-file", file)
    error(page, "tune-data", "is not a text file")
    page.check("#tune-how-preferences", force=True)
    expect(page.locator("#tune-learning-rate")).to_have_value("0.0005")  # each kind has its own usual rate
    page.set_input_files("#tune-file", file)
    expect(page.locator("#tune-file-name")).to_contain_text("better.jsonl")
    expect(page.locator("#tune-rows-box")).to_be_hidden()
    page.fill("#tune-beta", "0.3")
    page.click("#tune-start")
    expect(page.locator("#tune-status")).to_contain_text("Finished 40 steps")
    expect(page.locator("#tune-accuracy")).to_have_text("75 %")
    [request] = sent(page, "tune.start")
    assert (request["how"], request["file_name"], request["buffer"]) == ("preferences", "better.jsonl", file.stat().st_size)
    assert request["training"]["beta"] == 0.3
    page.click("#tune-file-drop")
    expect(page.locator("#tune-rows-box")).to_be_visible()


@pytest.mark.parametrize(("field", "value", "words"), [
    ("tune-rank", "0", "“Rank” needs a whole number above 0"), ("tune-alpha", "", "“Alpha” needs a number above 0"),
    ("tune-steps", "1.5", "“Steps” needs a whole number"), ("tune-learning-rate", "-1", "“Learning rate” needs a number above 0"),
])
def test_settings_that_are_none(open_page, field, value, words):
    page = trained(open_page)
    page.fill("#tune-text", "words " * 50)
    page.fill(f"#{field}", value)
    page.click("#tune-start")
    error(page, "tune", words)
    assert sent(page, "tune.start") == []


def test_refusals_and_ends(open_page):
    page = trained(open_page, {"fail": {"tune": "The second text is too short: it has 12 tokens."}})
    page.fill("#tune-text", "short text")
    page.click("#tune-start")
    error(page, "tune", "too short")
    expect(page.locator("#tune-start")).to_be_visible()
    page = trained(open_page, {"fail": {"tune_at": 9}})
    page.fill("#tune-text", "words " * 50)
    page.click("#tune-start")
    expect(page.locator("#tune-status")).to_contain_text("The tune has ended early, after 9 steps")
    expect(page.locator("#tune-error")).to_contain_text("infinite")
    expect(page.locator("#forgetting")).to_be_hidden()


def test_adapters_are_chosen_and_changed(open_page):
    page = trained(open_page, {"adapters": [ADAPTER, OTHER, STRANGE, UNKEPT]})
    expect(page.locator("#adapters-list li")).to_have_count(5)
    expect(page.locator("#adapter-item-unkept button")).to_have_text(["Merge", "Export"])
    expect(page.locator("#adapter-old-facts")).to_contain_text("rank 4 · from a text · step 200 of 200 · loss 1.900 · 8,192 parameters · 41.0 kB")
    assert page.is_disabled("#adapter-strange")
    page.check("#adapter-old")
    heard(page, "adapters", 2)
    expect(page.locator("#tune-status")).to_contain_text("with the adapter “Dickens”")
    expect(page.locator("#write-model")).to_contain_text("with the adapter “Dickens”")
    page.evaluate("(() => { const box = document.getElementById('strength'); box.value = '1.5'; box.dispatchEvent(new Event('input')); })()")
    expect(page.locator("#strength-value")).to_have_text("1.50")
    page.wait_for_function("sent.some((each) => each.kind === 'adapters.strength')")
    assert sent(page, "adapters.strength")[-1]["strength"] == 1.5
    expect(page.locator("#compare-tuned-title")).to_have_text("Tuned: Dickens at 1.50")
    page.focus("#adapter-old")
    page.keyboard.press("ArrowDown")
    expect(page.locator("#tune-status")).to_contain_text("“Austen”")
    expect(page.locator("#strength-value")).to_have_text("1.00")
    page.click("#adapter-other-rename")
    page.fill("#adapter-other-name", "Jane")
    page.keyboard.press("Enter")
    expect(page.locator("label[for=adapter-other]")).to_have_text("Jane")
    page.click("#adapter-old-delete")
    expect(page.locator("#adapter-old-keep")).to_be_focused()
    page.click("#adapter-old-delete-sure")
    expect(page.locator("#adapters-list li")).to_have_count(4)
    with page.expect_download() as download:
        page.click("#adapter-other-export")
    assert download.value.suggested_filename == "Jane.zip"
    page.click("#adapter-other-merge")
    expect(page.locator("#adapters-lead")).to_contain_text("Merged into a new run, “shakespeare-medium with Jane”")
    page.check("#adapter-none")
    expect(page.locator("#tune-status")).not_to_contain_text("adapter")
    assert [each["adapter_id"] for each in sent(page, "adapters.use")] == ["old", "other", ""]


def test_deleting_a_run_tells_of_its_adapters(open_page):
    page = open_page(fake={"runs": [RUNS[0] | {"adapters": 2}]})
    page.click("#tab-runs")
    expect(page.locator("#run-a .facts")).to_contain_text("2 adapters")
    page.click("#run-a-delete")
    expect(page.locator("#run-a .question")).to_contain_text("and its 2 adapters for good?")


def test_an_adapter_that_cannot_be_used(open_page, tmp_path):
    page = trained(open_page, {"adapters": [ADAPTER], "fail": {"use": "It was made for another model.", "adapter": "This is no adapter: it holds no adapter_config.json."}})
    page.click("#adapter-old")
    error(page, "adapters", "made for another model")
    assert page.is_checked("#adapter-none")
    file = tmp_path / "thing.zip"
    file.write_bytes(b"PK nothing")
    page.set_input_files("#adapters-import", file)
    error(page, "adapters", "no adapter_config.json")


def test_importing_by_dropping(open_page):
    page = trained(open_page)
    page.evaluate("""() => {
        const data = new DataTransfer();
        data.items.add(new File(['PK'], 'verse.zip'));
        for (const kind of ['dragenter', 'dragover', 'drop']) document.body.dispatchEvent(new DragEvent(kind, { dataTransfer: data, bubbles: true, cancelable: true }));
    }""")
    expect(page.locator("#adapters-list")).to_contain_text("verse")


def test_the_trainer_ends_in_a_tune(open_page):
    page = trained(open_page, {"tune_hold": 5})
    page.fill("#tune-text", "words " * 50)
    page.click("#tune-start")
    expect(page.locator("#tune-step")).to_have_text("5 of 40")
    page.evaluate("tell({ kind: 'test.post', event: { kind: 'failed', code: 'worker', fatal: true, message: 'The trainer has ended.' } })")
    expect(page.locator("#page-error")).to_contain_text("The trainer has ended.")
    expect(page.locator("#tune-start")).to_be_visible()
    page.wait_for_function("navigator.locks.query().then((locks) => locks.held.length === 0)")


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_labels_and_width(open_page, width, scheme):
    page = trained(open_page, {"adapters": [ADAPTER, STRANGE]}, viewport={"width": width, "height": 740}, color_scheme=scheme, reduced_motion="reduce")
    page.check("#adapter-old")
    expect(page.locator("#tune-status")).to_contain_text("with the adapter")
    page.check("#tune-how-pairs", force=True)
    page.click("#tune-start")
    expect(page.locator("#tune-error")).to_contain_text("nothing to learn")
    page.check("#tune-how-text", force=True)
    page.fill("#tune-text", "words " * 50)
    page.click("#tune-start")
    expect(page.locator("#forgetting")).to_be_visible()
    page.click("#memorise-start")
    expect(page.locator("#memorise-result")).to_be_visible()
    page.click("#adapter-old-delete")
    page.evaluate("document.querySelectorAll('main details').forEach((each) => { each.open = true; })")
    assert page.evaluate(CONTRAST) == []
    assert page.evaluate(UNLABELLED) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
