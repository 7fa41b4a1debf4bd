"""Looking inside with the real trainer on Chromium's software GPU: the same numbers as on the CPU engine, and nothing held up by a run."""

from __future__ import annotations

import base64
from array import array

import pytest

from e2e.driver import Driver
from e2e.test_gpu_engine import driver, open_worker, start, use  # noqa: F401 - the first two are fixtures

TEXT = "To be or"
TOLERANCE = 2e-4  # float32 sums in another order
REQUESTS = {
    "attention": {"text": TEXT},
    "lens": {"text": TEXT},
    "next": {"text": TEXT},
    "change": {"text": TEXT, "what": "heads", "how": "mean"},
    "flow": {"text": TEXT, "position": 5},
    "heads": {},
}
WORDS = {"lens": "rows", "next": "choices", "change": "answer", "flow": "position", "heads": "meanings", "attention": "labels"}


def looks(driver: Driver) -> dict[str, dict]:  # noqa: F811
    found = {kind: driver.call(f"inside.{kind}", f"inside.{kind}", **fields) for kind, fields in REQUESTS.items()}
    for event in found.values():
        if "buffer" in event:
            event["numbers"] = list(array("f", base64.b64decode(event.pop("buffer"))))
    return found


def test_the_same_as_on_the_cpu_engine(driver):  # noqa: F811
    use(driver, "cpu")
    start(driver, 12)
    assert driver.wait("stopped")["reason"] == "finished"
    on_cpu = looks(driver)
    use(driver, "webgpu")
    on_gpu = looks(driver)
    for kind, event in on_cpu.items():
        other = on_gpu[kind]
        assert event[WORDS[kind]] == other[WORDS[kind]], kind
        assert event.get("arrays") == other.get("arrays"), kind
        if "numbers" in event:
            assert other["numbers"] == pytest.approx(event["numbers"], rel=TOLERANCE, abs=TOLERANCE), kind
    assert on_gpu["next"]["probability"] == pytest.approx(on_cpu["next"]["probability"], rel=TOLERANCE)
    assert on_gpu["lens"]["loss_nats"] == pytest.approx(on_cpu["lens"]["loss_nats"], rel=TOLERANCE)
    for kind, scores in on_cpu["heads"]["scores"].items():
        assert len(scores) == on_cpu["heads"]["layers"] == len(on_gpu["heads"]["scores"][kind])
        for layer, row in enumerate(scores):
            assert on_gpu["heads"]["scores"][kind][layer] == pytest.approx(row, abs=TOLERANCE), (kind, layer)

    # The run kept its snapshots on the CPU engine; the lens goes through them beside the GPU, which has the live model.
    sharpened = driver.call("inside.sharpening", "inside.sharpening", text=TEXT)
    assert sharpened["steps"] == [0, 12] and len(sharpened["loss_nats"]) == 2
    assert sharpened["loss_nats"][-1] == pytest.approx(on_gpu["lens"]["loss_nats"], rel=TOLERANCE)

    # While a run goes on that GPU: between its steps, with steps before and after.
    driver.ask("train.extend", steps=20)
    driver.wait("step")
    looked = looks(driver)
    assert 12 < looked["attention"]["step"] < 32
    assert looked["flow"]["numbers"] != on_gpu["flow"]["numbers"]
    stopped = driver.wait("stopped")
    assert (stopped["reason"], stopped["step"]) == ("finished", 32)

    # Trained on the GPU from its first step on, it keeps them too, after whichever step of some together is the first from 16 on.
    start(driver, 20)
    assert driver.wait("stopped")["reason"] == "finished"
    sharpened = driver.call("inside.sharpening", "inside.sharpening", text=TEXT)
    assert len(sharpened["steps"]) == 3 and 16 <= sharpened["steps"][1] < 20 and (sharpened["damaged"], sharpened["adapter"]) == ([], False)
    first, *later = (losses[-1] for losses in sharpened["loss_nats"])
    assert first > 5 and max(later) < first - 1

    # What a search for features took of the GPU is given back; the model answers, is looked into and trains on after it.
    before = looks(driver)["lens"]["numbers"]
    found = driver.call("features.train", "features.trained", features=64, k=4, steps=20)
    assert (found["features"], found["training"]["step"], found["step"]) == (64, 20, 20) and found["recovered"]["tokens"] > 0
    rows = driver.call("features.list", "features.list", count=3)["rows"]
    one = driver.call("features.feature", "features.feature", index=rows[0]["index"])
    assert one["contexts"][0]["activations"][one["contexts"][0]["at"]] == pytest.approx(rows[0]["most"], rel=TOLERANCE)
    assert looks(driver)["lens"]["numbers"] == before
    driver.ask("train.extend", steps=10)
    assert driver.wait("features.outdated")["outdated"]
    assert driver.wait("stopped")["step"] == 30
