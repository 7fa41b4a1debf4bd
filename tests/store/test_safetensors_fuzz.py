"""Random and mutated safetensors files: ours and the library agree, and nothing but FormatError ever comes out."""

import json

import pytest

from posttrainllm.errors import FormatError
from posttrainllm.store.checkpoint import Checkpoint
from posttrainllm.store.safetensors import DTYPE_BYTES, SafeTensors, encode
from tests.store.samples import checkpoint, file_of

pytest.importorskip("hypothesis", reason="hypothesis is not among Pyodide's packages here")
library = pytest.importorskip("safetensors", reason="the safetensors library is a native wheel, which Pyodide lacks")

from hypothesis import given, settings
from hypothesis import strategies as st

BOUNDED = settings(max_examples=300, deadline=None, derandomize=True)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=12).filter(lambda name: name != "__metadata__")


@st.composite
def tensors(draw):
    made = []
    for name in draw(st.lists(NAMES, max_size=5, unique=True)):
        dtype = draw(st.sampled_from(sorted(DTYPE_BYTES)))
        shape = tuple(draw(st.lists(st.integers(0, 3), max_size=3)))
        count = DTYPE_BYTES[dtype]
        for size in shape:
            count *= size
        made.append((name, dtype, shape, draw(st.binary(min_size=count, max_size=count))))
    return made


@BOUNDED
@given(tensors(), st.dictionaries(NAMES, st.text(st.characters(exclude_categories=["Cs"]), max_size=20), max_size=3))
def test_what_we_write_both_read_alike(made, metadata):
    data = b"".join(encode(made, metadata))
    ours, theirs = SafeTensors(data), dict(library.deserialize(data))
    assert ours.metadata == {"format": "pt", **metadata}
    assert ours.tensors.keys() == theirs.keys() == {name for name, *_ in made}
    for name, dtype, shape, raw in made:
        assert (ours[name].dtype, ours[name].shape, bytes(ours[name].view())) == (dtype, shape, raw)
        assert (theirs[name]["dtype"], tuple(theirs[name]["shape"]), bytes(theirs[name]["data"])) == (dtype, shape, raw)


def outcome(data):
    """(ours accepts, theirs accepts)"""
    try:
        SafeTensors(data)
        ours = True
    except FormatError:
        ours = False
    try:
        library.deserialize(data)
        theirs = True
    except library.SafetensorError:
        theirs = False
    return ours, theirs


FIELD = st.one_of(
    st.integers(-2, 20), st.none(), st.booleans(), st.floats(allow_nan=False), st.text(max_size=3),
    st.lists(st.integers(-1, 9), max_size=3), st.sampled_from(["F32", "U8", "BF16", "I64"]),
)  # fmt: skip
ENTRY = st.fixed_dictionaries(
    {
        "dtype": st.one_of(st.sampled_from(["U8", "F32", "BF16"]), FIELD),
        "shape": st.one_of(st.lists(st.integers(0, 3), max_size=2), FIELD),
        "data_offsets": st.one_of(st.tuples(st.integers(0, 9), st.integers(0, 9)).map(list), FIELD),
    }
)


@BOUNDED
@given(st.dictionaries(st.sampled_from(["a", "b", "c"]), ENTRY, max_size=3), st.integers(0, 20))
def test_what_we_accept_the_library_accepts(header, count):
    ours, theirs = outcome(file_of(header, bytes(count)))
    assert ours <= theirs
    if theirs and not ours:  # only the strictnesses that safetensors.py lists; none of them can be drawn here
        raise AssertionError(f"refused what the library takes: {json.dumps(header)}")


WHOLE = checkpoint().to_bytes()


@BOUNDED
@given(st.integers(0, len(WHOLE) - 1), st.integers(0, 255), st.integers(0, len(WHOLE)))
def test_a_changed_byte_or_a_cut_never_raises_anything_else(at, value, end):
    changed = bytearray(WHOLE)
    changed[at] = value
    for data in (bytes(changed), WHOLE[:end], bytes(changed[:end])):
        try:
            Checkpoint.from_safetensors(data)
        except FormatError as error:
            assert len(str(error)) < 600
    ours, theirs = outcome(bytes(changed))
    assert ours <= theirs


@BOUNDED
@given(st.binary(max_size=200))
def test_noise_is_refused_in_a_sentence(noise):
    for data in (noise, file_of(noise), file_of(b"{" + noise + b"}")):
        ours, theirs = outcome(data)
        assert ours <= theirs
