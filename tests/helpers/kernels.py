"""One kernel on one engine, between guard bands, compared with its float64 judge.

Tolerance: k·eps·sqrt(n reduced)·max|reference|, k and the reduced letters from the kernel's record. Where the inputs
themselves leave more in doubt (1000 added before a difference is taken; a sum that happens to cancel), it is k times
how far the reference moves when every input moves by one eps of its own size. A case whose tolerance comes near its
signal is refused.
"""

import numpy as np

from posttrainllm.compile import Graph, Value, place, record
from posttrainllm.compile.tape import address
from posttrainllm.dims import product, resolve, round_up
from posttrainllm.ops import kernel

from .cases import complete, inputs_for
from .float32 import DTYPES
from .packed import PACKED, unpacked

EPS = 2.0**-23
GUARD_BYTES = 512
SENTINEL = (
    0x7FC5E117  # a quiet NaN: read past an operand and the result shows it; the payload tells it from the prefill
)
NOTHING = 1e-30  # beside weights and activations: gelu far out may leave e^-87 where the judge has 0
STRAY = 0.02  # of the words of a GPU's moments may be beside the judge's
LEAST_SIGNAL = 100  # a case is refused unless max|reference| is this many tolerances


class NoSignal(AssertionError):
    """What a comparison allows is not small beside what it compares."""


def _placed(made_of, sizes, offset_bytes):
    """Values for every argument, f32 in region "params" and i32 in "inputs", and the bytes of both regions."""
    ends = {"params": GUARD_BYTES, "inputs": GUARD_BYTES}
    values = {}
    for argument in made_of.args:
        region = "inputs" if argument.dtype == "i32" else "params"
        shape = made_of.shape(argument, sizes)
        start = round_up(ends[region], 256) + offset_bytes
        values[argument.name] = Value(argument.name, shape, argument.dtype, region, start)
        ends[region] = start + product(shape) * 4 + GUARD_BYTES
    return values, {region: round_up(end, 256) for region, end in ends.items()}


