"""layernorm: each row to mean 0 and variance 1, then a learned gain and shift (Ba, Kiros, Hinton 2016).

xhat = (x - mean)·rstd, rstd = 1/sqrt(var + 1e-5), var biased;  y = xhat·weight + bias
g = dy·weight;  dx = rstd·(g - mean(g) - xhat·mean(g·xhat));  dweight += Σ_r dy·xhat;  dbias += Σ_r dy
Saved: mean[R], rstd[R]. layernorm_backward_input is the dx of it alone, where gain and shift are frozen.
"""

from .lazy import np
from .spec import Kernel, Op, args

EPS = 1e-5


def _forward(sizes, params, x, weight, bias, y, mean, rstd):
    mean[...] = x.mean(1)
    centred = x - mean[:, None]
    rstd[...] = 1.0 / np.sqrt((centred * centred).mean(1) + EPS)
    y[...] = centred * rstd[:, None] * weight + bias


def _backward_input(sizes, params, dy, x, weight, mean, rstd, dx):
    xhat = (x - mean[:, None]) * rstd[:, None]
    g = dy * weight
    contribution = rstd[:, None] * (g - g.mean(1, keepdims=True) - xhat * (g * xhat).mean(1, keepdims=True))
    if params[0]:
        dx += contribution
    else:
        dx[...] = contribution


def _backward(sizes, params, dy, x, weight, mean, rstd, dx, dweight, dbias):
    _backward_input(sizes, params, dy, x, weight, mean, rstd, dx)
    dweight += (dy * (x - mean[:, None]) * rstd[:, None]).sum(0)
    dbias += dy.sum(0)


def _gradient(builder, node, dy):
    x, weight, bias = node.arg("x"), node.arg("weight"), node.arg("bias")
    learned, wanted = builder.needs(weight) or builder.needs(bias), builder.needs(x)
    if not learned and not wanted:
        return
    dx, accumulate = builder.accumulator(x)  # where it is not wanted, the kernel writes it all the same
    values = {"dy": dy, "x": x, "weight": weight, "mean": node.arg("mean"), "rstd": node.arg("rstd"), "dx": dx}
    if learned:
        values |= {"dweight": builder.parameter_gradient(weight), "dbias": builder.parameter_gradient(bias)}
    name = "layernorm_backward" if learned else "layernorm_backward_input"
    builder.call(name, node.sizes, (int(accumulate),), **values)
    if wanted:
        builder.settle(x, dx, accumulate)


LAYERNORM = Kernel(
    "layernorm",
    ("R", "C"),
    args("in x [R,C]", "in weight [C]", "in bias [C]", "out y [R,C]", "saved mean [R]", "saved rstd [R]"),
    _forward,
    flops=lambda s: 8 * s["R"] * s["C"],
    reduces=("C",),
    tolerance=2.0,
    source="arXiv 1607.06450",
)
LAYERNORM_BACKWARD = Kernel(
    "layernorm_backward",
    ("R", "C"),
    args(
        "in dy [R,C]",
        "in x [R,C]",
        "in weight [C]",
        "in mean [R]",
        "in rstd [R]",
        "accum dx [R,C]",
        "accum dweight [C]",
        "accum dbias [C]",
    ),
    _backward,
    params=(("accumulate", "int"),),
    flops=lambda s: 16 * s["R"] * s["C"],
    reduces=("R", "C"),
    tolerance=1.0,
)
LAYERNORM_BACKWARD_INPUT = Kernel(
    "layernorm_backward_input",
    ("R", "C"),
    args("in dy [R,C]", "in x [R,C]", "in weight [C]", "in mean [R]", "in rstd [R]", "accum dx [R,C]"),
    _backward_input,
    params=(("accumulate", "int"),),
    flops=lambda s: 12 * s["R"] * s["C"],
    reduces=("C",),
)
OP = Op(LAYERNORM, _gradient, (LAYERNORM_BACKWARD, LAYERNORM_BACKWARD_INPUT))
