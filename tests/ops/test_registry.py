"""One kernel, one form: Python's records, C++'s and WGSL's parameters and the engine's registry say the same."""

import importlib
import re
from pathlib import Path

import pytest

from posttrainllm.dims import resolve
from posttrainllm.ops import KERNELS, OPS, kernel

ROOT = Path(__file__).resolve().parents[2]
EXT, SHADERS = ROOT / "ext", ROOT / "shaders"
NAMES = [made_of.name for made_of in KERNELS]
needs_the_clone = pytest.mark.native_only(reason="reads the C++ of the clone, which is not in the page")


def stem(made_of) -> str:
    """The file an op lives in."""
    return made_of.run.__module__.rpartition(".")[2]


STEMS = sorted({stem(made_of) for made_of in KERNELS})


def cpp_signatures(text: str) -> dict[str, list[tuple[str, str]]]:
    """(type, name) of each parameter after Run&, for every function that PTL_KERNEL registers (see engine.h)."""
    text = re.sub(r"//[^\n]*", "", text)
    found = {}
    for name in re.findall(r"PTL_KERNEL\((\w+)\)", text):
        (parameters,) = re.findall(rf"\bvoid {name}\(Run& run,([^)]*)\)\s*{{", text)
        found[name] = [tuple(p.strip().rsplit(None, 1)) for p in parameters.split(",")]
    return found


def expected_signature(made_of) -> list[tuple[str, str]]:
    """What the C++ of a record must look like."""
    pointers = {"f32": "float*", "i32": "int32_t*"}
    values = {"f32": "float", "int": "int32_t"}
    letters = [("int64_t", letter) for letter in made_of.letters]
    params = [(values[kind], name) for name, kind in made_of.params]
    return letters + params + [(("const " if a.role == "in" else "") + pointers[a.dtype], a.name) for a in made_of.args]


@needs_the_clone
def test_every_stem_has_its_files():
    assert sorted(path.stem for path in (EXT / "kernels").glob("*.cpp")) == STEMS
    tests = {path.stem for path in (ROOT / "tests" / "ops").glob("test_*.py")}
    assert {f"test_{name}" for name in STEMS} <= tests


@needs_the_clone
@pytest.mark.parametrize("name", STEMS)
def test_cpp_has_the_kernels_letters_params_and_arguments_in_order(name):
    found = cpp_signatures((EXT / "kernels" / f"{name}.cpp").read_text("utf-8"))
    of_stem = [made_of for made_of in KERNELS if stem(made_of) == name]
    assert list(found) == [made_of.name for made_of in of_stem], "forward beside backward, in the registry's order"
    for made_of in of_stem:
        assert found[made_of.name] == expected_signature(made_of)


def wgsl_bindings(text: str) -> dict[str, list[tuple[int, str, str, str]]]:
    """(binding, access, name, element type) of the storage bindings declared before each entry point of their section."""
    found, waiting = {}, []
    text = re.sub(r"//! kernel [^\n]*", "@section", text)
    storage = r"@binding\((\d+)\) var<storage, (\w+)> (\w+): array<(?:atomic<)?(\w+)"
    for match in re.finditer(rf"{storage}|@compute[^{{]*?\bfn (\w+)\(|@section", re.sub(r"//[^\n]*", "", text)):
        if match[0] == "@section":
            waiting = []  # of a section whose entry points are in what it includes
        elif match[5]:
            if waiting:
                found[match[5]] = sorted(waiting)
            waiting = []
        else:
            waiting.append((int(match[1]), match[2], match[3], match[4]))
    return found


@needs_the_clone
@pytest.mark.skipif(not SHADERS.exists(), reason="there are no shaders yet")
def test_wgsl_binds_the_kernels_arguments_in_order():
    """A file with entry points is an op's; others hold what several share. `read` is exactly where a role is `in`."""
    for path in sorted(SHADERS.glob("*.wgsl")):
        if path.stem in ("guard", "halve"):  # between steps, no kernels of the tape
            continue
        found = wgsl_bindings(path.read_text("utf-8"))
        assert path.stem in STEMS or not found, f"{path.name} has entry points but no op of that stem"
        for name, bindings in found.items():
            made_of = kernel(name)
            assert stem(made_of) == path.stem
            arguments, rest = bindings[: len(made_of.args)], bindings[len(made_of.args) :]
            assert arguments == [
                (
                    index,
                    "read" if a.role == "in" else "read_write",
                    a.name,
                    "i32" if a.dtype == "i32" else arguments[index][3],
                )
                for index, a in enumerate(made_of.args)
            ], f"{path.name}: {name}"
            others = {each for _, _, each, _ in rest}
            assert others <= {"scratch", "other", "state", "halves"}, f"{path.name}: {name} binds {rest} besides"
            assert all(("i32" in element) == (a.dtype == "i32") for (*_, element), a in zip(arguments, made_of.args))


