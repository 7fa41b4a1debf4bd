"""Part of the GPU's self-test: each kernel that a plain training step does not run, alone, on numbers of its own.

All of them are in one tape, in single or half precision as the machine has it, and each output is compared with the judge's.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..backends.reference import ReferenceMachine
from ..compile import Graph, Value, place, record
from ..compile.tape import Tape, address
from ..dims import ELEMENT_BYTES, product, round_up
from ..ops import KERNEL_IDS, KERNELS, Kernel
from ..ops.lazy import np
from ..ops.spec import WRITTEN
from .moments import BY_KERNEL

SIZES = {"R": 300, "I": 20, "O": 36, "K": 4, "J": 12, "C": 20, "V": 23, "S": 3, "T": 9, "N": 132}
PARAMS = {"first": 12, "accumulate": 1, "decayed": 1}
NUMBERS = {"strength": 1.5, "beta": 0.25, "dloss": 1.0}
"""Where nothing else is said inputs are normal; gradients of losses are small, as those of a batch are."""
SMALL = ("dlosses",)
NEIGHBOUR = 0.016
"""The distance of two codes, of the largest number there."""
STEPPED = {"norm": (2.0,), "recipe": (0.05, 0.75, 0.5, 0.0625, 0.125, 1.0, 4.0, 2.0)}
"""A step of AdamW, clipped to a half."""


def checked() -> tuple[Kernel, ...]:
    """The kernels: all that came to the registry after those of training and decoding."""
    return KERNELS[KERNEL_IDS["attention_cached"] + 1 :]


@dataclass
class Part:
    """A kernel's place in the tape: its Values and what they begin with (float64), by argument."""

    kernel: Kernel
    values: dict[str, Value]
    inputs: dict[str, object]


def parts() -> tuple[Tape, dict[str, int], list[Part]]:
    """(tape, bytes of each region, its parts)."""
    graph, ends, found, rng = Graph(), {"grads": 0, "inputs": 0}, [], np.random.default_rng(11)
    for made_of in checked():
        kind = BY_KERNEL.get(made_of.name)
        sizes = kind.sizes(SIZES["N"]) if kind else {letter: SIZES[letter] for letter in made_of.letters}
        values, inputs = {}, {}
        for argument in made_of.args:
            region, shape = "inputs" if argument.dtype == "i32" else "grads", made_of.shape(argument, sizes)
            values[argument.name] = Value(argument.name, shape, argument.dtype, region, ends[region])
            ends[region] = round_up(ends[region] + product(shape) * ELEMENT_BYTES, 256)
            if kind and argument.name in kind.dtypes:
                numbers = np.frombuffer(kind.pack(argument.name, rng.standard_normal(SIZES["N"]) ** 2), "<i4")
            elif kind and argument.name in STEPPED:
                numbers = np.array(STEPPED[argument.name])
            elif argument.dtype == "i32":
                numbers = rng.integers(0, sizes["V"], shape)
                numbers[::5] = -100
            else:
                numbers = np.full(shape, NUMBERS[argument.name]) if argument.name in NUMBERS else rng.standard_normal(shape)
            inputs[argument.name] = (numbers * (1e-3 if argument.name in SMALL else 1.0)).astype(numbers.dtype)
        graph.call(made_of.name, sizes, tuple(PARAMS[name] for name, _ in made_of.params), **values)
        found.append(Part(made_of, values, inputs))
    return record(place(graph)), ends, found


def _kind(machine, kernel: Kernel, argument) -> str:
    """How a machine stores an argument."""
    if argument.dtype == "i32":
        return "<i4"
    options = getattr(machine, "options", None)
    return "<f2" if options is not None and options.element_bytes(kernel.name, argument.name) == 2 else "<f4"


async def run(machine, load, read, scale: float = 1.0) -> list[tuple[Kernel, str, object]]:
    """(kernel, argument written, numbers) of every output. Inputs are numbers of half precision, so that each machine has the same;
    gradients that a step takes are multiplied by `scale`."""
    tape, need, found = parts()
    machine.allocate(need)
    for part in found:
        for argument in part.kernel.args:
            numbers = part.inputs[argument.name]
            numbers = numbers if argument.dtype == "i32" else numbers.astype("<f2")
            if part.kernel.name in BY_KERNEL and argument.name == "grad":
                numbers = numbers.astype("<f4") * scale
            machine.upload(address(part.values[argument.name]), numbers.astype(_kind(machine, part.kernel, argument)).tobytes())
    machine.replay(await load(machine, tape))
    written = []
    for part in found:
        for argument in part.kernel.args:
            if argument.role in WRITTEN:
                value, kind = part.values[argument.name], _kind(machine, part.kernel, argument)
                data = await read(machine, address(value), product(value.shape) * int(kind[-1]))
                numbers = np.frombuffer(data, kind)
                if part.kernel.name in BY_KERNEL and argument.name in ("m", "v"):
                    numbers = BY_KERNEL[part.kernel.name].unpack(argument.name, numbers.tobytes(), SIZES["N"])
                written.append((part.kernel, argument.name, numbers.astype(float)))
    return written


async def results(machine, load, read, scale: float) -> list[tuple[str, str, object, object]]:
    """(kernel's name, what it writes, the machine's numbers, the judge's). `scale` is the loss scale that gradients of logits carry."""
    compared, scales = [], {"dlogits": scale}
    mine, judges = await run(machine, load, read, scale), await run(ReferenceMachine(), load, read)
    for (made_of, name, got), (_, _, expected) in zip(mine, judges, strict=True):
        if made_of.name in BY_KERNEL and name in ("m", "v"):  # arithmetic's last bit may have taken another code here and there
            got = np.where(abs(got - expected) <= NEIGHBOUR * abs(expected).max(), expected, got)
        compared.append((made_of.name, name, got / scales.get(name, 1.0), expected))
    return compared
