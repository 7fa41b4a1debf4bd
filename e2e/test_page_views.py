"""Write and Runs, on the fake trainer."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from e2e.conftest import SLOW, error, phase, quiet, sent, stepping

SAVED = {"step": 600, "steps": 2000, "preset": "medium", "parameters": 842496, "validation_loss_nats": 1.93, "bytes": 10_100_000, "resumable": True}
RUNS = [
    {"run_id": "a", "name": "hamlet", "updated": 1_790_000_000, **SAVED},
    {"run_id": "b", "name": "diary", "updated": 1_780_000_000, **SAVED, "step": 2000},
    {"run_id": "c", "name": "broken", **SAVED, "corrupt": True},
]


def names(page: Page) -> list[str]:
    return page.locator("#runs-list h2").all_inner_texts()


def show_runs(page: Page) -> None:
    """The Runs view with the list that going there asks for: until it comes, the list is drawn anew once more."""
    page.click("#tab-runs")
    quiet(page)


@pytest.fixture
def runs_page(open_page) -> Page:
    page = open_page(fake={"runs": RUNS, "hold": 5}, path="#runs")
    expect(page.locator("#run-a")).to_be_visible()
    return page


def test_write_needs_a_model(open_page):
    page = open_page(fake={}, path="#write")
    page.click("#write-start")
    error(page, "write", "There is no model yet")


def test_write_while_training(open_page):
    page = open_page(fake=SLOW)
    page.click("#train-start")
    stepping(page, 3)
    page.click("#tab-write")
    expect(page.locator("#write-model")).to_contain_text("while it trains")
    page.fill("#write-prompt", "JULIET:")
    page.fill("#write-tokens", "300")
    page.fill("#write-seed", "7")
    page.fill("#write-stop-text", r"\n\nEND\\")
    page.locator("#write-temperature").fill("0.5")
    page.click("#write-start")
    expect(page.locator("#write-text")).to_contain_text("héllo ROMEO")
    page.wait_for_selector("#write-start:visible")
    expect(page.locator("#write-stats")).to_contain_text("300 bytes · ")
    expect(page.locator("#write-stats")).to_contain_text("first after 12 ms")
    [request] = sent(page, "write.start")
    assert {key: value for key, value in request.items() if key not in ("kind", "id")} == {"prompt": "JULIET:", "tokens": 300, "temperature": 0.5, "top_k": 40, "top_p": 1, "min_p": 0, "repetition_penalty": 1, "seed": 7, "stop": ["\n\nEND\\"], "choices": 10}
    assert page.inner_text("#write-output").startswith("JULIET: héllo")
    assert page.evaluate("document.body.dataset.phase") == "running"


def test_write_stop_copy_and_failure(open_page):
    page = open_page(fake={"runs": RUNS, "gates": ["write"]}, permissions=["clipboard-read", "clipboard-write"])
    show_runs(page)
    page.click("#run-b-open")
    phase(page, "ended")
    page.click("#tab-write")
    page.fill("#write-tokens", "6000")
    page.keyboard.press("Tab")
    page.focus("#write-prompt")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#write-text")).to_contain_text("ROMEO")
    page.click("#write-stop")
    expect(page.locator("#write-stats")).to_contain_text("stopped by you")
    written = page.evaluate("document.getElementById('write-output').textContent")
    assert 0 < len(written) < 6000
    page.click("#write-copy")
    expect(page.locator("#write-stats")).to_have_text("Copied.")
    assert page.evaluate("navigator.clipboard.readText()") == written
    page.fill("#write-tokens", "")
    page.click("#write-start")
    error(page, "write", "The length needs a whole number")

    page = open_page(fake={"runs": RUNS, "fail": {"write": "The prompt has a letter this model does not know."}}, path="#runs")
    page.click("#run-a-open")
    phase(page, "ended")
    page.click("#tab-write")
    page.click("#write-start")
    error(page, "write", "The prompt has a letter")
    expect(page.locator("#write-start")).to_be_visible()


def test_open_and_continue(runs_page):
    page = runs_page
    page.click("#run-a-open")
    phase(page, "ended")
    expect(page.locator("#view-train")).to_be_visible()
    expect(page.locator("#run-title")).to_have_text("hamlet")
    expect(page.locator("#stat-step")).to_have_text("600 of 2,000")
    assert page.input_value("#train-extend-steps") == "1400"
    show_runs(page)
    page.click("#run-b-continue")
    phase(page, "running")
    assert [(each["run_id"], each["steps"]) for each in sent(page, "runs.continue")] == [("b", 500)]
    show_runs(page)
    page.click("#run-a-open")
    error(page, "runs", "A run is going. Stop it first")


def test_the_first_view_offers_to_go_on(open_page):
    page = open_page(fake={"runs": RUNS, "hold": 5})
    expect(page.locator("#resume-offer")).to_contain_text("“hamlet” is saved at step 600 of 2,000.")
    page.click("#resume-offer-go")
    phase(page, "running")
    expect(page.locator("#resume-offer")).to_be_hidden()
    assert sent(page, "runs.continue")[0]["steps"] == 1400


def test_rename(runs_page):
    page = runs_page
    page.click("#run-a-rename")
    expect(page.locator("#run-a-name")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("#run-a-rename")).to_be_focused()
    page.click("#run-a-rename")
    page.fill("#run-a-name", "<b>ophelia</b>")
    page.keyboard.press("Enter")
    expect(page.locator("#run-a h2")).to_have_text("<b>ophelia</b>")
    expect(page.locator("#run-a-rename")).to_be_focused()
    page.click("#run-a-rename")
    page.fill("#run-a-name", "  ")
    page.click("#run-a-rename-save")
    error(page, "runs", "A run needs a name.")


def test_duplicate_and_delete(runs_page):
    page = runs_page
    page.click("#run-a-duplicate")
    expect(page.locator("#runs-list h2")).to_have_text(["hamlet", "diary", "broken", "hamlet copy"])
    page.click("#run-a-delete")
    expect(page.locator("#run-a-keep")).to_be_focused()
    page.keyboard.press("Enter")
    assert "hamlet" in names(page) and not sent(page, "runs.delete")
    page.click("#run-a-delete")
    page.click("#run-a-delete-sure")
    expect(page.locator("#runs-list h2")).to_have_text(["diary", "broken", "hamlet copy"])


def test_a_damaged_run_can_only_be_deleted(runs_page):
    expect(runs_page.locator("#run-c")).to_contain_text("Its saved files cannot be read any more")
    assert runs_page.locator("#run-c button").all_inner_texts() == ["Delete"]


def test_export_and_history(runs_page):
    for way, name, size in (("as-safetensors", "hamlet.safetensors", 8), ("as-hf", "hamlet.zip", 8), ("as-gguf", "hamlet.gguf", 8), ("history", "hamlet.txt", 16)):
        if way != "history":
            runs_page.click("#run-a-export")
            assert runs_page.evaluate("document.activeElement.id") == "run-a-as-safetensors"
        with runs_page.expect_download() as download:
            runs_page.click(f"#run-a-{way}")
        assert download.value.suggested_filename == name
        expect(runs_page.locator("#runs-notice")).to_have_text("llama.cpp has only the other GELU." if way in ("as-gguf", "history") else "")
        assert download.value.path().stat().st_size == size


def test_import(open_page, tmp_path):
    file = tmp_path / "macbeth.safetensors"
    file.write_bytes(b"\0" * 64)
    page = open_page(fake={"runs": RUNS}, path="#runs")
    page.set_input_files("#runs-import", file)
    expect(page.locator("#runs-list h2").first).to_have_text("macbeth")
    page.set_input_files("#runs-import", file)  # the same file again counts
    expect(page.locator("#runs-list h2").nth(1)).to_have_text("macbeth")

    page = open_page(fake={"runs": RUNS, "fail": {"import": "“macbeth.safetensors” ends in the middle of its header, so it is not complete."}}, path="#runs")
    page.set_input_files("#runs-import", file)
    error(page, "runs", "ends in the middle of its header")
    assert names(page) == ["hamlet", "diary", "broken"]


def test_export_can_be_left_by_the_keyboard(runs_page):
    runs_page.click("#run-a-export")
    runs_page.keyboard.press("Escape")
    expect(runs_page.locator("#run-a-as-hf")).to_have_count(0)
    assert runs_page.evaluate("document.activeElement.id") == "run-a-export"
    assert not sent(runs_page, "runs.export")


def test_import_of_a_hugging_face_model(open_page, tmp_path):
    files = [tmp_path / name for name in ("config.json", "model.safetensors", "tokenizer.json")]
    for file in files:
        file.write_bytes(b"x" * 20)
    page = open_page(fake={"runs": RUNS}, path="#runs")
    page.set_input_files("#runs-import", files)
    expect(page.locator("#runs-list h2").first).to_have_text("config")
    [request] = sent(page, "runs.import_files")
    assert sorted(request["names"]) == ["config.json", "model.safetensors", "tokenizer.json"] and len(request["files"]) == 3
    archive = tmp_path / "gpt2.zip"
    archive.write_bytes(b"x")
    page.set_input_files("#runs-import", archive)
    expect(page.locator("#runs-list h2").first).to_have_text("gpt2")
    page.set_input_files("#runs-import", files[1])  # weights alone are taken for a run, which the trainer then judges
    expect(page.locator("#runs-list h2").first).to_have_text("model")


def test_empty_list(open_page):
    page = open_page(fake={}, path="#runs")
    expect(page.locator("#runs-empty")).to_be_visible()
