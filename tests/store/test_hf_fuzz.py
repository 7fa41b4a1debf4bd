"""Folders and archives that anybody may have written: nothing but UserError comes out, quickly, and with no more memory than they have."""

import io
import json
import time
import tracemalloc
import zipfile
import zlib
from random import Random
from string import ascii_letters

import pytest

from posttrainllm.data.tokenizer_json import names_of
from posttrainllm.errors import UserError
from posttrainllm.store import hf
from posttrainllm.store.archive import MOST_TEXT_RATIO
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


TEXT_FACTOR, ZIP_FACTOR = 32, 200
"""Of a crafted tokenizer.json: peak memory over its size as it is, and deflated as far as is let through."""
VOCABULARY = json.dumps({name: at for at, name in enumerate(names_of([bytes((byte,)) for byte in range(256)], {}))}).encode()


def survives(read, *given_, factor=4, room=ROOM_BYTES):
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
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < factor * size + room
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


SMALL = {"model_type": "gpt2", "n_layer": 1, "n_embd": 8, "n_head": 1, "n_positions": 8, "vocab_size": 1 << 20}
LETTERS = [one + two + three + four for one in "ab" for two in ascii_letters for three in ascii_letters for four in ascii_letters][:130_000]
CRAFTED = {
    "texts": '["' + '","'.join(["Ġa"] * 150_000) + '"]', "pairs": "[" + ",".join(['["a","b"]'] * 150_000) + "]", "numbers": "[" + ",".join(["300"] * 200_000) + "]",
    "objects": "[" + ",".join(['{"a":0}   '] * 150_000) + "]", "lists": "[" + ",".join(["[]"] * 450_000) + "]",
    "names": '{"' + '":0,"'.join(LETTERS) + '":0}', "escapes": '["' + '","'.join(["\\\\"] * 150_000) + '"]',
}  # fmt: skip
"""Texts that cost most for their size, once parsed."""


def fitted(text):
    """A text packed about as small as archive.py allows: noise in it keeps the ratio just below."""
    packed, noise = len(zlib.compress(text)), Random(0).randbytes(len(text)).hex().encode()
    most = (MOST_TEXT_RATIO - 1) / MOST_TEXT_RATIO
    count = max(0, int((len(text) - most * MOST_TEXT_RATIO * packed) / (most * MOST_TEXT_RATIO / 2 - 1)))
    return b'{"noise":"' + noise[:count] + b'",' + text[1:]


def zipped_small(files):
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in ({"config.json": json.dumps(SMALL).encode(), "model.safetensors": b""} | files).items():
            archive.writestr(name, data)
    return memory.getvalue()


@pytest.mark.parametrize("which", CRAFTED)
def test_a_crafted_tokenizer_takes_a_stated_multiple_of_its_size(which):
    text = b'{"model":{"merges":' + CRAFTED[which].encode() + b',"end":"\xf0\x9f\x98\x80"}}'
    assert not survives(hf.read, {"config.json": json.dumps(SMALL).encode(), "tokenizer.json": text}, factor=TEXT_FACTOR, room=1 << 20)
    data = zipped_small({"tokenizer.json": fitted(text)})
    assert not survives(hf.read_zip, data, factor=ZIP_FACTOR, room=4 << 20)


@pytest.mark.parametrize("blank", [0, 4_000_000])
def test_a_header_of_more_than_the_model_can_have_is_not_parsed(blank):
    names = b",".join(b'"%06d":""' % at for at in range(300_000))
    header = b'{"__metadata__":{' + names + b',"p":"' + Random(0).randbytes(350_000).hex().encode() + b'"}}' + b" " * blank
    data = zipped_small({"model.safetensors": len(header).to_bytes(8, "little") + header, "vocab.json": VOCABULARY, "merges.txt": b""})
    assert not survives(hf.read_zip, data, factor=1, room=4 << 20)


def test_an_index_of_many_names_and_files_is_refused_at_once():
    rest = {name: data for name, data in FILES.items() if name != "model.safetensors"}
    for count, names in ((400, 400_000), (400, 1000), (33, 33)):
        places = {f"{'x' * 40}{at}": f"{at % count}.safetensors" for at in range(names)}
        empty = {f"{at}.safetensors": FILES["model.safetensors"] for at in range(count - 1)}
        index = json.dumps({"weight_map": places}).encode()
        began = time.monotonic()
        assert not survives(hf.read, rest | empty | {"model.safetensors.index.json": index})
        assert time.monotonic() - began < 1


def test_the_files_of_an_index_share_one_bound():
    """Masks are passed over wherever they are: their files' headers, each within the bound, must not add up."""
    config = json.dumps(SETTINGS | {"n_layer": 200}).encode()
    masks = [f"h.{layer}.attn.{kind}" for layer in range(200) for kind in ("bias", "masked_bias")]
    files = {}
    for at, name in enumerate(masks):
        header = json.dumps({name: {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}}).encode() + b" " * 100_000
        files[f"{at}.safetensors"] = len(header).to_bytes(8, "little") + header + bytes(4)
    index = json.dumps({"weight_map": {name: f"{at}.safetensors" for at, name in enumerate(masks)}}).encode()
    rest = {name: data for name, data in FILES.items() if name not in ("model.safetensors", "config.json")}
    with pytest.raises(UserError, match="together"):
        hf.read(rest | files | {"config.json": config, "model.safetensors.index.json": index})


def test_whole_folders_and_archives_are_read():
    """What the rest of this file is about must be able to pass."""
    assert survives(hf.read, FILES) and all(survives(hf.read_zip, data) for data in ZIPS.values())
