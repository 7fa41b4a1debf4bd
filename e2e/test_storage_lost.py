"""Storage that is taken away while a run goes, in a real tab with the real trainer."""

from __future__ import annotations

import pytest

from e2e.conftest import REAL_MS
from e2e.driver import Driver

pytestmark = pytest.mark.slow
TRAINING = {"steps": 100_000, "evaluate_every_steps": 5000}


@pytest.fixture
def tab(contexts, site) -> Driver:
    context = contexts()
    context.set_default_timeout(REAL_MS)
    made = Driver(context.new_page(), site.url)
    made.wait("ready")
    made.ask("settings", sample_every_seconds=0)
    made.call("corpus.text", "corpus", text="the cat sat on the mat. " * 300, name="cat")
    made.run = made.call("train.start", "started", preset="tiny", name="cat", training=TRAINING)["run_id"]
    made.wait("saved")
    return made


def again(tab: Driver, url: str) -> Driver:
    """Loaded anew."""
    fresh = Driver(tab.page, url)
    fresh.wait("ready")
    return fresh


def test_storage_that_is_taken_away_is_noticed_and_the_run_is_saved_anew(tab, site):
    cdp = tab.page.context.new_cdp_session(tab.page)
    tab.call("runs.mark", "runs", run_id=tab.run, tags=["night"], note="a note")
    tab.call("improve.record", "improve.recorded", what="correct", prompt="the cat", offered="", kept=" sat still")
    cdp.send("Storage.clearDataForOrigin", {"origin": tab.page.evaluate("location.origin"), "storageTypes": "all"})
    tab.ask("train.save")
    told = tab.wait("failed")
    assert told["code"] == "E-STORE-GONE" and "saved anew, from step" in told["message"]
    saved = tab.wait("saved")
    assert saved["run_id"] == tab.run
    tab.ask("train.stop")
    ended = tab.wait("stopped")
    assert ended["saved"]
    tab = again(tab, site.url)
    [row] = tab.call("runs.list", "runs")["runs"]
    assert row["step"] == ended["step"] and row["marks"] == {"tags": ["night"], "note": "a note"}
    opened = tab.call("runs.open", "opened", run_id=row["run_id"])
    assert opened["corpus"]["available"]
    assert tab.call("improve.list", "improve.records")["total"] == 1
