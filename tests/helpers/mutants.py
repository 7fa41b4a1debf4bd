"""Wrong versions of a kernel, which every check must tell from the right one."""

import numpy as np


def _shifted(change):
    return np.roll(change.reshape(-1), 1).reshape(change.shape)


def _last_column_dropped(change):
    change = change.copy()
    change[..., -1] = 0
    return change


def _twelve_bits(change):
    """Rounded to 12 significant bits, as half-precision arithmetic would leave it."""
    fraction, exponent = np.frexp(change)
    return np.ldexp(np.round(fraction * 4096) / 4096, exponent)


MUTANTS = {
    "zeroed": lambda change: 0 * change,
    "doubled": lambda change: 2 * change,
    "negated": lambda change: -change,
    "shifted by one": _shifted,
    "last column dropped": _last_column_dropped,
    "in half precision": _twelve_bits,
}


def mutated(kernel, argument, how):
    """A run() for `kernel` that is right but for one written argument, on whose contribution `how` acts.

    The contribution of an argument that is added to is what the kernel added; of any other, its whole value.
    """
    names = [a.name for a in kernel.args]
    at = names.index(argument)
    accumulates = kernel.args[at].role in ("accum", "inout")

    def run(sizes, params, *arrays):
        before = arrays[at].copy()
        kernel.run(sizes, params, *arrays)
        switched = dict(zip((name for name, _ in kernel.params), params)).get("accumulate", 1)
        old = before if accumulates and (switched or argument != "dx") else np.zeros_like(before)
        arrays[at][...] = old + MUTANTS[how](arrays[at] - old)

    return run
