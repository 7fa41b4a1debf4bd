"""linear: y = x·weight + bias, weight stored (inputs, outputs) as in GPT-2's Conv1D.

dx = dy·weightᵀ;  dweight += xᵀ·dy;  dbias += Σ_r dy
"""

from .spec import Kernel, Op, args


def _forward(sizes, params, x, weight, bias, y):
    y[...] = x @ weight + bias


def _backward_input(sizes, params, dy, weight, dx):
    dx[...] = dy @ weight.T


def _backward_weight(sizes, params, x, dy, dweight, dbias):
    dweight += x.T @ dy
    dbias += dy.sum(0)


def _gradient(builder, node, dy):
    x, weight, bias = node.arg("x"), node.arg("weight"), node.arg("bias")
    if builder.needs(weight) or builder.needs(bias):
        builder.call(
            "linear_backward_weight",
            node.sizes,
            x=x,
            dy=dy,
            dweight=builder.parameter_gradient(weight),
            dbias=builder.parameter_gradient(bias),
        )
    if builder.needs(x):
        dx = builder.call("linear_backward_input", node.sizes, dy=dy, weight=weight)["dx"]
        builder.add_gradient(x, dx)


def _flops(sizes):
    return 2 * sizes["R"] * sizes["I"] * sizes["O"]


_LETTERS = ("R", "I", "O")
LINEAR = Kernel(
    "linear", _LETTERS, args("in x [R,I]", "in weight [I,O]", "in bias [O]", "out y [R,O]"), _forward, flops=_flops, reduces=("I",)
)
LINEAR_BACKWARD_INPUT = Kernel(
    "linear_backward_input",
    _LETTERS,
    args("in dy [R,O]", "in weight [I,O]", "out dx [R,I]"),
    _backward_input,
    flops=_flops,
    reduces=("O",),
)
LINEAR_BACKWARD_WEIGHT = Kernel(
    "linear_backward_weight",
    _LETTERS,
    args("in x [R,I]", "in dy [R,O]", "accum dweight [I,O]", "accum dbias [O]"),
    _backward_weight,
    flops=_flops,
    reduces=("R",),
)
OP = Op(LINEAR, _gradient, (LINEAR_BACKWARD_INPUT, LINEAR_BACKWARD_WEIGHT))