@needs_the_clone
def test_the_engines_registry_is_pythons():
    """Order, letters, parameter kinds, operand names, what is written, extents, and what may be overwritten: `dx>N=dy=x`."""
    text = re.sub(r"//[^\n]*", "", (EXT / "kernel_list.h").read_text("utf-8"))
    rows = re.findall(r'K\((\w+), "(\w+)", "(\w*)", "([^"]+)"\)', text)
    assert [row[0] for row in rows] == NAMES
    primes = dict(zip("BTHDRCIOVPNGKJSW", (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53)))
    for name, letters, params, operands in rows:
        made_of = kernel(name)
        assert letters == "".join(made_of.letters)
        assert len(params) == len(made_of.params)
        for code, (_, kind) in zip(params, made_of.params):
            assert code in {"f32": "f", "int": "ib"}[kind]
        for operand, argument in zip(operands.split(), made_of.args, strict=True):
            operand_name, direction, extent, over = re.fullmatch(r"(\w+)([<>])(\w+)((?:=\w+)*)", operand).groups()
            assert (operand_name, direction) == (argument.name, "<" if argument.role == "in" else ">")
            assert tuple(over.split("=")[1:]) == argument.over
            here = {letter: primes[letter] for letter in made_of.letters}
            size = expected = 1
            for factor in re.findall(r"\d|[A-Z]", extent):
                size *= int(factor) if factor.isdigit() else here[factor]
            for dimension in argument.dims:
                expected *= resolve(dimension, here)
            assert size == expected, f"{name}: {operand} against {argument.dims}"


def test_the_parser_notices_a_difference():
    """Order, const and type each count."""
    right = "void add(Run& run, int64_t N, const float* a, const float* b, float* y) {\n}\nPTL_KERNEL(add)"
    assert cpp_signatures(right)["add"] == expected_signature(kernel("add"))
    for old, new in (
        ("* a, const float* b", "* b, const float* a"),
        ("const float* b", "float* b"),
        ("float* y", "int32_t* y"),
    ):
        assert cpp_signatures(right.replace(old, new))["add"] != expected_signature(kernel("add"))


def test_the_wgsl_parser_notices_a_difference():
    right = (
        "@group(0) @binding(0) var<storage, read> a: array<f32>; // [N]\n"
        "@group(0) @binding(1) var<storage, read> b: array<f32>;\n"
        "@group(0) @binding(2) var<storage, read_write> y: array<f32>;\n"
        "@compute @workgroup_size(64)\nfn add(x: u32) {}\n"
        "@compute @workgroup_size(64)\nfn add_tail(x: u32) {}\n"
    )
    assert wgsl_bindings(right) == {
        "add": [(0, "read", "a", "f32"), (1, "read", "b", "f32"), (2, "read_write", "y", "f32")]
    }


def test_ids_are_dense_and_ops_know_their_kernels():
    assert len(set(NAMES)) == len(NAMES)
    for op in OPS.values():
        for made_of in op.backward:
            assert stem(made_of) == stem(op.forward)
            assert KERNELS.index(made_of) > KERNELS.index(op.forward)


@pytest.mark.parametrize("made_of", KERNELS, ids=NAMES)
def test_a_record_is_well_formed(made_of):
    """Names differ; letters of dims are sizes or follow from them; something is written; the docstring names its op."""
    names = [a.name for a in made_of.args]
    assert len(set(names)) == len(names) and len(names) <= 8
    sizes = dict.fromkeys(made_of.letters, 2)
    for argument in made_of.args:
        assert all(resolve(dimension, sizes) > 0 for dimension in argument.dims)
        assert argument.role in ("in", "out", "saved", "accum", "inout") and argument.dtype in ("f32", "i32")
        earlier = {a.name: a for a in made_of.args[: made_of.args.index(argument)]}
        for name in argument.over:  # what a kernel reads, of the same size, named before
            assert argument.role == "out" and earlier[name].role == "in" and earlier[name].dims == argument.dims
    assert any(a.role != "in" for a in made_of.args)
    assert all(resolve(letter, sizes) for letter in made_of.reduces)
    assert importlib.import_module(made_of.run.__module__).__doc__.startswith(f"{stem(made_of)}:")


def test_costs_of_records():
    """Multiply-adds and bytes by hand: what benches and estimates divide by."""
    linear = {"R": 3, "I": 5, "O": 7}
    assert [kernel(name).flops(linear) for name in ("linear", "linear_backward_input", "linear_backward_weight")] == [
        210
    ] * 3
    assert kernel("linear").bytes_moved(linear) == 4 * (15 + 35 + 7 + 21)
    assert kernel("linear_backward_weight").bytes_moved(linear) == 4 * (15 + 21 + 2 * (35 + 7))
    assert kernel("add").bytes_moved({"N": 10}) == 120 and kernel("adamw").bytes_moved({"N": 10}) == 4 * (
        10 + 1 + 8 + 2 * 30
    )
    # Causal attention: two products over T(T+1)/2 pairs forward; five backward, where the scores are made again.
    sizes = {"B": 2, "T": 9, "H": 3, "D": 4}
    assert kernel("attention").flops(sizes) == 2 * 2 * 2 * 45 * 3 * 4
    assert kernel("attention_backward").flops(sizes) == 5 * 2 * 2 * 45 * 3 * 4
