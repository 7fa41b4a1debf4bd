"""gelu_erf: the exact form x·Φ(x), Φ the normal distribution (Hendrycks, Gimpel 2016; "gelu" in Hugging Face).

y = x·Φ(x);  dx = dy·(Φ(x) + x·φ(x)),  Φ(x) = erfc(-x/√2)/2,  φ(x) = exp(-x²/2)/√(2π)
"""

import math

from .lazy import np
from .spec import Kernel, Op, args

ROOT_HALF = 0.7071067811865476
DENSITY = 0.3989422804014327


def normal_share(x):
    """Φ of every element: NumPy has no erfc, the standard library's takes one number and keeps the digits of a small tail."""
    flat = (0.5 * math.erfc(-ROOT_HALF * value) for value in x.reshape(-1).tolist())
    return np.fromiter(flat, np.float64, x.size).reshape(x.shape)


def _forward(sizes, params, x, y):
    y[...] = x * normal_share(x)


def _backward(sizes, params, dy, x, dx):
    dx[...] = dy * (normal_share(x) + DENSITY * x * np.exp(-0.5 * x * x))


def _gradient(builder, node, dy):
    x = node.arg("x")
    if builder.needs(x):
        builder.add_gradient(x, builder.call("gelu_erf_backward", node.sizes, dy=dy, x=x)["dx"])


GELU_ERF = Kernel(
    "gelu_erf", ("N",), args("in x [N]", "out y [N] over x"), _forward, flops=lambda s: 30 * s["N"], tolerance=4.0, source="arXiv 1606.08415"
)
GELU_ERF_BACKWARD = Kernel(
    "gelu_erf_backward", ("N",), args("in dy [N]", "in x [N]", "out dx [N] over dy x"), _backward, flops=lambda s: 34 * s["N"], tolerance=8.0
)
OP = Op(GELU_ERF, _gradient, (GELU_ERF_BACKWARD,))
