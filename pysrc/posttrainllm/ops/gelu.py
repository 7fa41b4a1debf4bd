"""gelu: the tanh form that GPT-2 uses (Hendrycks, Gimpel 2016; "gelu_new" in Hugging Face).

u = sqrt(2/π)·(x + 0.044715·x³);  y = x/2·(1 + tanh u)
dx = dy·((1 + tanh u)/2 + x/2·(1 - tanh² u)·sqrt(2/π)·(1 + 3·0.044715·x²))
"""

from .lazy import np
from .spec import Kernel, Op, args

ROOT = 0.7978845608028654
CUBIC = 0.044715


def _forward(sizes, params, x, y):
    y[...] = 0.5 * x * (1.0 + np.tanh(ROOT * (x + CUBIC * x**3)))


def _backward(sizes, params, dy, x, dx):
    t = np.tanh(ROOT * (x + CUBIC * x**3))
    dx[...] = dy * (0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * ROOT * (1.0 + 3.0 * CUBIC * x * x))


def _gradient(builder, node, dy):
    x = node.arg("x")
    if builder.needs(x):
        builder.add_gradient(x, builder.call("gelu_backward", node.sizes, dy=dy, x=x)["dx"])


GELU = Kernel(
    "gelu", ("N",), args("in x [N]", "out y [N] over x"), _forward, flops=lambda s: 12 * s["N"], tolerance=4.0, source="arXiv 1606.08415"
)
GELU_BACKWARD = Kernel(
    "gelu_backward", ("N",), args("in dy [N]", "in x [N]", "out dx [N] over dy x"), _backward, flops=lambda s: 20 * s["N"], tolerance=8.0
)
OP = Op(GELU, _gradient, (GELU_BACKWARD,))
