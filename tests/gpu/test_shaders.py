"""The shaders say the same as the ops: names, order and types of arguments; and the templates expand to plain WGSL."""

import re

import pytest
from posttrainllm.backends.gpu import shader
from posttrainllm.backends.gpu.dispatch import STEMS, stem_of
from posttrainllm.backends.gpu.options import HALF_ARGUMENTS
from posttrainllm.ops import KERNELS
from posttrainllm.ops.spec import WRITTEN

pytestmark = pytest.mark.native_only(reason="reads shaders/ of the clone")


def section_of(kernel):
    return "\n".join(shader.Expansion({}).run(shader.sections(stem_of(kernel.name))[kernel.name].splitlines()))


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_arguments_are_the_ops(kernel):
    found = [a for a in shader.arguments(section_of(kernel)) if a.index < shader.FIRST_SCRATCH]
    assert [a.name for a in found] == [a.name for a in kernel.args]
    assert [a.index for a in found] == list(range(len(kernel.args)))
    assert [a.writes for a in found] == [a.role in WRITTEN for a in kernel.args]
    assert [a.type == "array<i32>" for a in found] == [a.dtype == "i32" for a in kernel.args]
    assert f"fn {kernel.name}(" in section_of(kernel)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_comments_give_the_ops_dimensions(kernel):
    text = shader.text_of(stem_of(kernel.name))
    section = text[text.index(f"//! kernel {kernel.name}\n") :]
    for argument in kernel.args:
        written = re.search(rf"> {argument.name}: [^;]+; // \[([^\]]+)\]", section)
        assert written and written[1] == ",".join(argument.dims), argument.name


def test_every_kernel_has_a_section_and_every_section_a_kernel():
    found = [name for stem in STEMS for name in shader.sections(stem)]
    assert sorted(found) == sorted(kernel.name for kernel in KERNELS)


def test_inputs_that_share_a_buffer_with_an_output_become_read_write():
    text = shader.module("add", "add", (("VECTORS", False),), frozenset({0, 2}))
    assert "var<storage, read_write> a: array<Stored>" in text
    assert "var<storage, read> b: array<Stored>" in text
    assert "alias Element = f32;" in text and "//!" not in text


def test_a_module_asks_for_what_its_constants_need():
    given = (("HALF", True), ("VECTORS", True))
    text = shader.module("add", "add", given, frozenset())
    assert text.startswith("enable f16;\n") and "alias Stored = vec4<f16>;" in text
    assert "f16" not in shader.module("add", "add", (("VECTORS", True),), frozenset()).split("HALF")[-1]
    text = shader.module("add", "add", (("HALF", True), ("SUBGROUPS", True)), frozenset())
    assert text.startswith("enable f16;\nenable subgroups;\n")
    assert shader.for_naga(text).startswith("enable f16;\n") and "enable subgroups" not in shader.for_naga(text)


@pytest.mark.parametrize("kernel", HALF_ARGUMENTS, ids=str)
def test_half_arguments_are_stored_as_the_table_says(kernel):
    """The type of each storage binding, aliases followed to their end."""
    given = {"HALF": True} | ({"D": 16} if kernel.startswith("attention") else {})
    text = "\n".join(shader.Expansion(given).run(shader.sections(stem_of(kernel))[kernel].splitlines()))
    aliases = dict(re.findall(r"alias (\w+) = ([^;]+);", text))
    for argument in shader.arguments(text):
        kind = argument.type.removeprefix("array<").removesuffix(">")
        while kind in aliases:
            kind = aliases[kind]
        if argument.index < shader.FIRST_SCRATCH:
            assert ("f16" in kind) == (argument.name in HALF_ARGUMENTS[kernel]), f"{argument.name} is {kind}"


def test_sums_over_neighbours_use_subgroups_or_a_tree():
    for given, wanted in ((("SUBGROUPS", True),), True), ((), False):
        text = shader.module("cross_entropy", "cross_entropy", given, frozenset())
        assert text.startswith("enable subgroups;") == ("subgroupShuffleXor(sum, 64u)" in text) == wanted


def test_directives():
    lines = [
        "const COUNT = 2u;", "const TWICE = COUNT * 2u;", "//! unroll i TWICE", "//! if TWICE == 4 && !OFF", "sum += v{i}.{xyzw[i]};",
        "//! else", "no", "//! end", "//! end",
    ]  # fmt: skip
    assert shader.Expansion({"COUNT": 2}).run(["const OFF = false;", *lines])[-4:] == [
        f"sum += v{i}.{'xyzw'[i]};" for i in range(4)
    ]
    with pytest.raises(ValueError, match="no //! end"):
        shader.Expansion({}).run(["//! if true", "x"])
