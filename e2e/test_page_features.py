"""Inside's Features on the fake trainer: finding, stopping, the list and its pages, a feature's places by pointer and keys, steering, the file."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from e2e.conftest import SLOW, error, heard, let_through, quiet, sent
from e2e.test_page_access import CONTRAST, UNLABELLED
from e2e.test_page_inside import looking
from e2e.test_page_views import RUNS


def finding(open_page, fake: dict | None = None, **options) -> Page:
    """A page on Features of a model that was just trained."""
    return looking(open_page, "features", fake, **options)


def found(open_page, fake: dict | None = None, **options) -> Page:
    """The same once features were found and the first is shown."""
    page = finding(open_page, fake, **options)
    page.click("#features-start")
    expect(page.locator("#feature-title")).to_have_text("Feature 3")
    return page


def asked(page, kind):
    return [{name: each[name] for name in each if name not in ("kind", "id")} for each in sent(page, kind)]


def test_settings_and_progress(open_page):
    page = finding(open_page, {"gates": ["features"]})
    expect(page.locator("#inside-strip-box")).to_be_hidden()
    assert not sent(page, "inside.features"), "the text is nothing to this view"
    page.fill("#features-width", "0")
    page.click("#features-start")
    error(page, "features", "“How many features” needs a whole number above 0")
    page.fill("#features-width", "64")
    page.select_option("#features-where", "mlp.out")
    page.click("#features-start")
    error(page, "features", "Give the layer’s number")
    page.fill("#features-layer", "1")
    page.select_option("#features-how", "l1")
    expect(page.locator("#features-k")).to_be_hidden()
    page.fill("#features-l1", "0.5")
    page.fill("#features-steps", "2000")
    page.click("#features-start")
    expect(page.locator("#features-stats")).to_have_text("Training, step 1,000 of 2,000: 8.0 fire at a token, 91.3 % explained, error 0.0871, 12.5 % of features dead")
    assert page.evaluate("document.getElementById('features-progress').position") == 0.5
    let_through(page, "features")
    expect(page.locator("#features-stats")).to_have_text("Done: step 2,000.")
    expect(page.locator("#features-facts")).to_contain_text("Of blocks.1.mlp.out: 45 of 64 features fire in 16,384 tokens. On text it has not seen the loss is 1.500 nats; through the features 1.625, with nothing there 3.500")
    expect(page.locator("#features-says")).to_contain_text("keeps 93.8 % of what")
    assert asked(page, "features.train") == [{"how": "l1", "l1": 0.5, "features": 64, "steps": 2000, "address": "blocks.1.mlp.out"}]


def test_stopping_shows_what_there_is(open_page):
    page = finding(open_page, {"gates": ["features"]})
    page.click("#features-start")
    expect(page.locator("#features-stats")).to_contain_text("step 500 of 1,000")
    page.click("#features-stop")
    expect(page.locator("#features-stats")).to_have_text("Stopped by you at step 500.")
    expect(page.locator("#features-start")).to_be_focused()
    expect(page.locator("#features-rows tr")).to_have_count(20)
    assert asked(page, "features.train") == [{"how": "topk", "k": 32, "features": 1024, "steps": 1000}]


def test_a_refusal(open_page):
    page = finding(open_page, {"fail": {"features": "The text that the model learned from is not here any more."}})
    page.click("#features-start")
    error(page, "features", "is not here any more")
    expect(page.locator("#features-start")).to_be_visible()
    expect(page.locator("#features-result")).to_be_hidden()


def test_the_list_a_page_at_a_time(open_page):
    page = found(open_page)
    rows = page.locator("#features-rows tr")
    expect(rows.first).to_have_text("31.25 %9.50")
    expect(page.locator("#features-page")).to_have_text("1 to 20 of 45")
    expect(page.locator("#features-back")).to_be_disabled()
    for words in ("21 to 40 of 45", "41 to 45 of 45"):
        page.click("#features-more")
        expect(page.locator("#features-page")).to_have_text(words)
    expect(page.locator("#features-more")).to_be_disabled()
    expect(rows).to_have_count(5)
    page.click("#features-back")
    expect(page.locator("#features-page")).to_have_text("21 to 40 of 45")
    page.select_option("#features-by", "frequency")
    expect(page.locator("#features-page")).to_have_text("1 to 20 of 45")
    expect(page.locator("#feature-title")).to_have_text("Feature 47")
    page.get_by_role("button", name="Feature 45", exact=True).click()
    expect(page.locator("#feature-title")).to_have_text("Feature 45")
    assert [(each["by"], each["first"]) for each in asked(page, "features.list")] == [("telling", 0), ("telling", 20), ("telling", 40), ("telling", 20), ("frequency", 0)]


def test_where_a_feature_fires(open_page):
    page = found(open_page)
    expect(page.locator("#feature-says")).to_contain_text("Fires at 1.25 % of tokens, with 9.50 at most.")
    lines = page.locator("#feature-contexts .context")
    expect(lines).to_have_count(2)
    expect(lines.first).to_have_text("O␣Romeo⏎<0>")
    expect(page.locator("#feature-contexts .hint").first).to_have_text("Fires at “R” 9.00, “o” 1.25.")
    assert lines.first.locator("span").nth(2).evaluate("(each) => Number(each.style.getPropertyValue('--share'))") == pytest.approx(9 / 9.5, abs=1e-3)
    readout = page.locator("#feature-readout")
    lines.nth(1).locator("span").nth(2).hover()
    expect(readout).to_have_text("At “R” it fires with 8.00.")
    page.focus("#features-more")
    page.keyboard.press("Tab")
    expect(lines.first).to_be_focused()
    expect(readout).to_have_text("At “R” it fires with 9.00.")
    page.keyboard.press("ArrowRight")
    expect(readout).to_have_text("At “o” it fires with 1.25.")
    page.keyboard.press("End")
    expect(readout).to_have_text("At “>” it does not fire.")
    expect(page.locator("#announce")).to_have_text("At “>” it does not fire.")
    expect(page.locator("#feature-promotes")).to_have_text("Makes likelier: “m” +1.50, “␣” +0.25")
    expect(page.locator("#feature-suppresses")).to_have_text("Makes less likely: “x” −2.00")


def test_writing_with_a_feature(open_page):
    page = found(open_page, {"gates": ["steer"]})
    expect(page.locator("#feature-shown")).to_have_text("1.00 times the most it fires by itself")
    page.focus("#feature-strength")
    page.keyboard.press("Home")
    expect(page.locator("#feature-shown")).to_have_text("−5.00 times the most it fires by itself")
    page.fill("#feature-prompt", "")
    page.click("#feature-write")
    error(page, "features", "Type something")
    page.fill("#feature-prompt", "JULIET:")
    page.click("#feature-write")
    expect(page.locator("#feature-output")).to_have_text("JULIET: at -47.50")
    page.click("#feature-write-stop")
    expect(page.locator("#feature-stats")).to_have_text("Stopped.")
    let_through(page, "steer")
    page.click("#feature-write")
    expect(page.locator("#feature-stats")).to_have_text("80 tokens.")
    assert asked(page, "features.write")[0] == {"prompt": "JULIET:", "index": 3, "strength": -47.5, "tokens": 80, "temperature": 0.8, "seed": 1}


def test_the_file(open_page):
    page = found(open_page)
    with page.expect_download() as waited:
        page.click("#features-export")
    assert waited.value.suggested_filename == "shakespeare-medium features.zip"


def outdated(page: Page, **fields) -> None:
    page.evaluate("(event) => tell({ kind: 'test.post', event: { kind: 'features.outdated', ...event } })", fields)


def test_the_model_has_moved_on(open_page):
    page = found(open_page)
    expect(page.locator("#features-outdated")).to_be_hidden()
    outdated(page, outdated=True, trained=True, step=20)
    expect(page.locator("#features-outdated")).to_have_text(
        "Out of date: these features are of step 20, and the model has been trained on. Find them anew to see it as it is now. What is shown, and the file, stay true of step 20."
    )
    expect(page.locator("#feature-contexts .context")).to_have_count(2)
    enabled = "[...document.querySelectorAll('#features-result :is(button, select, input, textarea)')].filter((each) => !each.disabled).map((each) => each.id)"
    assert page.evaluate(enabled) == ["feature-write-stop"]
    outdated(page, outdated=True, trained=False, step=20)
    expect(page.locator("#features-outdated")).to_contain_text("Out of date: these features are of the model with another adapter, or at another strength.")
    outdated(page, outdated=False, trained=False, step=20)
    expect(page.locator("#features-outdated")).to_be_hidden()
    expect(page.locator("#features-back")).to_be_disabled()
    page.click("#features-more")
    expect(page.locator("#features-page")).to_have_text("21 to 40 of 45")
    outdated(page, outdated=True, trained=True, step=20)
    page.click("#features-start")
    expect(page.locator("#features-stats")).to_have_text("Done: step 1,000.")
    expect(page.locator("#features-outdated")).to_be_hidden()
    page.click("#features-more")
    expect(page.locator("#features-page")).to_have_text("21 to 40 of 45")


def test_not_while_a_run_goes_nor_on_where_one_begins(open_page):
    page = finding(open_page, {"gates": ["features"]} | SLOW | {"steps": 20})
    page.click("#features-start")
    expect(page.locator("#features-stats")).to_contain_text("step 500 of 1,000")
    page.evaluate("tell({ kind: 'test.post', event: { kind: 'features.trained', stopped: true, features: 0, changed: true } })")
    expect(page.locator("#features-stats")).to_have_text("Ended: the model is not what it was when the search began.")
    page.click("#tab-train")
    page.click("#train-extend")
    page.click("#tab-inside")
    page.click("#features-start")
    error(page, "features", "A run is going. Stop it first: features are of weights that stand still.")


@pytest.mark.parametrize("recovered", [None, 0.5])
def test_what_cannot_be_told_and_another_text(open_page, recovered):
    page = found(open_page, {"recovered": recovered, "other_text": "Hamlet"})
    words = "How much the features keep cannot be told: with nothing there the model does no worse." if recovered is None else "the model keeps 50.0 % of what the numbers gave it."
    expect(page.locator("#features-says")).to_contain_text(words)
    expect(page.locator("#features-facts")).to_contain_text("Read on “Hamlet”, the text under Text: the one that the model learned from is not here.")


def test_another_model_has_none(open_page):
    page = found(open_page, {"runs": RUNS})
    page.check("#inside-view-attention", force=True)
    expect(page.locator("#inside-attention")).to_be_visible()
    expect(page.locator("#inside-features")).to_be_hidden()
    page.check("#inside-view-features", force=True)
    expect(page.locator("#feature-title")).to_be_visible()
    page.click("#tab-runs")
    quiet(page)
    page.click("#run-a-open")
    heard(page, "opened")
    page.click("#tab-inside")
    expect(page.locator("#inside-features")).to_be_visible()
    expect(page.locator("#features-result")).to_be_hidden()
    expect(page.locator("#features-export")).to_be_hidden()


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_labels_and_width(open_page, width, scheme):
    page = found(open_page, viewport={"width": width, "height": 740}, color_scheme=scheme, reduced_motion="reduce")
    page.click("#feature-write")
    expect(page.locator("#feature-stats")).to_have_text("80 tokens.")
    quiet(page)
    assert page.evaluate(CONTRAST) == []
    assert page.evaluate(UNLABELLED) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("gate", ["features", "steer"])
def test_the_keyboards_focus_is_not_lost(open_page, gate):
    page = (finding if gate == "features" else found)(open_page, {"gates": [gate]})
    start, stop = ("features-start", "features-stop") if gate == "features" else ("feature-write", "feature-write-stop")
    for ends in ("stopped", "by itself"):
        page.focus("#" + start)
        page.keyboard.press("Enter")
        expect(page.locator("#" + stop)).to_be_focused()
        if ends == "stopped":
            page.keyboard.press("Enter")
        else:
            let_through(page, gate)
        expect(page.locator("#" + start)).to_be_focused()


def test_what_to_begin_with_is_the_texts_until_the_person_types(open_page):
    page = found(open_page)
    expect(page.locator("#feature-prompt")).to_have_value("First Citizen:")
    page.fill("#feature-prompt", "JULIET:")
    page.click("#features-start")
    expect(page.locator("#features-stats")).to_have_text("Done: step 1,000.")
    expect(page.locator("#feature-title")).to_have_text("Feature 3")
    expect(page.locator("#feature-prompt")).to_have_value("JULIET:")
