"""embedding: token vectors plus learned position vectors (GPT-2).

x[b,t,:] = wte[tokens[b,t],:] + wpe[t,:]
dwte[v,:] += sum of dx rows whose token is v;  dwpe[t,:] += sum over b of dx[b,t,:]
embedding_at, for decoding: the first column stands at `position`, x[b,t,:] = wte[tokens[b,t],:] + wpe[position+t,:].
"""

from .lazy import np
from .spec import Kernel, Op, args, require_positions


def _rows(tokens):
    """Tokens as row numbers; NumPy would count a negative one from the end."""
    index = tokens.astype(np.int64)
    if index.min() < 0:
        raise IndexError(f"token {index.min()}")
    return index


def _forward(sizes, params, tokens, wte, wpe, x):
    x[...] = (wte[_rows(tokens)] + wpe[None, : sizes["T"]]).reshape(x.shape)


def _backward(sizes, params, tokens, dx, dwte, dwpe):
    b, t, c = sizes["B"], sizes["T"], sizes["C"]
    np.add.at(dwte, _rows(tokens).reshape(-1), dx)
    dwpe[:t] += dx.reshape(b, t, c).sum(0)


def _forward_at(sizes, params, tokens, position, wte, wpe, x):
    first = require_positions("embedding_at", position, sizes)
    _forward(sizes, params, tokens, wte, wpe[first:], x)


def _gradient(builder, node, dy):
    wte, wpe = node.arg("wte"), node.arg("wpe")
    if builder.needs(wte) or builder.needs(wpe):
        builder.call(
            "embedding_backward",
            node.sizes,
            tokens=node.arg("tokens"),
            dx=dy,
            dwte=builder.parameter_gradient(wte),
            dwpe=builder.parameter_gradient(wpe),
        )


_LETTERS = ("B", "T", "C", "V", "P")
EMBEDDING = Kernel(
    "embedding",
    _LETTERS,
    args("in tokens [B,T] i32", "in wte [V,C]", "in wpe [P,C]", "out x [R,C]"),
    _forward,
    flops=lambda s: s["B"] * s["T"] * s["C"],
    tolerance=1.0,
    source="Radford et al. 2019 (GPT-2)",
)
EMBEDDING_BACKWARD = Kernel(
    "embedding_backward",
    _LETTERS,
    args("in tokens [B,T] i32", "in dx [R,C]", "accum dwte [V,C]", "accum dwpe [P,C]"),
    _backward,
    flops=lambda s: 2 * s["B"] * s["T"] * s["C"],
    reduces=("R",),
    tolerance=1.0,
)
EMBEDDING_AT = Kernel(
    "embedding_at",
    _LETTERS,
    args("in tokens [B,T] i32", "in position [1] i32", "in wte [V,C]", "in wpe [P,C]", "out x [R,C]"),
    _forward_at,
    flops=lambda s: s["B"] * s["T"] * s["C"],
    tolerance=1.0,
)
OP = Op(EMBEDDING, _gradient, (EMBEDDING_BACKWARD,))
