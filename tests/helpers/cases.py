"""Test cases derived from a kernel's record: sizes around the tiles, and data that is not always kind.

Sizes of a letter come from the tile t: 1, t-1, t, t+1, 2t and a prime above. Each letter walks its sizes while the
others keep odd, unequal ones; a few cases mix them; blocks list sizes at which an engine changes its way of working.
"""

import zlib
from dataclasses import dataclass

import numpy as np
import pytest

from posttrainllm.dims import PARTIAL_ELEMENTS, product
from posttrainllm.ops import KERNELS, Kernel, kernel

from .packed import PACKED, beside, packed_words

BASE = {"B": 2, "T": 11, "R": 19, "C": 37, "H": 3, "D": 20, "I": 23, "O": 41, "V": 61, "N": 131, "K": 5, "J": 13, "S": 7}
TILES = {"R": (5, 8, 32), "C": (8, 16), "I": (4, 16), "O": (16, 32), "V": (16, 32), "N": (16,), "T": (8, 32, 64), "J": (16, 32), "S": (4,)}
WRITTEN_OUT = {"B": (1, 3), "K": (1, 2, 4, 8, 16, 33), "H": (1, 2, 5), "D": (1, 16, 20, 32, 40, 64, 67, 96, 128)}
BLOCKS = {  # one element around where work is cut: 256 of a reduced dimension, 512 columns, thousands of elements
    "linear": [{"I": n} for n in (255, 256, 257, 521)]
    + [{"R": 37, "I": 521}, {"O": 511}, {"O": 513, "R": 67}, {"O": 1031, "I": 5}],
    "linear_backward_input": [{"O": n} for n in (255, 256, 257, 521)] + [{"R": 37, "O": 521}, {"I": 513, "R": 67}],
    "linear_backward_weight": [{"R": n} for n in (255, 256, 257, 521)]
    + [{"I": 129, "O": 257}, {"I": 131, "O": 521, "R": 7}],
    "unembed": [{"C": 257}, {"V": 513, "R": 67}, {"V": 1031, "C": 5}],
    "unembed_backward_input": [{"V": n} for n in (255, 256, 257, 521)] + [{"R": 37, "V": 521}, {"C": 513, "R": 67}],
    "unembed_backward_weight": [{"R": n} for n in (255, 256, 257, 521)] + [{"V": 129, "C": 257}],
    "layernorm_backward": [{"R": n, "C": 5} for n in (127, 128, 129, 4096, 4101)] + [{"C": 257}],
    "attention": [{"B": 1, "H": 1, "T": 1031, "D": 16}],
    "attention_backward": [{"B": 1, "H": 1, "T": 1031, "D": 16}],
    "attention_cached": [{"T": t, "P": p} for t, p in ((1, 1), (1, 64), (1, 65), (1, 300), (2, 129), (70, 200))]
    + [{"T": 1, "P": 1031, "D": 16, "H": 1}, {"T": 300, "P": 1031, "D": 16, "H": 1}],
    "embedding_at": [{"B": 1, "T": 1, "P": 1031}, {"B": 7, "T": 31, "P": 64}],
    "layernorm_backward_input": [{"R": 131}, {"C": 257}, {"C": 1031}],
    "lora": [{"I": n} for n in (256, 257)] + [{"R": 300, "O": 384, "J": 128, "K": 4}, {"J": 300, "K": 64}, {"J": 67, "K": 300}],
    "lora_backward_hidden": [{"J": n} for n in (256, 257)] + [{"R": 300, "O": 384, "J": 128, "K": 4}, {"K": 300}],
    "lora_backward_input": [{"R": 300, "I": 128, "K": 4}, {"I": 513, "R": 67}, {"K": 257}],
    "lora_backward_weight": [{"R": n} for n in (256, 257, 521)]
    + [{"R": 300, "I": 128, "O": 384, "J": 128, "K": 4}, {"J": 521, "K": 521, "R": 9}],
    "layernorm": [{"R": 131}, {"C": 257}, {"C": 1031}],
    "embedding": [{"B": 7, "T": 31}],
    "embedding_backward": [{"B": 7, "T": 31}],
    "cross_entropy": [{"V": 1031}, {"V": 16384, "R": 3}, {"V": 16411, "R": 2}, {"V": 5, "R": 4099}],
    "cross_entropy_backward": [{"V": 1031}, {"V": 16411, "R": 2}, {"V": 5, "R": 4099}],
    "cross_entropy_backward_rows": [{"V": 1031}, {"V": 16411, "R": 2}, {"V": 5, "R": 4099}],
    "dpo": [{"S": 131}, {"T": 1031}],
    "dpo_backward": [{"S": 131}, {"T": 1031}],
    "grad_norm": [{"N": n} for n in (16383, 16384, 16385, 32768, 100003, 300007)],
    **{name: [{"N": n} for n in (63, 64, 65, 127, 128, 191, 8192, 16385, 65537, 100003)] for name in ("adamw_bf16", "adamw_8bit")},
}
ELEMENTWISE = [{"N": n} for n in (8191, 8192, 8193, 16385, 65537, 100003)]
SUBJECTS = ("x", "qkv", "logits", "a", "grad", "wte", "dx", "dy", "dlogits", "dhidden", "losses", "margins")
EQUAL, SHIFT = 0.7, 1000.0
LARGE = {
    "attention": 100.0,
    "attention_backward": 100.0,
    "attention_cached": 100.0,
    "cross_entropy_backward": 1e3,
    "cross_entropy_backward_rows": 1e3,
}  # elsewhere 10000: see LEAST_SIGNAL


