"""lora: a low-rank change of a linear, added to columns first … first+J-1 of its output in place (Hu et al. 2021).

hidden = x·down;  y[:, first:first+J] += strength·(hidden·up).  down [I,K], up [K,J], rank K; saved: hidden[R,K].
`strength` [1] is read at every replay, so a slider needs no other tape; no gradient is taken of it.
dhidden = strength·dy[:, first:first+J]·upᵀ;  dx += dhidden·downᵀ;  ddown += xᵀ·dhidden
dup += strength·hiddenᵀ·dy[:, first:first+J].  The linear's own gradient is unchanged: dy passes through.
"""

from .spec import Kernel, Op, args


def _covered(sizes, params, y):
    """The columns of y [R,O] that the adapter covers, as a view."""
    return y[:, params[0] : params[0] + sizes["J"]]


def _forward(sizes, params, x, down, up, strength, y, hidden):
    hidden[...] = x @ down
    if strength[0]:  # at 0 the base's own y, even where the adapter holds what is not finite
        _covered(sizes, params, y)[...] += strength[0] * (hidden @ up)


def _backward_hidden(sizes, params, dy, up, strength, dhidden):
    dhidden[...] = strength[0] * (_covered(sizes, params, dy) @ up.T)


def _backward_input(sizes, params, dhidden, down, dx):
    contribution = dhidden @ down.T
    if params[0]:
        dx += contribution
    else:
        dx[...] = contribution


def _backward_weight(sizes, params, x, hidden, dhidden, dy, strength, ddown, dup):
    ddown += x.T @ dhidden
    dup += strength[0] * (hidden.T @ _covered(sizes, params, dy))


def _gradient(builder, node, dy):
    x, down, up, strength = (node.arg(name) for name in ("x", "down", "up", "strength"))
    sizes, first = node.sizes, node.params
    weights = builder.needs(down) or builder.needs(up)
    if not weights and not builder.needs(x):
        return
    dhidden = builder.call("lora_backward_hidden", sizes, first, dy=dy, up=up, strength=strength)["dhidden"]
    if weights:
        builder.call(
            "lora_backward_weight",
            sizes,
            first,
            x=x,
            hidden=node.arg("hidden"),
            dhidden=dhidden,
            dy=dy,
            strength=strength,
            ddown=builder.parameter_gradient(down),
            dup=builder.parameter_gradient(up),
        )
    if builder.needs(x):
        dx, accumulate = builder.accumulator(x)
        builder.call("lora_backward_input", sizes, (int(accumulate),), dhidden=dhidden, down=down, dx=dx)
        builder.settle(x, dx, accumulate)


_LETTERS = ("R", "I", "O", "K", "J")
_FIRST = (("first", "int"),)
LORA = Kernel(
    "lora",
    _LETTERS,
    args("in x [R,I]", "in down [I,K]", "in up [K,J]", "in strength [1]", "inout y [R,O]", "saved hidden [R,K]"),
    _forward,
    params=_FIRST,
    flops=lambda s: 2 * s["R"] * s["K"] * (s["I"] + s["J"]),
    reduces=("I", "K"),
    source="arXiv 2106.09685",
)
LORA_BACKWARD_HIDDEN = Kernel(
    "lora_backward_hidden",
    ("R", "O", "K", "J"),
    args("in dy [R,O]", "in up [K,J]", "in strength [1]", "out dhidden [R,K]"),
    _backward_hidden,
    params=_FIRST,
    flops=lambda s: 2 * s["R"] * s["K"] * s["J"],
    reduces=("J",),
)
LORA_BACKWARD_INPUT = Kernel(
    "lora_backward_input",
    ("R", "I", "K"),
    args("in dhidden [R,K]", "in down [I,K]", "accum dx [R,I]"),
    _backward_input,
    params=(("accumulate", "int"),),
    flops=lambda s: 2 * s["R"] * s["K"] * s["I"],
    reduces=("K",),
)
LORA_BACKWARD_WEIGHT = Kernel(
    "lora_backward_weight",
    _LETTERS,
    args(
        "in x [R,I]",
        "in hidden [R,K]",
        "in dhidden [R,K]",
        "in dy [R,O]",
        "in strength [1]",
        "accum ddown [I,K]",
        "accum dup [K,J]",
    ),
    _backward_weight,
    params=_FIRST,
    flops=lambda s: 2 * s["R"] * s["K"] * (s["I"] + s["J"]),
    reduces=("R",),
)
OP = Op(LORA, _gradient, (LORA_BACKWARD_HIDDEN, LORA_BACKWARD_INPUT, LORA_BACKWARD_WEIGHT))
