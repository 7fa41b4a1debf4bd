"""adamw_bf16: the step of adamw.py with both moments kept as bfloat16, two in a 32-bit word: half the memory.

The weight's step is made of the new moments in float32; then each is rounded to one of its two neighbours, up with a chance of
its distance from the lower one. Rounded to the nearest, v would stand still wherever a step changes it by less than half of
bfloat16's 0.4 to 0.8 %: with beta2 0.999 sqrt(v) stays 4 times too large when gradients fall to 0.3 of what they were, and this
way it is within 2 % (docs/log.md). The chance is a hash of the element's place and of the gradient's norm: the same bits on every engine, and
in a run that goes on.

m and v are NumPy's float32 here, operation by operation as the engines do it, so that the bits are those of the CPU engine.
"""

from .lazy import np
from .spec import Kernel, args


def hashed(x):
    """32 bits out of 32 (uint32 array): a bijection whose output bits each depend on all of the input's (Wellons, "lowbias32")."""
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B)
    return x ^ (x >> np.uint32(16))


def chances(norm, count: int):
    """(for m, for v): a 16-bit number for each element, as uint32."""
    key = hashed(np.float32(norm).reshape(1).view(np.uint32))
    drawn = hashed(np.arange(count, dtype=np.uint32) + key)
    return drawn & np.uint32(0xFFFF), drawn >> np.uint32(16)


def moved(recipe, norm, grad, m, v):
    """Both moments (float32) after a step, in float32."""
    recipe, norm, grad = (np.asarray(each, np.float32) for each in (recipe, norm, grad))
    one, (_, beta1, beta2, _, _, clip, _, _) = np.float32(1), recipe
    g = grad * (clip / norm if clip > 0 and norm > clip else one)
    return m * beta1 + g * (one - beta1), v * beta2 + g * g * (one - beta2)


def step_weights(recipe, decayed, param, m, v):
    """The weights' step in float64, in place."""
    lr, _, _, eps, weight_decay, _, correction1, correction2 = (float(value) for value in recipe)
    m, v = m.astype(float), v.astype(float)
    param[...] = param * (1 - lr * weight_decay * decayed) - lr * (m * correction1) / (np.sqrt(v * correction2) + eps)


def as_words(numbers):
    """What an array of an engine or of the judge holds, as uint32."""
    return np.asarray(numbers).astype(np.int64).astype(np.uint32)


def unpack(words, count: int):
    """float32 of uint32 words."""
    return (words.view("<u2")[:count].astype(np.uint32) << np.uint32(16)).view(np.float32)


def pack(values, chance=None):
    """uint32 words of float32; without `chance` to the nearest, even where two are."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    bits = bits + (np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1)) if chance is None else chance)
    halves = (bits >> np.uint32(16)).astype("<u2")
    return np.append(halves, np.zeros(halves.size % 2, "<u2")).view("<u4")


def _adamw_bf16(sizes, params, grad, norm, recipe, param, m, v):
    if not np.isfinite(norm[0]):
        return
    count = sizes["N"]
    first, second = moved(recipe, norm[0], grad, unpack(as_words(m), count), unpack(as_words(v), count))
    step_weights(recipe, params[0], param, first, second)
    for words, values, chance in zip((m, v), (first, second), chances(norm[0], count)):
        words[...] = pack(values, chance).view(np.int32)


ADAMW_BF16 = Kernel(
    "adamw_bf16",
    ("N", "W"),
    args("in grad [N]", "in norm [1]", "in recipe [8]", "inout param [N]", "inout m [W] i32", "inout v [W] i32"),
    _adamw_bf16,
    params=(("decayed", "int"),),
    flops=lambda s: 14 * s["N"],
    tolerance=4.0,
    source="arXiv 1711.05101; rounding by chance: arXiv 1502.02551",
)
