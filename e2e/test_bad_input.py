"""Everything wrong a person can give the trainer gets its own sentence, and the trainer goes on working."""

from __future__ import annotations

import json
import struct

import pytest
from e2e.conftest import profile
from e2e.driver import Driver

TEXT = ("The quality of mercy is not strain'd, it droppeth as the gentle rain from heaven. " * 120).encode()


@pytest.fixture(scope="module")
def trainer(browser, site):
    """One trainer for this whole file: it must outlive all that is thrown at it."""
    context = profile(browser)
    made = Driver(context.new_page(), site.url)
    made.wait("ready")
    yield made
    context.close()


@pytest.fixture
def driver(trainer):
    yield (made := trainer)
    # Whatever came before, it still trains and writes.
    made.call("corpus.file", "corpus", name="mercy.txt", data=TEXT)
    made.ask("train.start", preset="tiny", training={"steps": 3, "warmup_steps": 1})
    assert made.wait("stopped")["reason"] == "finished"
    made.ask("write.start", prompt="The", tokens=5)
    assert made.wait("wrote")["tokens"] == 5


def refused(driver: Driver, kind: str, **fields) -> dict:
    """The failure that a request gets."""
    return driver.wait("failed", reply_to=driver.ask(kind, **fields))


FILES = {
    "empty": (b"", "E-DATA-EMPTY"),
    "blank": (b" \n\t\n", "E-DATA-EMPTY"),
    "binary": (b"\x7fELF\x02\x01\x01\0\0\0" + bytes(500), "E-DATA-ENCODING"),
    "utf-16": (("mercy " * 500).encode("utf-16"), "E-DATA-ENCODING"),
    "latin-1": (("caf\u00e9 " * 500).encode("latin-1"), "E-DATA-ENCODING"),
}


@pytest.mark.parametrize("name", FILES)
def test_files_that_are_no_text(driver, name):
    data, code = FILES[name]
    failure = refused(driver, "corpus.file", name=f"{name}.txt", data=data)
    assert failure["code"] == code and f"{name}.txt" in failure["message"] and failure["message"].endswith(".")


def test_a_text_of_50_megabytes_is_taken_with_a_word_about_its_length(driver):
    driver.page.evaluate(
        "text => { const n = Math.ceil(5e7 / text.length); const bytes = new TextEncoder().encode(text.repeat(n));"
        "worker.postMessage({ kind: 'corpus.file', id: 900, name: 'huge.txt', buffer: bytes.buffer }, [bytes.buffer]); }",
        TEXT.decode(),
    )
    facts = driver.wait("corpus", reply_to=900)
    assert facts["bytes"] >= 50_000_000
    assert any("long" in sentence for sentence in driver.call("plan", "planned", preset="tiny")["warnings"])


def test_a_text_that_is_small_for_the_model_is_said_to_be(driver):
    driver.call("corpus.text", "corpus", text="To be, or not to be. " * 40)
    assert any("small for the model" in sentence for sentence in driver.call("plan", "planned", preset="medium")["warnings"])


def test_a_text_shorter_than_the_context(driver):
    driver.call("corpus.text", "corpus", text="Too short.")
    failure = refused(driver, "train.start", preset="medium")
    assert failure["code"] == "E-DATA-SHORT" and "129" in failure["message"]


CONFIG = {"layers": 2, "channels": 48, "heads": 3, "context": 32, "batch": 4}
SIZES = {
    "no layers": {"layers": 0},
    "heads that do not divide": {"heads": 5},
    "negative": {"channels": -48},
    "half a layer": {"layers": 1.5},
    "absurd": {"layers": 10**9},
    "not a number": {"context": "long"},
    "unknown": {"colour": 3},
}


@pytest.mark.parametrize("case", SIZES)
def test_sizes_that_make_no_model(driver, case):
    for kind in ("plan", "train.start"):
        failure = refused(driver, kind, config=CONFIG | SIZES[case])
        assert failure["code"] == "E-CONFIG" and str(next(iter(SIZES[case]))) in failure["message"]


SETTINGS = {"steps": 0, "learning_rate": -1, "warmup_steps": 10**8, "clip": "tight", "colour": 3}


@pytest.mark.parametrize("name", SETTINGS)
def test_training_settings_out_of_range(driver, name):
    failure = refused(driver, "train.start", preset="tiny", training={name: SETTINGS[name]})
    assert failure["code"] == "E-CONFIG" and name in failure["message"]


