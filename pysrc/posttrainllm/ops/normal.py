"""normal: initial weights from a counter-based generator, the same bits on every engine.

z is the sum of twelve uniform 16-bit words, centred and scaled (Irwin–Hall): mean 0, variance 1 to 1e-9, support ±6.
Only integers and one float multiply, so no libm and no rounding can differ. Words come from splitmix64
(Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators").
"""

from .lazy import np
from .spec import Kernel, args

GOLDEN = 0x9E3779B97F4A7C15
MASK = (1 << 64) - 1


def mix(z: int) -> int:
    """splitmix64's finaliser on one 64-bit integer."""
    z &= MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def mix_array(z):
    """`mix` on an array of uint64."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _normal(sizes, params, seed, x):
    std, stream = params
    seed64 = (int(seed[0]) & 0xFFFFFFFF) | ((int(seed[1]) & 0xFFFFFFFF) << 32)
    key = mix(seed64 + GOLDEN * (stream + 1))
    total = np.zeros(sizes["N"], np.int64)
    index = np.arange(sizes["N"], dtype=np.uint64)
    with np.errstate(over="ignore"):
        for j in range(3):
            counter = index * np.uint64(3) + np.uint64(j + 1)
            word = mix_array(np.uint64(key) + np.uint64(GOLDEN) * counter)
            for shift in (0, 16, 32, 48):
                total += ((word >> np.uint64(shift)) & np.uint64(0xFFFF)).astype(np.int64)
    z = (total - 6 * 65535).astype(np.float32) * np.float32(2.0**-16)
    x[...] = np.float32(std) * z


NORMAL = Kernel(
    "normal",
    ("N",),
    args("in seed [2] i32", "out x [N]"),
    _normal,
    params=(("std", "f32"), ("stream", "int")),
    tolerance=0.0,
    source="splitmix64; Irwin–Hall sum of twelve uniforms",
)
