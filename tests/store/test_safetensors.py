"""The safetensors reader refuses every broken file in its own words; the writer streams what the library reads."""

import json
import tracemalloc
from array import array

import pytest

from posttrainllm import errors
from posttrainllm.errors import FormatError
from posttrainllm.store.buffers import CHUNK_BYTES, FileRange, Tensor
from posttrainllm.store.safetensors import MAX_HEADER_BYTES, SafeTensors, encode
from posttrainllm.store.strict_json import MAX_BRACKETS, MAX_COMMAS, MAX_QUOTES
from tests.store.samples import Source, entry, file_of

LIBRARY_REASON = "the safetensors library is a native wheel, which Pyodide does not have"
TWO = {"a": entry(offsets=(0, 8)), "b": entry(offsets=(8, 16))}

# name: (file, code, a part of the sentence)
HOSTILE = {
    "empty": (b"", "SHORT", "has 0 bytes"),
    "seven bytes": (b"1234567", "SHORT", "has 7 bytes"),
    "header of length 0": (file_of(b""), "LENGTH", "length is 0"),
    "header larger than the file": (file_of({}, length=100), "LENGTH", "says 100 bytes of header"),
    "header of 2^64 - 1": (file_of({}, length=2**64 - 1), "LENGTH", "at most 100,000,000"),
    "header above 100 MB": (file_of({}, length=MAX_HEADER_BYTES + 1), "LENGTH", "at most 100,000,000"),
    "a text file": (b"First Citizen: Before we proceed any further", "LENGTH", "choose a .safetensors file"),
    "a zip file": (file_of(b"PK\x03\x04"), "HEADER", "begins with"),
    "not an object": (file_of(b"[1]"), "HEADER", "begins with {"),
    "spaces first": (file_of(b" {}"), "HEADER", "begins with {"),
    "not UTF-8": (file_of(b'{"\xff": 1}'), "HEADER", "byte 2 of it is not"),
    "not JSON": (file_of(b'{"a": }'), "HEADER", "its header is JSON"),
    "cut JSON": (file_of(b'{"a": "'), "HEADER", "closes what it opens"),
    "two objects": (file_of(b"{}{}"), "HEADER", "its header is JSON"),
    "NaN": (file_of(b'{"a": NaN}'), "HEADER", "NaN is not a JSON number"),
    "integer of 5000 digits": (file_of(b'{"a": ' + b"9" * 5000 + b"}"), "HEADER", "4300 digits"),
    "deeply nested": (file_of(b'{"a":' + b"[" * 50_000 + b"]" * 50_000 + b"}"), "HEADER", "nests at most 3"),
    "nested four deep": (file_of(b'{"a":{"b":[[1]]}}'), "HEADER", "nests at most 3"),
    "brackets without end": (file_of(b'{"a":[' + b"[]," * MAX_BRACKETS + b"[]]}"), "CROWDED", "has more"),
    "commas without end": (file_of(b'{"a":[' + b"0," * MAX_COMMAS + b"0,0]}"), "CROWDED", "has more"),
    "strings without end": (file_of(b'{"a":[' + b'"",' * (MAX_QUOTES // 2) + b'""]}'), "CROWDED", "quotation marks"),
    "a tensor twice": (file_of(b'{"a": 1, "b": 2, "a": 3}'), "DUPLICATE", "'a' is there twice"),
    "a field twice": (file_of(b'{"a": {"dtype": "F32", "dtype": "F32"}}'), "DUPLICATE", "'dtype' is there twice"),
    "half a surrogate pair": (file_of(b'{"\\ud800": 1}'), "HEADER", "half a surrogate pair"),
    "entry is a number": (file_of({"a": 1}), "ENTRY", "its entry is a number"),
    "entry without shape": (file_of({"a": {"dtype": "F32", "data_offsets": [0, 0]}}), "ENTRY", "exactly"),
    "entry with more": (file_of({"a": entry() | {"x": 1}}, bytes(8)), "ENTRY", "'x'"),
    "unknown dtype": (file_of({"a": entry("F33")}, bytes(8)), "DTYPE", "'F33'"),
    "dtype below a byte": (file_of({"a": entry("F4", (2,), (0, 1))}, bytes(1)), "DTYPE", "'F4'"),
    "dtype is a list": (file_of({"a": entry(["F32"])}, bytes(8)), "DTYPE", "['F32']"),
    "negative size": (file_of({"a": entry(shape=(-2,))}, bytes(8)), "SHAPE", "[-2]"),
    "size is a float": (file_of({"a": entry(shape=(2.0,))}, bytes(8)), "SHAPE", "[2.0]"),
    "size is true": (file_of({"a": entry(shape=(True, 2))}, bytes(8)), "SHAPE", "[True, 2]"),
    "shape is null": (file_of({"a": entry() | {"shape": None}}, bytes(8)), "SHAPE", "None"),
    "65 dimensions": (file_of({"a": entry(shape=[1] * 64 + [2])}, bytes(8)), "SHAPE", "it has 65"),
    "product overflows": (file_of({"a": entry(shape=(2**32, 2**32))}, bytes(8)), "SHAPE", "fewer than 2^64 bytes"),
    "product overflows to 0": (file_of({"a": entry(shape=(2**62, 4, 0), offsets=(0, 0))}), "SHAPE", "2^64"),
    "huge shape": (file_of({"a": entry(shape=(2**60,))}, bytes(8)), "SIZE", "4,611,686,018,427,387,904 bytes"),
    "huge offsets": (file_of({"a": entry(shape=(2**60,), offsets=(0, 2**62))}, bytes(8)), "TRUNCATED", "has 8 bytes"),
    "offsets of 4000 digits": (file_of({"a": entry(offsets=(0, 10**4000))}), "OFFSETS", "below 2^64"),
    "three offsets": (file_of({"a": entry(offsets=(0, 4, 8))}, bytes(8)), "OFFSETS", "two integers"),
    "offset is text": (file_of({"a": entry(offsets=(0, "8"))}, bytes(8)), "OFFSETS", "two integers"),
    "negative offset": (file_of({"a": entry(offsets=(-8, 0))}, bytes(8)), "OFFSETS", "in order"),
    "offsets reversed": (file_of({"a": entry(offsets=(8, 0))}, bytes(8)), "OFFSETS", "in order"),
    "too few bytes for the shape": (file_of({"a": entry(shape=(3,))}, bytes(8)), "SIZE", "takes 12 bytes"),
    "truncated": (file_of(TWO, bytes(15)), "TRUNCATED", "whose data has 15 bytes"),
    "overlap": (file_of({"a": entry(), "b": entry(offsets=(4, 12))}, bytes(12)), "OVERLAP", "'a' ends at byte 8"),
    "the same bytes twice": (file_of({"a": entry(), "b": entry()}, bytes(8)), "OVERLAP", "'b' begins at 0"),
    "hole in front": (file_of({"a": entry(offsets=(8, 16))}, bytes(16)), "HOLE", "the header"),
    "hole between": (file_of({"a": entry(), "b": entry(offsets=(12, 20))}, bytes(20)), "HOLE", "4 bytes between 'a'"),
    "bytes behind": (file_of(TWO, bytes(17)), "TRAILING", "1 more bytes"),
    "bytes behind nothing": (file_of({}, bytes(3)), "TRAILING", "3 more bytes"),
    "metadata is a list": (file_of({"__metadata__": []}), "METADATA", "it is a list"),
    "metadata is null": (file_of({"__metadata__": None}), "METADATA", "it is null"),
    "metadata of numbers": (file_of({"__metadata__": {"step": 3}}), "METADATA", "'step' is a number"),
    "metadata of objects": (file_of({"__metadata__": {"x": {}}}), "METADATA", "'x' is an object"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_each_broken_file_has_its_own_sentence(name):
    data, case, part = HOSTILE[name]
    for file in (data, memoryview(data), Source(data)):
        with pytest.raises(FormatError) as caught:
            SafeTensors(file, "weights.safetensors")
        assert caught.value.code == f"E-FORMAT-{case}"
        assert caught.value.code in errors.FormatError.codes
        message = str(caught.value)
        assert message.startswith("weights.safetensors: ") and message.endswith(".") and message.count(";") == 2
        assert part in message
        assert len(message) < 600 and message.isprintable()


def test_a_lying_header_costs_no_memory():
    """A file of 100 bytes that speaks of 2^62 never makes the reader allocate; nor is more read than the header."""
    data = file_of({"a": entry(shape=(2**60,), offsets=(0, 2**62))}, bytes(8))
    lying = file_of({}, bytes(8), length=99_999_999)
    tracemalloc.start()
    for file in (data, lying):
        source = Source(file)
        with pytest.raises(FormatError):
            SafeTensors(source)
        assert source.read_bytes <= len(file)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200_000


def test_a_file_that_shrinks_while_it_is_read():
    source = Source(file_of({}))
    source.read_at = lambda offset, nbytes: b"\x02"
    with pytest.raises(FormatError, match="only 1 came"):
        SafeTensors(source)


def written(tensors, metadata=None):
    return b"".join(encode(tensors, metadata or {}))


def test_round_trip_and_layout():
    values = array("f", [1.5, -2.0, 3.25, 0.0, 1e-30, 7.0])
    scalar, empty = ("a", "I32", (), array("i", [-7])), ("e", "F32", (0, 5), b"")
    data = written([("b", "F32", (2, 3), values), scalar, empty], {"k": "ü"})
    header_bytes = int.from_bytes(data[:8], "little")
    assert header_bytes % 8 == 0
    assert json.loads(data[8 : 8 + header_bytes])["__metadata__"] == {"format": "pt", "k": "ü"}
    for file in (data, bytearray(data), Source(data)):
        parsed = SafeTensors(file)
        assert parsed.metadata == {"format": "pt", "k": "ü"}
        assert parsed["b"].shape == (2, 3) and parsed["b"].dtype == "F32"
        assert parsed["b"].view().cast("f").tolist() == values.tolist()
        assert parsed["a"].shape == () and parsed["a"].view().cast("i").tolist() == [-7]
        assert parsed["e"].nbytes == 0 and parsed["e"].view().nbytes == 0
        target = bytearray(24)
        parsed["b"].read_into(target)
        assert target == values.tobytes()
    with pytest.raises(FormatError, match="a tensor 'c'"):
        parsed["c"]


def test_reading_a_file_reads_no_tensor_until_it_is_used():
    source = Source(written([("a", "U8", (1000,), bytes(1000))]))
    parsed = SafeTensors(source)
    assert source.read_bytes == 8 + parsed.header_bytes
    assert isinstance(parsed["a"].data, FileRange)


def test_wide_dtypes_come_first_so_that_all_are_aligned():
    parsed = SafeTensors(written([("a", "U8", (3,), b"123"), ("b", "BF16", (1,), b"12"), ("c", "F64", (1,), bytes(8))]))
    assert list(parsed.tensors) == ["c", "b", "a"]


def test_the_writer_streams_pieces_of_the_memory_itself():
    big = bytearray(2 * CHUNK_BYTES + 5)
    chunks = list(encode([("a", "U8", (len(big),), big)], {}))
    assert [len(chunk) for chunk in chunks[1:]] == [CHUNK_BYTES, CHUNK_BYTES, 5]
    big[0] = 77
    assert chunks[1][0] == 77, "the first piece is a view, not a copy"


@pytest.mark.parametrize(
    ("tensors", "metadata", "case"),
    [
        ([("a", "F32", (2,), bytes(4))], {}, "SIZE"),
        ([("a", "F31", (1,), bytes(4))], {}, "DTYPE"),
        ([("a", "U8", (1,), b"1"), ("a", "U8", (1,), b"1")], {}, "DUPLICATE"),
        ([("__metadata__", "U8", (1,), b"1")], {}, "DUPLICATE"),
        ([("\ud800", "U8", (1,), b"1")], {}, "HEADER"),
        ([], {"step": 3}, "METADATA"),
    ],
)
def test_the_writer_refuses_before_its_first_chunk(tensors, metadata, case):
    with pytest.raises(FormatError) as caught:
        encode(tensors, metadata)
    assert caught.value.code == f"E-FORMAT-{case}"


def test_the_library_reads_what_we_write_and_we_read_what_it_writes():
    numpy = pytest.importorskip("numpy", reason="NumPy is not loaded where the store is tested alone")
    library = pytest.importorskip("safetensors.numpy", reason=LIBRARY_REASON)
    arrays = {
        "blocks.0.attn.qkv.weight": numpy.arange(12, dtype=numpy.float32).reshape(3, 4),
        "ids": numpy.array([[1, -2]], numpy.int64),
        "scalar": numpy.array(3.0, numpy.float64),
        "none": numpy.zeros((0, 4), numpy.float16),
        "mask": numpy.array([True, False, True]),
    }
    names = {"float32": "F32", "int64": "I64", "float64": "F64", "float16": "F16", "bool": "BOOL"}
    data = written([(key, names[str(value.dtype)], value.shape, value) for key, value in arrays.items()], {"k": "v"})
    theirs = library.load(data)
    ours = SafeTensors(library.save(arrays, {"format": "pt", "k": "v"}))
    assert theirs.keys() == ours.tensors.keys() == arrays.keys()
    for key, value in arrays.items():
        numpy.testing.assert_array_equal(theirs[key], value)
        assert theirs[key].dtype == value.dtype
        assert bytes(ours[key].view()) == value.tobytes() and ours[key].shape == value.shape
    assert ours.metadata == {"format": "pt", "k": "v"}


def test_a_strided_array_is_refused_not_reordered():
    with pytest.raises(errors.ShapeError, match="strides"):
        list(encode([("a", "U8", (2, 2), memoryview(bytes(8))[::2])], {}))


def test_tensor_view_of_python_memory_is_no_copy():
    memory = array("f", [1.0, 2.0])
    view = Tensor("F32", (2,), memory).view()
    memory[0] = 9.0
    assert view.cast("f")[0] == 9.0
