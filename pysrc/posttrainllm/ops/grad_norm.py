"""grad_norm: the global L2 norm of a flat gradient buffer, for clipping (Pascanu, Mikolov, Bengio 2013).

partials[g] = Σ grad² over elements 16384·g … ; norm = sqrt(Σ partials). Fixed blocks, so threads change no bit.
"""

from ..dims import PARTIAL_ELEMENTS
from .lazy import np
from .spec import Kernel, args


def _grad_norm(sizes, params, grad, partials, norm):
    for g in range(sizes["G"]):
        block = grad[g * PARTIAL_ELEMENTS : (g + 1) * PARTIAL_ELEMENTS]
        partials[g] = (block * block).sum()
    norm[0] = np.sqrt(partials.sum())


GRAD_NORM = Kernel(
    "grad_norm",
    ("N", "G"),
    args("in grad [N]", "out partials [G]", "out norm [1]"),
    _grad_norm,
    flops=lambda s: 2 * s["N"],
    reduces=("N",),
    tolerance=1.0,
    source="arXiv 1211.5063",
)
