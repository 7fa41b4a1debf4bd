"""A checkpoint comes back as it went; foreign, newer and contradictory files are refused in a sentence."""

import csv
import json
import math
import tracemalloc

import pytest

from posttrainllm.errors import FormatError, StoreVersionError
from posttrainllm.store.buffers import CHUNK_BYTES, FileRange, Tensor
from posttrainllm.store.checkpoint import FORMAT_VERSION, PREFIX, Checkpoint, history_text, thin, weights_sha256
from posttrainllm.store.safetensors import SafeTensors, encode
from tests.store.samples import Source, checkpoint, tensor


def same(a, b):
    """Every field equal, every tensor equal bit for bit."""
    for name in vars(a):
        left, right = getattr(a, name), getattr(b, name)
        if name in ("weights", "m", "v"):
            assert list(left) == list(right)
            for key in left:
                assert left[key].dtype == right[key].dtype and left[key].shape == right[key].shape
                assert bytes(left[key].view()) == bytes(right[key].view())
        else:
            assert left == right, name
    return True


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview, Source])
def test_round_trip_of_everything(wrap):
    original = checkpoint()
    original.created, original.updated = "2026-11-30T10:00:00Z", "2026-11-30T11:00:00Z"
    data = original.to_bytes()
    again = Checkpoint.from_safetensors(wrap(data))
    assert same(original, again) and again.resumable
    assert again.to_bytes() == data, "the same checkpoint gives the same bytes"
    assert weights_sha256(again.weights) == weights_sha256(original.weights)


def test_the_fields_that_must_survive_are_all_in_the_file():
    kept = {key.removeprefix(PREFIX) for key in SafeTensors(checkpoint().to_bytes()).metadata} - {"format"}
    wanted = "name config step tokenizer frozen adapter training schedule cursor rng corpus history created updated"
    assert kept == {*wanted.split(), "app_version", "format_version"}


def test_tensors_of_a_file_are_ranges_not_memory():
    again = Checkpoint.from_safetensors(Source(checkpoint().to_bytes()))
    groups = (again.weights, again.m, again.v)
    assert all(isinstance(value.data, FileRange) for group in groups for value in group.values())


def test_resumable_needs_both_moments_of_every_trained_weight():
    assert not checkpoint(moments=False).resumable
    half = checkpoint()
    del half.v["ln_f.bias"]
    assert not half.resumable
    half.frozen = ["ln_f.bias"]
    del half.m["ln_f.bias"]
    assert half.resumable, "a frozen weight needs none"
    again = Checkpoint.from_safetensors(checkpoint(moments=False).to_bytes())
    assert not again.resumable and again.m == {} and again.step == 3


def test_last_value_and_parameters():
    run = checkpoint()
    assert run.parameters == 15
    assert run.last("validation_loss_nats") == 5.5 and run.last("nothing") is None
    run.history.append({"event": "eval", "validation_loss_nats": None})
    assert run.last("validation_loss_nats") == 5.5


def test_floats_come_back_to_the_bit_and_non_finite_ones_as_none():
    run = checkpoint()
    run.history = [{"loss_nats": value} for value in (0.1, 1 / 3, 5e-324, 1.7976931348623157e308, -0.0)]
    again = Checkpoint.from_safetensors(run.to_bytes())
    for left, right in zip(run.history, again.history, strict=True):
        assert math.copysign(1, left["loss_nats"]) * left["loss_nats"] == abs(right["loss_nats"])
    run.history = [{"loss_nats": float("nan"), "gradient_norm": [float("inf"), 1.0]}]
    assert Checkpoint.from_safetensors(run.to_bytes()).history == [{"loss_nats": None, "gradient_norm": [None, 1.0]}]


def test_any_name_can_be_saved():
    for name in ("", "ü 漢 🙂", "half \ud83d", '"\\\n\x00', "x" * 10_000):
        assert Checkpoint.from_safetensors(checkpoint(name=name).to_bytes()).name == name


def rewritten(**fields):
    """A run's file whose metadata fields are replaced by these texts (None: left out)."""
    parsed = SafeTensors(checkpoint().to_bytes())
    metadata = dict(parsed.metadata)
    for name, text in fields.items():
        metadata.pop(PREFIX + name)
        if text is not None:
            metadata[PREFIX + name] = text
    return b"".join(encode([(name, *value) for name, value in parsed.tensors.items()], metadata))


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        ({"step": '"3"'}, "its field step is a whole number; it is text"),
        ({"step": "3.5"}, "its field step is a whole number; it is a number"),
        ({"step": "true"}, "its field step is a whole number; it is true or false"),
        ({"step": "-1"}, "its step is 0 or above"),
        ({"step": str(2**60)}, "below 2^53"),
        ({"step": "{"}, "its field step nests"),
        ({"step": ""}, "its field step is JSON"),
        ({"step": None}, "a run has the field step; it is missing"),
        ({"config": None}, "a run has the field config"),
        ({"config": "[]"}, "its field config is an object; it is a list"),
        ({"config": '{"layers": 1, "layers": 2}'}, "'layers' is there twice"),
        ({"config": '{"a":' * 40 + "1" + "}" * 40}, "its field config nests at most 32 deep"),
        ({"name": "null"}, "its field name is text; it is null"),
        ({"rng": '{"seed": NaN}'}, "NaN is not a JSON number"),
        ({"history": "{}"}, "its history is rows of values"),
        ({"history": '{"keys": [["a"]], "rows": [[0, 1, 2]]}'}, "they do not fit together"),
        ({"history": '{"keys": [["a"]], "rows": [[7, 1]]}'}, "they do not fit together"),
        ({"history": '{"keys": 3, "rows": []}'}, "they do not fit together"),
        ({"frozen": "[1]"}, "its field frozen lists names"),
        ({"format_version": "0"}, "its format_version is 1 or above"),
        ({"format_version": '"1"'}, "its format_version is 1 or above"),
    ],
)
def test_metadata_of_a_wrong_kind(fields, part):
    with pytest.raises(FormatError, match="^the run: ") as caught:
        Checkpoint.from_safetensors(rewritten(**fields))
    assert part in str(caught.value)
    assert caught.value.code == "E-FORMAT-METADATA"


