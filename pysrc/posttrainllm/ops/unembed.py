"""unembed: logits = x·wteᵀ, the output head tied to the token embedding (Press, Wolf 2017).

dx = dlogits·wte;  dwte += dlogitsᵀ·x
"""

from .spec import Kernel, Op, args


def _forward(sizes, params, x, wte, logits):
    logits[...] = x @ wte.T


def _backward_input(sizes, params, dlogits, wte, dx):
    dx[...] = dlogits @ wte


def _backward_weight(sizes, params, x, dlogits, dwte):
    dwte += dlogits.T @ x


def _gradient(builder, node, dy):
    x, wte = node.arg("x"), node.arg("wte")
    if builder.needs(wte):
        builder.call("unembed_backward_weight", node.sizes, x=x, dlogits=dy, dwte=builder.parameter_gradient(wte))
    if builder.needs(x):
        dx = builder.call("unembed_backward_input", node.sizes, dlogits=dy, wte=wte)["dx"]
        builder.add_gradient(x, dx)


def _flops(sizes):
    return 2 * sizes["R"] * sizes["C"] * sizes["V"]


_LETTERS = ("R", "C", "V")
UNEMBED = Kernel(
    "unembed",
    _LETTERS,
    args("in x [R,C]", "in wte [V,C]", "out logits [R,V]"),
    _forward,
    flops=_flops,
    reduces=("C",),
    source="arXiv 1608.05859",
)
UNEMBED_BACKWARD_INPUT = Kernel(
    "unembed_backward_input",
    _LETTERS,
    args("in dlogits [R,V]", "in wte [V,C]", "out dx [R,C]"),
    _backward_input,
    flops=_flops,
    reduces=("V",),
)
UNEMBED_BACKWARD_WEIGHT = Kernel(
    "unembed_backward_weight",
    _LETTERS,
    args("in x [R,C]", "in dlogits [R,V]", "accum dwte [V,C]"),
    _backward_weight,
    flops=_flops,
    reduces=("R",),
)
OP = Op(UNEMBED, _gradient, (UNEMBED_BACKWARD_INPUT, UNEMBED_BACKWARD_WEIGHT))