def run_kernel(machine, made_of, sizes, params=(), *, offset_bytes=0, **given):
    """Run a kernel on arrays by argument name; returns what it wrote, by name.

    Outputs start as NaN; what is added to must be given. Asserts that nothing but the written arguments changed.
    """
    values, region_bytes = _placed(made_of, sizes, offset_bytes)
    images = {region: np.full(nbytes // 4, SENTINEL, "<u4") for region, nbytes in region_bytes.items()}
    for argument in made_of.args:
        value = values[argument.name]
        data = given.pop(argument.name, None)
        if data is None:
            assert argument.role in ("out", "saved"), f"{made_of.name} reads {argument.name}: give it"
            data = np.full(value.shape, np.nan)
        data = np.ascontiguousarray(data, DTYPES[argument.dtype])
        assert data.shape == value.shape, f"{argument.name} is {value.shape}; {data.shape} came"
        start = value.offset_bytes // 4
        images[value.region][start : start + data.size] = data.view("<u4").reshape(-1)
    assert not given, f"{made_of.name} has no argument {', '.join(given)}"
    graph = Graph()
    graph.call(made_of.name, sizes, params, **values)
    machine.allocate(region_bytes)
    starts = {value.region: address(value) - value.offset_bytes for value in values.values()}
    for region, start in starts.items():
        machine.upload(start, images[region].tobytes())
    machine.replay(machine.load(record(place(graph))))
    return _collected(machine, made_of, values, images, starts)


def _collected(machine, made_of, values, images, starts):
    """Read both regions back, check every byte that must not have changed, and cut out what was written."""
    written = {}
    for region, start in starts.items():
        before = images[region]
        after = np.frombuffer(machine.download(start, before.nbytes), "<u4")
        untouched = np.ones(before.size, bool)
        for argument in made_of.args:
            value = values[argument.name]
            if value.region == region and argument.role != "in":
                part = slice(value.offset_bytes // 4, value.offset_bytes // 4 + product(value.shape))
                untouched[part] = False
                written[argument.name] = after[part].view(DTYPES[argument.dtype]).reshape(value.shape)
        changed = np.flatnonzero(untouched & (before != after))
        if changed.size:
            raise AssertionError(
                f"{made_of.name} wrote outside its outputs: {_where(values, region, int(changed[0]) * 4)}"
            )
    return written


def _where(values, region, offset):
    for value in values.values():
        first, last = value.offset_bytes, value.offset_bytes + value.nbytes
        if value.region == region and first - GUARD_BYTES <= offset < last + GUARD_BYTES:
            if offset < first:
                return f"{first - offset} bytes before {value.name}"
            return (
                f"{offset - last} bytes after the end of {value.name}"
                if offset >= last
                else f"into its input {value.name}"
            )
    return f"at byte {offset} of {region}"


def call(machine, name, sizes, params=(), **given):
    """run_kernel by name, with the letters that follow (P, G) filled in."""
    made_of = kernel(name)
    return run_kernel(machine, made_of, complete(made_of, sizes, 0), params, **given)


def judged(made_of, sizes, params, inputs):
    """What the float64 judge writes for float32 inputs, by argument name."""
    arrays = []
    for argument in made_of.args:
        data = inputs.get(argument.name)
        data = np.full(made_of.shape(argument, sizes), np.nan) if data is None else np.array(data, np.float64)
        arrays.append(data)
    with np.errstate(under="ignore"):
        made_of.run(sizes, params, *arrays)
    return {a.name: array for a, array in zip(made_of.args, arrays) if a.role != "in"}


def _sway(made_of, sizes, params, inputs, expected):
    """How far each output of the judge moves when every float input moves by one eps of its own size."""
    moved = dict.fromkeys(expected, 0.0)
    for trial in range(3):
        rng = np.random.default_rng(trial)
        near = {
            a.name: inputs[a.name] * (1 + EPS * rng.choice([-1.0, 1.0], inputs[a.name].shape))
            if a.dtype == "f32"
            else inputs[a.name]
            for a in made_of.args
            if a.name in inputs
        }
        for name, value in judged(made_of, sizes, params, near).items():
            moved[name] = max(moved[name], float(np.abs(value - expected[name]).max()))
    return moved


def tolerances(case, inputs, expected):
    """The largest allowed |error| of each output."""
    made_of, sizes = case.kernel, case.sizes
    reduced = product(tuple(resolve(letter, sizes) for letter in made_of.reduces))
    scale = {name: EPS * reduced**0.5 * float(np.abs(value).max()) for name, value in expected.items()}
    if made_of.tolerance:
        sway = _sway(made_of, sizes, case.params, inputs, expected)
        scale = {name: max(scale[name], sway[name]) for name in scale}
    return {name: max(made_of.tolerance * each, NOTHING) if made_of.tolerance else 0.0 for name, each in scale.items()}


def check_parity(machine, case, offset_bytes=0):
    """Run a derived case on an engine and compare every output with the judge's."""
    inputs = inputs_for(case)
    expected = judged(case.kernel, case.sizes, case.params, inputs)
    allowed = tolerances(case, inputs, expected)
    got = run_kernel(machine, case.kernel, case.sizes, case.params, offset_bytes=offset_bytes, **inputs)
    assert set(got) == set(expected)
    for name, value in got.items():
        if case.kernel.name in PACKED and name in ("m", "v"):
            compare_words(case, name, value, expected[name].astype(np.int64).astype(np.int32), machine.name != "webgpu")
        else:
            compare(f"{case} {name}", value, expected[name], allowed[name])


def compare_words(case, moment, got, expected, exact):
    """Packed moments are the judge's to the bit; a GPU's, whose arithmetic may differ in the last bit, a step beside it here and
    there."""
    label, name, count = f"{case} {moment}", case.kernel.name, case.sizes["N"]
    different = np.flatnonzero(got != expected)
    assert not (exact and different.size), (
        f"{label}[{different[0]}]: word {got[different[0]]:#x}, the reference has {expected[different[0]]:#x}; {different.size} of {got.size} differ"
    )
    (mine, steps), (right, _) = unpacked(name, moment, got, count), unpacked(name, moment, expected, count)
    far = np.flatnonzero(~(np.abs(mine - right) <= 1.01 * steps + 1e-6 * np.abs(right)))
    assert not far.size, f"{label}[{far[0]}]: {mine[far[0]]!r}, the reference has {right[far[0]]!r}; {far.size} are more than a step off"
    assert different.size <= 2 + STRAY * got.size, f"{label}[{different[0]}]: {different.size} of {got.size} words differ"


def compare(label, got, expected, tolerance):
    """Raise AssertionError, naming the worst element, unless |got - expected| <= tolerance everywhere (NaN is not)."""
    got = np.asarray(got, np.float64)
    assert got.shape == expected.shape, f"{label}: shape {got.shape}, expected {expected.shape}"
    signal = float(np.abs(expected).max())
    assert np.isfinite(signal), f"{label}: the judge itself is not finite here; the case is wrong"
    if signal and tolerance * LEAST_SIGNAL > signal:
        raise NoSignal(
            f"{label}: tolerance {tolerance:.2g} is too near the signal {signal:.2g}; such a case shows nothing"
        )
    error = np.abs(got - expected)
    bad = ~(error <= tolerance)
    if bad.any():
        worst = np.unravel_index(np.argmax(np.where(np.isnan(error), np.inf, error)), error.shape)
        index = ",".join(map(str, worst))
        raise AssertionError(
            f"{label}[{index}]: {got[worst]!r}, the reference has {expected[worst]!r}; off by {error[worst]:.3g}, "
            f"allowed {tolerance:.3g}; {bad.sum()} of {bad.size} elements differ, {np.isnan(got).sum()} are NaN"
        )