@dataclass(frozen=True, eq=False)
class Case:
    """A kernel at sizes and params, on data of a kind."""

    kernel: Kernel
    sizes: dict[str, int]
    params: tuple = ()
    kind: str = "usual"

    def __str__(self) -> str:
        sizes = "-".join(f"{letter}{size}" for letter, size in self.sizes.items())
        return "-".join(
            [self.kernel.name, sizes, *(f"{value:g}" for value in self.params), self.kind.replace(" ", "_")]
        )


def edges(tile: int) -> list[int]:
    """1, t-1, t, t+1, 2t and the first prime above 2t."""
    prime = 2 * tile + 1
    while any(prime % n == 0 for n in range(2, int(prime**0.5) + 1)):
        prime += 1
    return [1, tile - 1, tile, tile + 1, 2 * tile, prime]


def edge_sizes(letter: str) -> list[int]:
    """Every size a letter is tested at, ascending."""
    written_out = WRITTEN_OUT.get(letter, ())
    return sorted({*written_out, *(size for tile in TILES.get(letter, ()) for size in edges(tile))})


def complete(made_of: Kernel, sizes: dict[str, int], number: int) -> dict[str, int]:
    """Sizes of exactly the kernel's letters; P and G follow from the others where not given."""
    past = 70 if made_of.name == "attention_cached" else 3
    sizes = {"P": sizes.get("T", 1) + past * (number % 2), "G": -(-sizes.get("N", 1) // PARTIAL_ELEMENTS)} | sizes
    if made_of.name in PACKED:
        sizes["W"] = packed_words(made_of.name, sizes["N"])
    return {letter: sizes[letter] for letter in made_of.letters}


def fitting(made_of: Kernel, sizes: dict[str, int], params: tuple, kind: str = "usual") -> Case:
    """A case whose columns J, from the first on, lie inside the O there are."""
    if made_of.params == (("first", "int"),):
        sizes = sizes | {"J": min(sizes["J"], sizes["O"])}
        params = (min(params[0], sizes["O"] - sizes["J"]),)
    return Case(made_of, sizes, params, kind)


PARAMS = {
    "fill": [(-1.5,), (0.0,), (1.0,)],
    "normal": [(1.0, 0), (0.02, 7), (0.25, 1000)],
    "layernorm_backward": [(0,), (1,)],
    **dict.fromkeys(("adamw", "adamw_bf16", "adamw_8bit"), [(0,), (1,)]),
    "layernorm_backward_input": [(0,), (1,)],
    "lora": [(0,), (28,)],
    "lora_backward_hidden": [(0,), (28,)],
    "lora_backward_input": [(0,), (1,)],
    "lora_backward_weight": [(0,), (28,)],
}
KINDS = {
    "fill": (),
    "normal": ("zero seed", "all bits"),
    "embedding": ("shifted", "large", "repeated"),
    "embedding_backward": ("shifted", "large", "repeated"),
    "embedding_at": ("shifted", "large", "repeated"),
    "cross_entropy": ("shifted", "large", "equal", "repeated", "ignored", "all ignored"),
    "cross_entropy_backward": ("shifted", "large", "equal", "repeated", "ignored", "all ignored"),
    "cross_entropy_backward_rows": ("shifted", "large", "equal", "repeated", "ignored", "all ignored"),
    "dpo": ("shifted", "large", "equal", "zero"),
    "dpo_backward": ("shifted", "large", "equal", "zero"),
    "grad_norm": ("shifted", "large", "equal", "zero"),
    **dict.fromkeys(
        ("adamw", "adamw_bf16", "adamw_8bit"),
        ("shifted", "large", "zero", "first step", "below the clip", "clip off", "norm nan", "norm inf"),
    ),
}


def derived(*names: str) -> list[Case]:
    """All cases of the kernels named."""
    found: dict[str, Case] = {}

    def add(made_of: Kernel, changes: dict[str, int], kind: str = "usual") -> None:
        number = len(found)
        choices = PARAMS.get(made_of.name, [()])
        sizes = complete(made_of, BASE | changes, number)
        case = fitting(made_of, sizes, choices[number % len(choices)], kind)
        found[str(case)] = case

    for name in names:
        made_of, rng = kernel(name), np.random.default_rng(len(name))
        for letter in made_of.letters:
            for size in edge_sizes(letter):
                add(made_of, {letter: size})
        for _ in range(4):
            add(
                made_of,
                {letter: int(rng.choice(edge_sizes(letter))) for letter in made_of.letters if edge_sizes(letter)},
            )
        for changes in BLOCKS.get(name, ELEMENTWISE if made_of.letters == ("N",) else []):
            add(made_of, changes)
        for kind in KINDS.get(name, ("shifted", "large", "equal")):
            for changes in ({}, {"R": 7, "T": 1, "O": 33, "V": 19, "N": 37}):
                add(made_of, changes, kind)
    return list(found.values())


def base_case(name: str, kind: str = "usual", params: tuple | None = None, **changes: int) -> Case:
    """One case at the base sizes: for mutants, gradients and laws."""
    made_of = kernel(name)
    params = PARAMS.get(name, [()])[-1] if params is None else params
    return fitting(made_of, complete(made_of, BASE | changes, 1), params, kind)


def inputs_for(case: Case) -> dict[str, np.ndarray]:
    """float32 and int32 inputs of a case by argument name, the same every time."""
    rng = np.random.default_rng(zlib.crc32(str(case).encode()))
    subject = next((name for name in SUBJECTS if name in [a.name for a in case.kernel.args if a.role == "in"]), None)
    inputs: dict[str, np.ndarray] = {}
    for argument in case.kernel.args:
        shape = case.kernel.shape(argument, case.sizes)
        if argument.role in ("out", "saved"):
            continue
        if argument.dtype == "i32":
            inputs[argument.name] = _integers(case, argument.name, shape, rng)
        else:
            data = rng.standard_normal(shape)
            inputs[argument.name] = _kindly(case, data) if argument.name == subject else data
    FINISH.get(case.kernel.name, lambda case, inputs: None)(case, inputs)
    return {
        a.name: inputs[a.name].astype(np.float32 if a.dtype == "f32" else np.int32)
        for a in case.kernel.args
        if a.name in inputs
    }


def _integers(case, name, shape, rng):
    if name in ("m", "v"):  # words: what lies past the last element may be anything
        return rng.integers(-(2**31), 2**31, shape)
    if name == "seed":
        return {"zero seed": np.zeros(2), "all bits": np.full(2, -1)}.get(case.kind, np.array([42, -(2**31) + 9]))
    if name == "position":
        last = case.sizes["P"] - case.sizes["T"]
        return np.full(shape, last) if case.sizes["T"] % 2 else rng.integers(0, last + 1, shape)
    if case.kind == "repeated":
        return np.full(shape, case.sizes["V"] - 1)
    numbers = rng.integers(0, case.sizes["V"], shape)
    numbers.reshape(-1)[0] = case.sizes["V"] - 1
    if name == "targets" and case.kind.endswith("ignored"):
        numbers = np.where((rng.random(shape) < 0.4) | (case.kind == "all ignored"), -100, numbers)
    return numbers


def _kindly(case, data):
    """Data of the case's kind. Attention is shifted in v alone: 1000 on q and k leaves no digit of differences."""
    if case.kind == "equal":
        return np.full_like(data, EQUAL)
    if case.kind == "zero":
        return np.zeros_like(data)
    parts = np.ones(data.shape[-1])
    attention = case.kernel.name.startswith("attention")
    if case.kind == "shifted":
        if attention:
            parts[: 2 * len(parts) // 3] = 0
        return data + SHIFT * parts
    if case.kind == "large":
        parts *= LARGE.get(case.kernel.name, 1e4)
        if attention:
            parts[: 2 * len(parts) // 3] = 4.0
        return data * parts
    return data


def _from_forward(name: str, wanted: dict[str, str]):
    """What a backward kernel reads and its forward wrote, rounded to float32 as an engine would hold it."""

    def finish(case, inputs):
        forward = kernel(name)
        rounded = {key: value.astype(np.float32).astype(np.float64) for key, value in inputs.items()}
        arrays = [rounded.get(a.name, np.zeros(forward.shape(a, case.sizes))) for a in forward.args]
        forward.run(case.sizes, (), *arrays)
        inputs.update({a.name: array for a, array in zip(forward.args, arrays) if a.name in wanted})

    return finish


def _adamw(case, inputs):
    """Steps as large as the weights, so that the tolerance (set by the weights) sees every term of them."""
    n = product((case.sizes["N"],))
    first = case.kind == "first step"
    inputs["v"] = np.zeros(n) if first else inputs["v"] ** 2
    inputs["m"] = np.zeros(n) if first else inputs["m"]
    norm = float(np.sqrt((inputs["grad"].astype(np.float32).astype(np.float64) ** 2).sum()))
    clip = {"below the clip": 2 * norm + 1, "clip off": 0.0}.get(case.kind, 0.6 * norm)
    inputs["norm"] = np.array([{"norm nan": np.nan, "norm inf": np.inf}.get(case.kind, norm)])
    inputs["recipe"] = np.array([0.25, 0.9, 0.95, 1e-8, 0.5, clip, 1 / (1 - 0.9), 1 / (1 - 0.95)])


def _packed(case, inputs):
    """As `_adamw`, with moments packed, and what came as words where no element's bits are."""
    rng, rubbish = np.random.default_rng(zlib.crc32(str(case).encode()) ^ 1), {each: inputs[each] for each in ("m", "v")}
    inputs["m"], inputs["v"] = rng.standard_normal(case.sizes["N"]), rng.standard_normal(case.sizes["N"])
    _adamw(case, inputs)
    for each in ("m", "v"):
        inputs[each] = beside(case.kernel.name, each, inputs[each].astype(np.float32), rubbish[each].astype(np.int32))


def _strength(case, inputs):
    """Neither near 0, where nothing shows, nor 1, where leaving it out would not."""
    inputs["strength"] = np.array([1.75])


def _dpo(case, inputs):
    """Losses are not negative, and beta is what people use."""
    if "losses" in inputs:
        inputs["losses"] = np.abs(inputs["losses"])
    inputs["beta"] = np.array([0.1])


def _blend(case, inputs):
    """A third is replaced, a third left as it is but for what is added."""
    inputs["factor"][::3], inputs["factor"][1::3] = 0, 1


FINISH = {
    "blend": _blend,
    "lora": _strength,
    "lora_backward_hidden": _strength,
    "lora_backward_weight": _strength,
    "layernorm_backward_input": _from_forward("layernorm", ("mean", "rstd")),
    "layernorm_backward": _from_forward("layernorm", ("mean", "rstd")),
    "attention_backward": _from_forward("attention", ("y", "lse")),
    "cross_entropy_backward": _from_forward("cross_entropy", ("lse", "loss")),
    "cross_entropy_backward_rows": _from_forward("cross_entropy", ("lse",)),
    "dpo": _dpo,
    "dpo_backward": _dpo,
    "adamw": _adamw,
    "adamw_bf16": _packed,
    "adamw_8bit": _packed,
}
ALL_CASES = {made_of.name: derived(made_of.name) for made_of in KERNELS}


def over_cases(*names: str):
    """Parametrise a test's `case` over every derived case of the kernels named."""
    return pytest.mark.parametrize("case", [case for name in names for case in ALL_CASES[name]], ids=str)
