"""Two tabs of the page in one browser, by the real trainer: neither takes from the other what it needs, and one that goes leaves its run to the other."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from e2e.conftest import REAL_MS, phase, stepping
from e2e.driver import Driver

pytestmark = pytest.mark.slow
BUSY = "another tab, or this one, has it open"
TRAINING = {"preset": "tiny", "training": {"steps": 100_000, "evaluate_every_steps": 5000}}
TEXTS = """async () => {
  const found = [];
  try { for await (const name of (await (await navigator.storage.getDirectory()).getDirectoryHandle('posttrainllm-texts')).keys()) found.push(name); } catch {}
  return found;
}"""


@pytest.fixture
def tabs(contexts, site):
    """Makes tabs of one profile, each with the real trainer and no page around it."""
    context = contexts()
    context.set_default_timeout(REAL_MS)

    def make() -> Driver:
        tab = Driver(context.new_page(), site.url)
        tab.wait("ready")
        tab.ask("settings", sample_every_seconds=0)
        return tab

    return make


def trains(tab: Driver, text: str, name: str, steps: int = 40) -> str:
    """A run on a text of its own, to its end; its id."""
    tab.call("corpus.text", "corpus", text=text, name=name)
    started = tab.call("train.start", "started", preset="tiny", name=name, training={"steps": steps, "evaluate_every_steps": 1000})
    tab.wait("stopped")
    return started["run_id"]


def refused(tab: Driver, kind: str, **fields) -> str:
    return tab.wait("failed", reply_to=tab.ask(kind, **fields))["message"]


def listed(tab: Driver) -> dict[str, dict]:
    return {run["run_id"]: run for run in tab.call("runs.list", "runs")["runs"]}


def test_what_one_tab_holds_the_other_leaves_alone(tabs):
    one, other = tabs(), tabs()
    first = trains(one, "the cat sat on the mat. " * 300, "cat")
    adapter = one.call("tune.start", "tune.started", how="text", text="the dog sat on the log. " * 200, name="dog", training={"steps": 20})["adapter_id"]
    one.wait("tune.stopped")
    one.call("improve.record", "improve.recorded", what="correct", prompt="the cat", offered="", kept=" sat still")
    held = listed(other)[first]
    assert held["name"] == "cat" and held["step"] == 40 and held["adapters"] == 1 and not held["live"]
    for kind, fields in (
        ("runs.open", {}), ("runs.continue", {"steps": 5}), ("runs.delete", {}), ("runs.rename", {"name": "mine"}), ("runs.mark", {"note": "mine"}),
        ("runs.duplicate", {}), ("runs.export", {}), ("runs.history", {}),
    ):  # fmt: skip
        assert BUSY in refused(other, kind, run_id=first, **fields), kind
    second = trains(other, "to be or not to be. " * 300, "hamlet")
    assert BUSY in refused(other, "runs.compare", run_ids=[first, second])
    assert set(listed(one)) == set(listed(other)) == {first, second}
    assert one.call("improve.list", "improve.records")["total"] == 1

    # What the other sweeps is not what the first still needs, and deleting what nobody holds takes nothing else along.
    texts = set(one.page.evaluate(TEXTS))
    other.call("runs.delete", "runs", run_id=second)
    assert texts == set(one.page.evaluate(TEXTS)), "the run's, the adapter's, and the one that is chosen in the other tab"
    one.call("runs.continue", "started", run_id=first, steps=5)
    one.wait("stopped")
    assert listed(other)[first]["step"] == 45

    # The tab is closed: its run, its adapter and its corrections are the other's now.
    one.page.close()
    opened = other.call("runs.open", "opened", run_id=first)
    assert opened["step"] == 45 and opened["corpus"]["available"]
    assert other.call("improve.list", "improve.records")["total"] == 1
    assert [each["adapter_id"] for each in other.call("adapters.list", "adapters")["adapters"]] == [adapter]
    other.call("runs.continue", "started", run_id=first, steps=5)
    assert other.wait("stopped")["step"] == 50


def test_both_train_and_save_and_a_text_in_use_is_not_swept(tabs):
    one, other = tabs(), tabs()
    gone = trains(other, "a text that goes. " * 300, "gone")
    for tab, text in ((one, "the cat sat on the mat. " * 300), (other, "to be or not to be. " * 300)):
        tab.call("corpus.text", "corpus", text=text, name="own")
        tab.run = tab.call("train.start", "started", name="own", **TRAINING)["run_id"]
    for _ in range(3):
        for tab in (one, other):
            tab.ask("train.save")
            assert tab.wait("saved")["run_id"] == tab.run
    steps = {}
    for tab in (one, other):
        tab.ask("train.stop")
        ended = tab.wait("stopped")
        assert ended["saved"]
        steps[tab.run] = ended["step"]
    found = listed(one)
    assert {run: found[run]["step"] for run in steps} == steps and found[gone]["step"] == 40
    for tab in (one, other):
        assert tab.checkpoint(tab.run).step == steps[tab.run]

    texts = set(one.page.evaluate(TEXTS))
    other.call("runs.delete", "runs", run_id=gone)
    left = set(one.page.evaluate(TEXTS))
    assert len(texts) == 3 and len(left) == 2 and left < texts


def test_the_page_says_that_a_run_is_open_in_another_tab(open_page):
    first = open_page()
    first.context.set_default_timeout(REAL_MS)
    first.check("#corpus-paste", force=True)
    first.fill("#corpus-text", "the cat sat on the mat. " * 300)
    first.check("#preset-tiny", force=True)
    first.fill("#setting-steps", "100000")
    first.click("#train-start")
    stepping(first, 5)
    second = first.context.new_page()
    second.goto(first.url.split("#")[0])
    second.wait_for_selector("#engine.ready")
    second.click("#tab-runs")
    item = second.locator("#runs-list li").first
    item.get_by_role("button", name="Open").click()
    expect(second.locator("#runs-error")).to_contain_text(BUSY)
    expect(second.locator("#runs-error")).to_contain_text("close it there first")
    item.get_by_role("button", name="Delete").click()
    second.locator("[id$=-delete-sure]").click()
    expect(second.locator("#runs-error")).to_contain_text(BUSY)
    expect(second.locator("#runs-list li")).to_have_count(1)
    stepping(first, 50)
    first.close()
    second.locator("#runs-list li").first.get_by_role("button", name="Open").click()
    phase(second, "ended")
    expect(second.locator("#run-status")).to_contain_text("Opened at step")
