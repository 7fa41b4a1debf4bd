"""axe-core finds nothing serious or critical on any screen, light and dark, wide and narrow. A screen is a function below, marked
@screen, that leaves the fake trainer's page as it is to be looked at: to add one, write one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from e2e.conftest import SLOW, heard, phase, quiet, stepping
from e2e.test_page_access import show_everything
from e2e.test_page_compare import ADAPTER
from e2e.test_page_features import found
from e2e.test_page_improve import MANY, REASON, write
from e2e.test_page_improve import trained as learnt
from e2e.test_page_inside import looking
from e2e.test_page_runs import RUNS, compare
from e2e.test_page_tune import OTHER, STRANGE, UNKEPT, trained
from tools import downloads

LOOKS = [("light", 1280), ("dark", 390)]  # colours do not hang on the width, nor names on the scheme
SCREENS: dict[str, Callable[..., Page]] = {}
# An editor's colours are inverted by a filter in the dark, which axe does not reckon with: there they are looked at in the light alone.
FIND = """async () => (await axe.run({ exclude: matchMedia('(prefers-color-scheme: dark)').matches ? ['.editor'] : [] }, { resultTypes: ['violations'] })).violations
  .filter((each) => ['serious', 'critical'].includes(each.impact))
  .flatMap((each) => each.nodes.map((node) => `${each.id}: ${node.target.join(' ')} (${node.failureSummary.split('\\n').slice(1, 3).join('; ').trim()})`))"""


def screen(function: Callable[..., Page]) -> Callable[..., Page]:
    SCREENS[function.__name__] = function
    return function


@screen
def train_at_first(open_page, **options):
    return open_page(fake={"runs": RUNS}, **options)


@screen
def train_with_everything_open(open_page, **options):
    page = open_page(fake={}, **options)
    show_everything(page)
    page.check("#tokens-bpe", force=True)
    return page


@screen
def train_loading(open_page, **options):
    page = open_page(fake={"gates": ["boot"]}, wait=False, **options)
    page.click("#train-start")
    return page


@screen
def train_running(open_page, **options):
    page = open_page(fake={"hold": 60}, **options)
    page.click("#train-start")
    stepping(page, 50)
    page.click(".engine summary")
    return page


@screen
def train_paused(open_page, **options):
    page = open_page(fake=SLOW, **options)
    page.click("#train-start")
    stepping(page, 3)
    page.click("#train-pause")
    phase(page, "paused")
    return page


@screen
def train_ended(open_page, **options):
    page = open_page(fake={"steps": 20}, **options)
    page.click("#train-start")
    phase(page, "ended")
    return page


@screen
def train_refused(open_page, **options):
    page = open_page(fake={"fail": {"start": "There is not enough memory."}}, **options)
    page.click("#train-start")
    expect(page.locator("#train-error")).to_contain_text("memory")
    return page


@screen
def trainer_lost(open_page, **options):
    page = open_page(fake={"fail": {"boot": "The trainer could not start."}}, wait=False, **options)
    expect(page.locator("#page-error")).to_contain_text("could not start")
    return page


@screen
def write_at_first(open_page, **options):
    return open_page(fake={}, path="#write", **options)


@screen
def write_with_a_text(open_page, **options):
    page = learnt(open_page, view="write", **options)
    page.evaluate("document.querySelectorAll('#view-write details').forEach((each) => { each.open = true; })")
    page.check("#write-ask")
    write(page)
    page.click("#verdict-edit")
    return page


@screen
def tokens(open_page, **options):
    page = open_page(fake={"steps": 20}, **options)
    page.check("#tokens-bpe", force=True)
    expect(page.locator("#tokens-facts")).to_contain_text("1,024")
    page.click("#tab-tokens")
    quiet(page)
    page.evaluate("document.querySelectorAll('#view-tokens details').forEach((each) => { each.open = true; })")
    return page


@screen
def tune_at_first(open_page, **options):
    return open_page(fake={}, path="#tune", **options)


@screen
def tune_running(open_page, **options):
    page = trained(open_page, {"tune_hold": 12, "adapters": [ADAPTER, OTHER, UNKEPT, STRANGE]}, **options)
    page.evaluate("document.querySelectorAll('#view-tune details').forEach((each) => { each.open = true; })")
    page.fill("#tune-text", "It was the best of times. " * 40)
    expect(page.locator("#tune-facts")).to_contain_text("trainable")
    page.click("#tune-start")
    heard(page, "tune.step")
    return page


@screen
def tune_compared_and_checked(open_page, **options):
    page = trained(open_page, {"adapters": [ADAPTER]}, **options)
    page.check("#adapter-old")
    heard(page, "adapters", 2)
    page.click("#compare-start")
    expect(page.locator("#compare-stats")).to_contain_text("Done")
    page.click("#memorise-start")
    expect(page.locator("#memorise-verdict")).to_contain_text("it recites")
    page.click("#memorise-spans-box summary")
    return page


@screen
def improve_kept_aside(open_page, **options):
    page = learnt(open_page, {"records": MANY, "improve_reasons": [REASON]}, **options)
    page.click("#improve-start")
    heard(page, "improve.ended")
    page.evaluate("document.querySelectorAll('#view-tune details').forEach((each) => { each.open = true; })")
    return page


for name in ("attention", "lens", "next", "change", "flow"):

    def inside(open_page, view=name, **options):
        return looking(open_page, view, **options)

    SCREENS[f"inside_{name}"] = inside


@screen
def inside_at_first(open_page, **options):
    return open_page(fake={}, path="#inside", **options)


@screen
def inside_features(open_page, **options):
    return found(open_page, **options)


@screen
def inside_lens_in_the_making(open_page, **options):
    page = looking(open_page, "lens", {"gates": ["lens"]}, **options)
    page.click("#lens-train")
    expect(page.locator("#lens-tuned-says")).to_contain_text("Step 3")
    return page


@screen
def runs_none(open_page, **options):
    return open_page(fake={}, path="#runs", **options)


@screen
def runs_beside_each_other(open_page, **options):
    page = open_page(fake={"runs": RUNS}, path="#runs", **options)
    compare(page, "a", "b", "c")
    page.click("#beside-figures summary")
    return page


for name in ("rename", "marks", "delete", "export"):

    def runs(open_page, what=name, **options):
        page = open_page(fake={"runs": RUNS}, path="#runs", **options)
        page.click(f"#run-a-{what}")
        return page

    SCREENS[f"runs_{name}"] = runs


@screen
def learn_list(open_page, **options):
    page = open_page(fake={}, path="#learn", **options)
    expect(page.locator("#lesson h1")).to_be_visible()
    return page


for name in ("softmax", "scratch"):

    def learn(open_page, lesson=name, **options):
        page = open_page(fake={}, path=f"#learn/{lesson}", **options)
        expect(page.locator("#lesson h1")).to_be_visible()
        return page

    SCREENS[f"learn_{name}"] = learn


@pytest.mark.parametrize("name", SCREENS)
def test_nothing_serious(open_page, contexts, name):
    contexts.expected.append("The trainer could not start")
    page = SCREENS[name](open_page, viewport={"width": 1280, "height": 900}, color_scheme="light", reduced_motion="reduce")
    page.add_script_tag(path=downloads.package("axe-core") / "axe.min.js")
    found = {}
    for scheme, width in LOOKS:
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 900})
        found |= {f"{scheme} {width}": faults} if (faults := page.evaluate(FIND)) else {}
    assert not found, "\n".join(f"{look}: {fault}" for look, faults in found.items() for fault in faults)


def test_it_can_fail(open_page):
    page = open_page(fake={}, reduced_motion="reduce")
    page.add_script_tag(path=downloads.package("axe-core") / "axe.min.js")
    page.evaluate("document.getElementById('run-lead').style.color = '#aaa'; document.getElementById('train-start').textContent = ''")
    found = " ".join(page.evaluate(FIND))
    assert "color-contrast: #run-lead" in found and "button-name: #train-start" in found
