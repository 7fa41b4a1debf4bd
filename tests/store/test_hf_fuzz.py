"""Folders and archives that anybody may have written: nothing but UserError comes out, quickly, and with no more memory than they have."""

import io
import json
import time
import tracemalloc
import zipfile

import pytest

from posttrainllm.errors import UserError
from posttrainllm.store import hf
from tests.store.hf_samples import BPE, OTHER, PLAIN, by_hand, checkpoint, folder_of

pytest.importorskip("hypothesis", reason="hypothesis is not among Pyodide's packages here")
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.native_only(reason="its bounds on time and memory are CPython's; the code is the same")
BOUNDED = settings(max_examples=200, deadline=None, derandomize=True)
FILES = folder_of(checkpoint(OTHER, BPE))
SETTINGS = json.loads(FILES["config.json"])
TOKENIZER = json.loads(FILES["tokenizer.json"])
ROOM_BYTES = 24 << 20
"""Beside the file itself: what parsing and a piece of 4 MiB take."""
ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3), max_leaves=6,
)  # fmt: skip


def survives(read, *given_):
    """Whether it was read; nothing else than UserError, a sentence of a line or two, and bounded time and memory."""
    tracemalloc.start()
    began = time.monotonic()
    try:
        found = read(*given_)
        for tensor in found.weights.values():
            tensor.view()
        return True
    except UserError as error:
        assert len(str(error)) < 700
        return False
    finally:
        size = sum(map(len, given_[0].values())) if isinstance(given_[0], dict) else len(given_[0])
        assert tracemalloc.get_traced_memory()[1] < 4 * size + ROOM_BYTES
        tracemalloc.stop()
        assert time.monotonic() - began < 10


@BOUNDED
@given(st.sampled_from(sorted(SETTINGS)), ANY)
def test_any_value_in_config_json(key, value):
    survives(hf.read, FILES | {"config.json": json.dumps(SETTINGS | {key: value}).encode()})


@BOUNDED
@given(st.sampled_from(["added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder", "truncation", "model"]), ANY)
def test_any_value_in_tokenizer_json(key, value):
    survives(hf.read, FILES | {"tokenizer.json": json.dumps(TOKENIZER | {key: value}).encode()})


@BOUNDED
@given(st.sampled_from(["vocab", "merges", "type", "dropout"]), ANY)
def test_any_value_in_its_model(key, value):
    survives(hf.read, FILES | {"tokenizer.json": json.dumps(TOKENIZER | {"model": TOKENIZER["model"] | {key: value}}).encode()})


@BOUNDED
@given(ANY, st.dictionaries(st.text(max_size=8), st.text(max_size=12), max_size=3))
def test_any_index(value, places):
    rest = {name: data for name, data in FILES.items() if name != "model.safetensors"}
    for whole in (value, {"weight_map": value}, {"weight_map": places}):
        assert not survives(hf.read, rest | {"model.safetensors.index.json": json.dumps(whole).encode(), "a.safetensors": FILES["model.safetensors"]})


@BOUNDED
@given(st.sampled_from(sorted(FILES)), st.integers(0, 4000), st.integers(0, 255), st.integers(0, 4000))
def test_a_changed_byte_or_a_cut_in_any_file(name, at, value, end):
    changed = bytearray(FILES[name])
    changed[at % len(changed)] = value
    for data in (bytes(changed), FILES[name][: end % len(FILES[name])]):
        survives(hf.read, FILES | {name: data})


@BOUNDED
@given(st.sampled_from(sorted(FILES)), st.binary(max_size=100))
def test_noise_for_any_file(name, noise):
    survives(hf.read, FILES | {name: noise})


@BOUNDED
@given(st.binary(max_size=300), st.binary(max_size=60))
def test_noise_for_the_older_tokenizer_files(vocabulary, merges):
    rest = {name: data for name, data in FILES.items() if name != "tokenizer.json"}
    survives(hf.read, rest | {"vocab.json": vocabulary})
    survives(hf.read, rest | {"merges.txt": merges})


def packed(method):
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w", method) as archive:
        for name, data in by_hand(PLAIN).items():
            archive.writestr(f"gpt2/{name}", data)
    return memory.getvalue()


ZIPS = {"stored": packed(zipfile.ZIP_STORED), "deflated": packed(zipfile.ZIP_DEFLATED)}
TAIL = 700
"""The central directory stands at an archive's end: half of the changes go there."""


@settings(BOUNDED, max_examples=300)
@given(st.sampled_from(sorted(ZIPS)), st.integers(0, 1 << 20), st.binary(min_size=1, max_size=8), st.booleans())
def test_changed_bytes_in_an_archive(which, at, noise, late):
    data = bytearray(ZIPS[which])
    at = len(data) - 1 - at % TAIL if late else at % len(data)
    data[at : at + len(noise)] = noise[: len(data) - at]
    survives(hf.read_zip, bytes(data))
    survives(hf.read_zip, bytes(data[:at]))


@BOUNDED
@given(st.binary(max_size=200))
def test_noise_for_an_archive(noise):
    assert not survives(hf.read_zip, noise)
    assert not survives(hf.read_zip, b"PK\3\4" + noise)


def test_an_archive_that_would_burst_is_refused_before_it_does():
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in by_hand(PLAIN).items():
            archive.writestr(name, data if name != "tokenizer.json" else b" " * (200 << 20))
    data = memory.getvalue()
    assert len(data) < 400_000
    assert not survives(hf.read_zip, data)


def test_whole_folders_and_archives_are_read():
    """What the rest of this file is about must be able to pass."""
    assert survives(hf.read, FILES) and all(survives(hf.read_zip, data) for data in ZIPS.values())