def test_a_newer_version_says_so():
    with pytest.raises(StoreVersionError, match="it has format 2; reload the page or update"):
        Checkpoint.from_safetensors(rewritten(format_version=str(FORMAT_VERSION + 1)))


def test_a_foreign_file_says_so():
    data = b"".join(encode([("wte", "F32", (1,), bytes(4))], {}))
    with pytest.raises(FormatError, match="sound safetensors file of 1 tensors carries none") as caught:
        Checkpoint.from_safetensors(data)
    assert caught.value.code == "E-FORMAT-FOREIGN"


def test_moments_must_belong_to_weights():
    run = checkpoint()
    run.m["ghost"] = tensor(2)
    with pytest.raises(FormatError, match="'adamw.m.ghost' has none"):
        run.to_chunks()
    run = checkpoint()
    run.v["ln_f.bias"] = tensor(4)
    with pytest.raises(FormatError, match=r"has its weight's shape, \[3\]; it has \[4\]"):
        run.to_chunks()
    run = checkpoint()
    run.weights["adamw.m.x"] = tensor(1)
    with pytest.raises(FormatError, match="no weight's name begins with"):
        run.to_chunks()


def test_a_field_that_json_cannot_hold_is_refused_before_anything_is_written():
    for value in ({"a": object()}, {1: "x"}, {"a": [{2: 3}]}):
        run = checkpoint()
        run.cursor = value
        with pytest.raises(FormatError, match="its field cursor holds what JSON can"):
            run.to_chunks()


def test_a_save_and_a_load_hold_no_second_copy():
    """32 MiB of weights, streamed and read back in pieces: at most a few pieces of memory on top."""
    memory = bytearray(32 << 20)
    run = Checkpoint("big", {}, 1, {}, {"w": Tensor("F32", (len(memory) // 4,), memory)})
    target = bytearray(len(memory))
    tracemalloc.start()
    assert sum(len(chunk) for chunk in run.to_chunks()) > len(memory)
    data_peak = tracemalloc.get_traced_memory()[1]
    source = Source(run.to_bytes())
    tracemalloc.reset_peak()
    base = tracemalloc.get_traced_memory()[0]
    Checkpoint.from_safetensors(source).weights["w"].read_into(target)
    load_peak = tracemalloc.get_traced_memory()[1] - base
    tracemalloc.stop()
    assert data_peak < 200_000 and load_peak < 2 * CHUNK_BYTES + 200_000


def test_history_text_reads_back_as_csv():
    run = checkpoint(name='a "quoted", name')
    run.history.append({"event": "sample", "step": 4, "prompt": "ROMEO:", "text": 'O, "she"\ndoth teach'})
    lines = history_text(run).splitlines(keepends=True)
    facts = dict(line[2:].rstrip("\n").split(": ", 1) for line in lines if line.startswith("# "))
    assert json.loads(facts["run"]) == run.name and json.loads(facts["config"]) == run.config and facts["step"] == "3"
    rows = list(csv.DictReader(line for line in lines if not line.startswith("# ")))
    assert len(rows) == 3
    for row, original in zip(rows, run.history, strict=True):
        for key, value in row.items():
            expected = original.get(key, "")
            assert value == (expected if isinstance(expected, str) else json.dumps(expected))


def test_a_long_history_is_thinned_but_keeps_its_evaluations_and_its_end():
    rows = [{"event": "eval" if step % 100 == 0 else "step", "step": step} for step in range(10_000)]
    assert thin(rows, 10_000) is rows
    kept = thin(rows, 1000)
    assert 900 <= len(kept) <= 1100
    assert kept[-1] == rows[-1] and [row["step"] for row in kept] == sorted(row["step"] for row in kept)
    assert sum(row["event"] == "eval" for row in kept) == 100
    assert len(thin([{"event": "eval"}] * 10_000, 1000)) <= 1000


def test_weights_hash_depends_on_bytes_not_on_order():
    run = checkpoint()
    backwards = dict(reversed(run.weights.items()))
    assert weights_sha256(backwards) == weights_sha256(run.weights)
    assert weights_sha256(checkpoint(step=4).weights) != weights_sha256(run.weights)


def test_the_library_opens_a_saved_run():
    library = pytest.importorskip("safetensors", reason="a native wheel, which Pyodide lacks")
    found = dict(library.deserialize(checkpoint().to_bytes()))
    assert set(found) == {f"{group}{name}" for group in ("", "adamw.m.", "adamw.v.") for name in checkpoint().weights}
