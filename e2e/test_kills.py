"""The browser is killed at random moments of saves, of promotions and of updates, and started again on the same profile.

Nothing may be lost but what came after the last save that was told of: the run list is sound, the newest save loads and has the bits of
a run that was never cut off, corrections and versions are all there, and the site is wholly one version of it, without a server too.

A few kills run with the other browser tests. `./build.sh test endurance -k kill` kills 200 times (PTL_KILLS=n: so many) and writes
bench/results/kills.json after each kill.
"""

from __future__ import annotations

import hashlib
import json
import os
import statistics
import time
from random import Random

import pytest

from bench import host as machine
from e2e.conftest import DIST, fake_trainer
from e2e.driver import Driver, same_state
from e2e.kills import DIGESTS, FILL, HEADS, SAVING, UPDATE, Chromium, fresh
from e2e.sites import Host
from posttrainllm.backends.native import CpuMachine
from posttrainllm.data.corpus import Corpus
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.live import GPT
from posttrainllm.model.program import Program
from posttrainllm.store.checkpoint import Checkpoint
from posttrainllm.train.state import checkpoint_of
from posttrainllm.train.trainer import Trainer
from tools import paths

LONG = bool(os.environ.get("PTL_ENDURANCE"))
TOTAL = int(os.environ.get("PTL_KILLS") or (200 if LONG else 4))
KINDS = {"save": TOTAL - 2 * (3 * TOTAL // 10 or 1), "promotion": 3 * TOTAL // 10 or 1, "update": 3 * TOTAL // 10 or 1}
SEED = 7
RECORD = paths.REPO / "bench" / "results" / "kills.json"
SETTINGS = {"steps": 10_000_000, "warmup_steps": 10, "decay_steps": 50, "evaluate_every_steps": 1_000_000, "evaluation_tokens": 2048}
IMPROVE = {  # a small candidate that any gate lets through: what is killed here is the writing, not the learning
    "sft_steps": 8, "dpo_steps": 1, "measure": {"base_tokens": 1024, "probe_passages": 2, "memorise_prefixes": 8, "memorise_bytes": 4096},
    "gate": {"held_out_margin_nats": 0.0, "held_out_wins": 0.0, "base_rise_nats": 100.0, "probe_rise_nats": 100.0, "probe_worst_rise_nats": 100.0,
             "recital_rise": 1.0, "copied_rise_bytes": 4096, "answers_rise_bytes": 4096, "held_out_above_base_nats_per_byte": 100.0},
}  # fmt: skip
pytestmark = [pytest.mark.slow, pytest.mark.endurance]


@pytest.fixture
def profile(tmp_path):
    yield fresh(tmp_path / "profile")
    for chromium in list(Chromium.living):
        chromium.kill()


@pytest.fixture
def playwright(browser):
    """The same driver that the other tests have: there is one to a process."""
    return _OfBrowser(browser)


class _OfBrowser:
    def __init__(self, browser):
        self.chromium = browser.browser_type


@pytest.fixture(scope="module")
def rows():
    """What each kill found; the record grows by it."""
    kept: list[dict] = []
    yield kept


def note(rows: list[dict], kind: str, **found) -> None:
    rows.append({"kind": kind, **found})
    if not LONG:
        return
    of = {name: [row for row in rows if row["kind"] == name] for name in KINDS}
    RECORD.write_text(
        json.dumps(
            {"command": "./build.sh test endurance -k kill" if TOTAL == 200 else f"PTL_ENDURANCE=1 PTL_KILLS={TOTAL} pytest e2e/test_kills.py",
             "host": machine.facts(), "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "seed": SEED,
             "planned": KINDS, "kills": {name: len(each) for name, each in of.items()},
             "inside": "save: a slot had no header after the kill, so it was being written; promotion, update: the kill came before the answer",
             "killed_inside": {name: sum(row["inside"] for row in each) for name, each in of.items()},
             "faults": [row for row in rows if row.get("fault")], "rows": rows}, indent=1,
        ) + "\n"
    )  # fmt: skip


class Uncut:
    """The same run natively, never cut off: what the run in the tab must be at each step."""

    def __init__(self) -> None:
        config = GPTConfig.preset("tiny")
        self._model = GPT(config, CpuMachine(1), Program(config))
        self._model.initialise(42)
        self._trainer = Trainer(self._model, Corpus.shakespeare(), SETTINGS)

    def at(self, step: int) -> Checkpoint:
        """Its state at a step; they are asked for in order."""
        assert step >= self._trainer.step, "the run has gone back"
        if step > self._trainer.step:
            for _ in self._trainer.run(step):
                pass
        return checkpoint_of(self._trainer, "native")


def saved_steps(driver: Driver) -> list[dict]:
    return [event for event in driver.page.evaluate("events") if event["kind"] == "saved"]


def test_kills_in_the_middle_of_saves(playwright, site, profile, rows):
    draw, uncut, told, run_id = Random(SEED), Uncut(), 0, ""
    for number in range(KINDS["save"] + 1):
        chromium = Chromium(playwright, profile)
        chromium.page.goto(site.url + "licences.txt")
        heads = chromium.page.evaluate(HEADS, run_id) if run_id else {}
        driver = Driver(chromium.page, site.url)
        [*runs] = driver.wait("ready")["runs"]
        driver.ask("settings", sample_every_seconds=0, save_every_seconds=3600)
        if not run_id:
            driver.call("corpus.bundled", "corpus")
            driver.ask("train.start", preset="tiny", training=SETTINGS)
            run_id = driver.wait("started")["run_id"]
        else:
            [row] = runs
            inside = not all(each["head"] for each in heads.values())
            assert row["run_id"] == run_id and row["state"] == "good" and row["resumable"], row
            opened = driver.call("runs.open", "opened", run_id=run_id)
            assert opened["step"] == row["step"] >= told, (opened["step"], row["step"], told)
            assert not opened.get("recovered") and "damaged" not in json.dumps(opened.get("note", "")), opened
            assert same_state(driver.checkpoint(run_id), uncut.at(opened["step"])), f"other bits at step {opened['step']}"
            note(rows, "save", inside=inside, told_step=told, opened_step=opened["step"], delay_seconds=delay, save_seconds=took, slots=heads)
            told = opened["step"]
            if number == KINDS["save"]:
                chromium.close()
                break
            driver.ask("runs.continue", run_id=run_id)
            driver.wait("started")
        chromium.page.wait_for_function("events.some((event) => event.kind === 'step')")
        chromium.page.evaluate(SAVING)
        chromium.page.wait_for_function("saves > 12")
        took = round(statistics.median(event["seconds"] for event in saved_steps(driver)), 5)
        delay = round(draw.uniform(0, 0.5), 4)
        chromium.page.wait_for_timeout(1000 * delay)
        told = max([told, *(event["step"] for event in saved_steps(driver))])
        time.sleep(draw.uniform(0, 2 * took))  # the last answer came between two saves more often than not
        chromium.kill()


def improved(driver: Driver, run_id: str) -> dict:
    """What the worker says of the open run's corrections and versions."""
    listed = driver.call("improve.list", "improve.records", count=200)
    versions = driver.call("improve.history", "improve.versions")
    return {"records": {row["id"]: row for row in listed["rows"]}, "total": listed["total"], "note": listed["note"],
            "numbers": [each["number"] for each in versions["versions"]], "in_use": versions["in_use"] or 0, "on": versions["on"] or 0,
            "promoted": all(each["promoted"] for each in versions["versions"])}  # fmt: skip


OPERATIONS = ("improve", "improve", "record", "use")
ENDS = {"improve": "improve.ended", "record": "improve.recorded", "use": "improve.versions"}


def begin(driver: Driver, what: str, number: int, known: dict) -> int:
    if what == "improve":
        return driver.ask("improve.start", settings=IMPROVE)
    if what == "record":
        return driver.ask("improve.record", what="correct", prompt=f"Question {number}?", offered="No.", kept=f"Answer {number}. " + "It is so. " * 400)
    return driver.ask("improve.use", version=0 if known["in_use"] else max(known["numbers"], default=0))


def test_kills_in_the_middle_of_promotions(playwright, site, profile, rows):
    draw, run_id, known, taken = Random(SEED + 1), "", {}, {what: [] for what in ENDS}
    for number in range(KINDS["promotion"] + 1):
        chromium = Chromium(playwright, profile)
        driver = Driver(chromium.page, site.url)
        [*runs] = driver.wait("ready")["runs"]
        if not run_id:
            driver.call("corpus.bundled", "corpus")
            driver.ask("train.start", preset="tiny", training=SETTINGS | {"steps": 20, "decay_steps": 20})
            run_id = driver.wait("stopped")["run_id"]
            lines = [{"what": "correct", "prompt": f"Where is thing {at * at}?", "offered": "No.", "kept": f"By door {at * 7}, my lord."} for at in range(30)]
            driver.call("improve.import", "improve.imported", text="".join(json.dumps(line) + "\n" for line in lines))
            weights = hashlib.sha256(b"".join(bytes(value.view()) for value in driver.checkpoint(run_id).weights.values())).hexdigest()
        else:
            [row] = runs
            assert row["run_id"] == run_id and row["state"] == "good", row
            driver.call("runs.open", "opened", run_id=run_id)
            found = improved(driver, run_id)
            before, after = known["total"], known["total"] + (what == "record")
            assert found["total"] in (before, after), (what, found["total"], before)
            assert all(found["records"].get(each) == record for each, record in known["records"].items()), "a correction is gone, or other"
            newest = max(known["numbers"], default=0)
            assert found["numbers"] in (known["numbers"], [newest + 1, *known["numbers"]] if what == "improve" else None), (what, found, known["numbers"])
            assert found["promoted"] and found["on"] == found["in_use"], found
            could = {known["in_use"]} | ({newest + 1} if newest + 1 in found["numbers"] else set())
            if what == "improve" and newest + 1 in found["numbers"]:
                could = {newest + 1}  # the version and that it is in use are one record
            if what == "use":
                could |= {0 if known["in_use"] else newest}
            assert found["in_use"] in could, (what, found["in_use"], could)
            now = hashlib.sha256(b"".join(bytes(value.view()) for value in driver.checkpoint(run_id).weights.values())).hexdigest()
            assert now == weights, "the base's weights are other"
            changed = (found["total"], found["numbers"], found["in_use"]) != (known["total"], known["numbers"], known["in_use"])
            note(rows, "promotion", what=what, inside=not ended, after=changed, cut_off=found["note"], delay_seconds=delay, versions=len(found["numbers"]))
            if number == KINDS["promotion"]:
                chromium.close()
                break
        known = improved(driver, run_id)
        what = draw.choice(OPERATIONS) if taken["improve"] else "improve"
        if not taken[what]:  # how long it takes: measured once, without a kill
            began = time.perf_counter()
            driver.wait(ENDS[what], reply_to=begin(driver, what, 10_000 + number, known))
            taken[what].append(time.perf_counter() - began)
            known = improved(driver, run_id)
        asked = begin(driver, what, number, known)
        # The verdict is written at an improvement's end: two kills in three fall into its last fifth.
        share = draw.uniform(0.8, 1.05) if what == "improve" and draw.random() < 0.67 else draw.uniform(0, 1.0)
        delay = round(share * statistics.median(taken[what]), 4)
        time.sleep(delay)
        ended = chromium.page.evaluate("([kind, to]) => events.some((event) => event.kind === kind && event.reply_to === to)", [ENDS[what], asked])
        chromium.kill()


CHANGED = ("style.css", "index.html", "boot.mjs", "posttrainllm.zip", "licences.txt")


def publish(site: Host, number: int) -> tuple[str, dict]:
    """A new version in which some files are other; (its name, digest of each file)."""
    for name in CHANGED[:-1]:
        path = site.folder / name
        data = path.read_bytes().split(b"\n<!-- kill", 1)[0].split(b"\n/* kill", 1)[0].split(b"\n// kill", 1)[0].split(b"PADDING", 1)[0]
        ends = {"css": f"\n/* kill {number} */", "html": f"\n<!-- kill {number} -->", "mjs": f"\n// kill {number}", "zip": f"PADDING{number}" + "x" * 3_000_000}
        path.write_bytes(data + ends[name.rsplit(".", 1)[-1]].encode())
    site.change("licences.txt", f"version {number}\n" * 20_000)
    listed = (site.folder / "precache.json").read_bytes()
    return hashlib.sha256(listed).hexdigest()[:16], {entry["url"]: entry["sha256"] for entry in json.loads(listed)}


def test_kills_in_the_middle_of_updates(playwright, tmp_path, profile, rows):
    draw, taken = Random(SEED + 2), {}
    site = Host(DIST, tmp_path / "site", fake_trainer({"steps": 20}), isolated=True).start()
    version, new = publish(site, 0)
    chromium = Chromium(playwright, profile)
    chromium.page.goto(site.url + "licences.txt")
    assert chromium.page.evaluate(FILL, version), "the first version is stored whole"
    for number in range(1, KINDS["update"] + 1):
        serving = new
        version, new = publish(site, number)
        phases = ["install", "take-over", "turn"]
        what = draw.choice(phases) if taken else "turn"
        before = phases[: phases.index(what)]
        if not taken:  # how long each takes: measured once, on a version of its own
            for at, phase in enumerate(phases):
                began = time.perf_counter()
                chromium.page.evaluate(UPDATE, [version, phases[: at + 1] if at < 2 else ["turn"]])
                taken[phase] = time.perf_counter() - began
            version, new = publish(site, 10_000 + number)
        if before:
            chromium.page.evaluate(UPDATE, [version, before])
            serving = new if what == "turn" else serving
        old = chromium.page.evaluate(DIGESTS, list(new)) if what != "take-over" else serving
        delay = round(draw.uniform(0, 1.0) * taken[what], 4)
        chromium.page.evaluate("(all) => { (%s)(all).catch(() => {}); }" % UPDATE, [version, [what]])
        time.sleep(delay)
        done = chromium.page.evaluate("window.reached") == what
        chromium.kill()

        site.stop()
        chromium = Chromium(playwright, profile)
        chromium.page.goto(site.url + "licences.txt")
        found = chromium.page.evaluate(DIGESTS, list(new))
        which = [name for name, files in (("new", new), ("old", old)) if found == files] or ["previous"]
        if which == ["previous"]:
            assert what == "turn", {url: (found[url][:8], new[url][:8], old[url][:8]) for url in new if found[url] not in (new[url], old[url])}
        mixed = {url for url in new if found[url] not in (new[url], old[url])}
        assert what == "turn" or not mixed, mixed
        number_of = chromium.page.evaluate("fetch('licences.txt').then((found) => found.text())").split("\n")[0]
        stamps = chromium.page.evaluate("(name) => fetch(name).then((found) => found.text())", "boot.mjs").rsplit("// kill ", 1)[-1]
        assert number_of == f"version {stamps}", "files of two versions"
        assert all(len(digest) == 64 for digest in found.values()), "a file is missing without a server"
        if number in (1, KINDS["update"]) or number % 10 == 0:
            chromium.page.goto(site.url)
            chromium.page.wait_for_selector("#engine.ready")
        site.start()
        note(rows, "update", what=what, inside=not done, served=which[0], delay_seconds=delay, phase_seconds=round(taken[what], 4))
        chromium.page.goto(site.url + "licences.txt")
        version, new = publish(site, 20_000 + number)
        assert chromium.page.evaluate(UPDATE, [version, ["install", "take-over"]]) == "take-over", "no later update gets through"
        assert chromium.page.evaluate(DIGESTS, list(new)) == new
    chromium.close()
    site.stop()
