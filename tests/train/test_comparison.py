"""Runs side by side: curves, tables, what differs, and files that say nonsense."""

import json
import math

import pytest

from posttrainllm.errors import ConfigError
from posttrainllm.train.comparison import BITS, MOST_POINTS, NATS, compare
from tests.store.samples import checkpoint


def run(name="a", steps=200, rate=3e-4, config=None, **more):
    """A run whose loss is 5 - step / 100 and whose validation loss, every 50 steps, is 0.1 above."""
    made = checkpoint(steps, name)
    made.config = {"layers": 2, "channels": 48, "heads": 3, "context": 32, "batch": 16, "vocabulary": 256} | (config or {})
    made.tokenizer = {"name": "bytes"}
    made.training = {"steps": steps, "learning_rate": rate}
    made.history = [
        {"step": step, "loss_nats": 5 - step / 100, "learning_rate": rate, "seconds": step / 10,
         "validation_loss_nats": 5.1 - step / 100 if step % 50 == 0 else None}
        for step in range(1, steps + 1)
    ]  # fmt: skip
    for field, value in more.items():
        setattr(made, field, value)
    return made


def test_curves_and_tables_say_the_figures():
    found = compare([run("a"), run("b", 400, 1e-3, {"batch": 8})])
    assert (found.names, found.steps, found.unit, found.along, found.notes) == (["a", "b"], [200, 400], NATS, ["step", "tokens", "seconds"], [])
    validation = found.curves["validation"]
    assert validation[0].step == [50, 100, 150, 200] and validation[0].tokens == [each * 512 for each in (50, 100, 150, 200)]
    assert validation[1].tokens[-1] == 400 * 256 and validation[1].seconds[-1] == 40
    table = found.table("validation", "step")
    assert table.places == [80, 120, 160, 200, 240, 280, 320, 360, 400] or table.places[-1] == 400
    by_place = dict(zip(table.places, table.rows, strict=True))
    assert by_place[200] == [pytest.approx(3.1), pytest.approx(3.1)] and by_place[400] == [None, pytest.approx(1.1)]
    assert table.ends == [pytest.approx(3.1), pytest.approx(1.1)]
    assert found.table("validation", "tokens").places[-1] == 400 * 256
    assert found.table("rate", "seconds").rows[0] == [3e-4, 1e-3]
    loss = found.curves["loss"][0]
    assert loss.value[0] == 4.99 and 3 < loss.value[-1] < 3.2, "a running mean lags a little behind"
    json.dumps(found.to_dict(), allow_nan=False)


def test_only_settings_that_differ_are_told_in_words():
    other = run("b", 400, 1e-3, {"batch": 8})
    other.corpus = {"name": "diary", "sha256": "cd" * 32}
    other.schedule = {"engine": "webgpu", "precision": "f16", "saving": {"micro_batches": 4, "recompute": 0}}
    found = {(each.group, each.label): each.values for each in compare([run("a"), other]).settings}
    assert found[("Model", "Batch")] == ["16", "8"] and found[("Training", "Learning rate")] == ["0.0003", "0.001"]
    assert found[("Text", "Name")] == ["shakespeare", "diary"] and found[("Engine", "Engine")] == ["", "GPU"]
    assert found[("Engine", "Precision")] == ["f32", "f16"] and found[("Saving memory", "Parts of a batch")] == ["1", "4"]
    assert not {("Model", "Layers"), ("Model", "Width"), ("Tokenizer", "Kind")} & found.keys()
    assert compare([run("a"), run("b")]).settings == []


def test_other_tokens_are_compared_by_bytes_where_that_can_be_said():
    bpe = {"name": "bpe", "vocabulary": 512, "json": "{}"}
    corpus = {"sha256": "ab" * 32, "bytes_per_token": 2.0, "evaluated_bytes_per_token": 2.0}
    found = compare([run("a"), run("b", tokenizer=bpe, corpus=corpus)])
    assert found.unit == BITS and "bits per byte" in found.notes[0]
    assert found.curves["validation"][0].value[0] == pytest.approx(4.6 / math.log(2))
    assert found.curves["validation"][1].value[0] == pytest.approx(4.6 / 2 / math.log(2))
    found = compare([run("a"), run("b", tokenizer=bpe)])
    assert found.unit == NATS and "do not compare" in found.notes[0]


def test_long_runs_are_thinned_and_keep_their_end():
    found = compare([run("a", 5000), run("b")])
    assert len(found.curves["loss"][0].step) <= MOST_POINTS and found.curves["loss"][0].step[-1] == 5000


@pytest.mark.parametrize("count", [0, 1, 9])
def test_how_many_is_said(count):
    with pytest.raises(ConfigError, match="2 to 8"):
        compare([run(str(at)) for at in range(count)])


def test_figures_and_axes_that_are_not_there_are_refused():
    found = compare([run("a"), run("b", config={"batch": None})])
    assert found.along == ["step", "seconds"]
    for metric, along in (("loss", "tokens"), ("norm", "step")):
        with pytest.raises(ConfigError):
            found.table(metric, along)


def test_nonsense_in_a_file_is_left_out():
    rows = [{"step": "1", "loss_nats": 2}, {"step": -1, "loss_nats": 2}, {"step": 3, "loss_nats": "<b>"}, {"step": 4, "loss_nats": True},
            {"step": 5, "loss_nats": 2.0, "seconds": "x"}, {"step": 5, "loss_nats": 9.0}, {"step": 1, "loss_nats": 9.0}, {}]  # fmt: skip
    odd = run("<img src=x>", history=rows, config={"batch": 10**400, "layers": [[]]}, training={"a" * 500: {"x": 1}}, corpus={"name": 3, "sha256": []}, schedule={"saving": 7, "engine": {}})
    found = compare([odd, run("b")])
    assert found.curves["loss"][0].step == [5] and found.along == ["step"]
    json.dumps(found.to_dict(), allow_nan=False)
    assert all(len(value) <= 120 for setting in found.settings for value in setting.values)
    found = compare([run("a", history=[]), run("b")])
    assert "no history" in found.notes[0] and found.table().rows
