"""fill: x = value. Zeroes gradients before a step; sets biases and layernorm gains at creation."""

from .spec import Kernel, args


def _fill(sizes, params, x):
    x[...] = params[0]


FILL = Kernel("fill", ("N",), args("out x [N]"), _fill, params=(("value", "f32"),), tolerance=0.0)
