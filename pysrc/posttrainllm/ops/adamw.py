"""adamw: one clipped, bias-corrected AdamW step on a flat range (Loshchilov, Hutter, arXiv 1711.05101).

recipe = [lr, beta1, beta2, eps, weight_decay, clip, correction1, correction2], correction_i = 1/(1 - beta_i^step).
g = grad·min(1, clip/norm);  m = β1·m + (1-β1)·g;  v = β2·v + (1-β2)·g²
param = param·(1 - lr·weight_decay·decayed) - lr·(m·correction1)/(sqrt(v·correction2) + eps)
A norm that is not finite changes nothing: the last good weights stay, and the caller sees the norm.
"""

from .lazy import np
from .spec import Kernel, args


def _adamw(sizes, params, grad, norm, recipe, param, m, v):
    lr, beta1, beta2, eps, weight_decay, clip, correction1, correction2 = (float(value) for value in recipe)
    if not np.isfinite(norm[0]):
        return
    scale = clip / norm[0] if clip > 0 and norm[0] > clip else 1.0
    g = grad * scale
    m[...] = beta1 * m + (1 - beta1) * g
    v[...] = beta2 * v + (1 - beta2) * g * g
    param[...] = param * (1 - lr * weight_decay * params[0]) - lr * (m * correction1) / (np.sqrt(v * correction2) + eps)


ADAMW = Kernel(
    "adamw",
    ("N",),
    args("in grad [N]", "in norm [1]", "in recipe [8]", "inout param [N]", "inout m [N]", "inout v [N]"),
    _adamw,
    params=(("decayed", "int"),),
    flops=lambda s: 14 * s["N"],
    tolerance=4.0,
    source="arXiv 1711.05101",
)
