"""The letters that name sizes, and the arithmetic on them.

B batch, T time, R = B·T rows, C channels, H heads, D head width (C = H·D), I/O inputs and outputs of a linear,
F hidden, V vocabulary, P positions (context, P >= T), L layers, N flat elements, G partial sums,
K rank of an adapter, J columns that an adapter covers, S pairs of sequences,
W words of packed moments.

A dimension is written as a letter, a count, or a count before a letter: ``"R"``, ``"8"``, ``"3C"``.
"""

ELEMENT_BYTES = 4
ALIGN_BYTES = 256
PARTIAL_ELEMENTS = 16384

_DERIVED = {"R": ("B", "T"), "C": ("H", "D")}


def round_up(value: int, multiple: int) -> int:
    """The smallest multiple of `multiple` that is at least `value`."""
    return -(-value // multiple) * multiple


def resolve(dimension: str, sizes: dict[str, int]) -> int:
    """The value of one written dimension: ``resolve("3C", {"H": 2, "D": 8}) == 48``.

    Raises KeyError for a letter that `sizes` neither holds nor implies.
    """
    digits = dimension.rstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    letter = dimension[len(digits):]
    count = int(digits) if digits else 1
    if not letter:
        return count
    if letter in sizes:
        return count * sizes[letter]
    first, second = _DERIVED[letter]
    return count * sizes[first] * sizes[second]


def shape_of(letters: tuple[str, ...], sizes: dict[str, int]) -> tuple[int, ...]:
    """The integer shape of an argument written in letters."""
    return tuple(resolve(letter, sizes) for letter in letters)


def product(shape: tuple[int, ...]) -> int:
    """Number of elements of a shape (1 for the empty shape)."""
    total = 1
    for extent in shape:
        total *= extent
    return total