def test_a_plan_larger_than_the_memory_is_refused_with_the_numbers(driver):
    driver.call("corpus.bundled", "corpus")
    big = {"layers": 48, "channels": 1600, "heads": 25, "context": 1024, "batch": 8}
    planned = driver.call("plan", "planned", config=big)
    assert planned["fits"] is False and "MB" in planned["reason"]
    failure = refused(driver, "train.start", config=big)
    assert failure["code"] == "E-CONFIG-PLAN" and f"{planned['memory']['total_bytes']:,}"[:3] in failure["message"]


def test_sampler_settings_and_prompts_out_of_range(driver):
    driver.call("corpus.file", "corpus", name="mercy.txt", data=TEXT)
    driver.ask("train.start", preset="tiny", training={"steps": 2, "warmup_steps": 1})
    driver.wait("stopped")
    for field, value in {"temperature": -1, "top_p": 0, "top_k": -3, "tokens": 0, "min_p": 2}.items():
        failure = refused(driver, "write.start", prompt="The", **{field: value})
        assert failure["code"] == "E-CONFIG" and field in failure["message"]
    assert refused(driver, "write.start", prompt="")["code"].startswith("E-DATA")


def header(entries: dict) -> bytes:
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text


HOSTILE = {
    "empty": b"",
    "short": b"\x10\0\0",
    "header longer than the file": struct.pack("<Q", 1 << 40) + b"{}",
    "header of 2^63": struct.pack("<Q", 1 << 63) + b"{}",
    "not JSON": struct.pack("<Q", 4) + b"{{{{",
    "overlap": header({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}, "b": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}}) + bytes(12),
    "absurd shape": header({"a": {"dtype": "F32", "shape": [1 << 62, 1 << 62], "data_offsets": [0, 8]}}) + bytes(8),
    "foreign": header({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}) + bytes(8),
    "a picture": b"\x89PNG\r\n\x1a\n" + bytes(100),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_files_that_are_no_run(driver, case):
    before = driver.call("runs.list", "runs")["runs"]
    failure = refused(driver, "runs.import", name=f"{case}.safetensors", data=HOSTILE[case])
    assert failure["code"].startswith("E-FORMAT") and failure["message"].endswith(".")
    assert driver.call("runs.list", "runs")["runs"] == before


def test_a_truncated_export_is_refused_and_the_run_it_came_from_is_unharmed(driver):
    driver.call("corpus.file", "corpus", name="mercy.txt", data=TEXT)
    driver.ask("train.start", preset="tiny", training={"steps": 2, "warmup_steps": 1})
    run_id = driver.wait("stopped")["run_id"]
    whole = driver.export(run_id)
    for length in (len(whole) // 2, len(whole) - 1):
        assert refused(driver, "runs.import", name="half", data=whole[:length])["code"].startswith("E-FORMAT")
    assert {row["state"] for row in driver.call("runs.list", "runs")["runs"]} == {"good"}
    assert driver.export(run_id) == whole


def test_a_full_disk_is_told_training_goes_on_and_the_last_save_stays(contexts, site):
    page = contexts().new_page()
    driver = Driver(page, site.url)
    driver.wait("ready")
    driver.ask("train.start", preset="tiny", training={"steps": 2, "warmup_steps": 1})
    run_id = driver.wait("stopped")["run_id"]
    good = driver.export(run_id)
    devtools = page.context.new_cdp_session(page)
    origin = site.url.rstrip("/")
    devtools.send("Storage.overrideQuotaForOrigin", {"origin": origin, "quotaSize": 1000})
    driver.ask("train.start", preset="small", training={"steps": 2, "warmup_steps": 1})
    failure = driver.wait("failed")
    assert failure["code"] == "E-STORE-QUOTA" and failure["message"].endswith(".")
    assert driver.wait("stopped")["step"] == 2  # the run itself was not harmed
    devtools.send("Storage.overrideQuotaForOrigin", {"origin": origin})
    assert driver.export(run_id) == good


def test_unknown_requests_and_fields(driver):
    assert refused(driver, "train.faster")["code"] == "E-CONFIG"
    assert "colour" in refused(driver, "plan", colour="red")["message"]
    assert "run_id" in refused(driver, "runs.open")["message"]
    assert refused(driver, "runs.open", run_id="../../etc")["code"].startswith("E-STORE")
