r"""GPT-2's pre-tokenizer: text is cut into words before BPE, and no token crosses such a cut.

    's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+

Python's re has no \p{…}, so the classes are spelt out from data/unicode_classes.py. ext/bpe_text.cpp does the same without
a regular expression. Source: Radford et al. 2019, Language Models are Unsupervised Multitask Learners (GPT-2's encoder.py).
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from functools import lru_cache

PIECE_BYTES = 1 << 20
CLASSES = "olns"  # other, letter, number, white space: the letter's place is its number in the engine
# A byte that ends a character which is not white space, before a line feed, tab or blank. No pre-token holds both sides,
# and neither side looks at the other: text may be cut there. (White space beyond ASCII ends in 80…8A, 9F, A0, A8, A9, AF, 85.)
_CUT = re.compile(rb"[!-~\x8b-\x9e\xa1-\xa7\xaa-\xae\xb0-\xbf](?=[ \n\t])")


@lru_cache(maxsize=1)
def runs() -> array:
    """The classes of all code points for the engine: int32 length << 2 | class, in order."""
    from .unicode_classes import RUNS

    found = re.findall(r"([lnos])([0-9a-f]+)", RUNS)
    return array("i", (int(length, 16) << 2 | CLASSES.index(letter) for letter, length in found))


@lru_cache(maxsize=1)
def pattern() -> re.Pattern[str]:
    """The regular expression above over str; bytes that are not UTF-8 come as surrogates, of class other."""
    ranges, at = {"l": [], "n": [], "s": []}, 0
    for run in runs():
        letter, length = CLASSES[run & 3], run >> 2
        if letter != "o":
            ranges[letter].append(f"\\U{at:08x}-\\U{at + length - 1:08x}")
        at += length
    letters, numbers, spaces = ("".join(ranges[letter]) for letter in "lns")
    other = f"[^{spaces}{letters}{numbers}]"
    return re.compile(
        f"'s|'t|'re|'ve|'m|'ll|'d| ?[{letters}]+| ?[{numbers}]+| ?{other}+|[{spaces}]+(?![^{spaces}])|[{spaces}]+"
    )


def split(data: bytes) -> list[bytes]:
    """The pre-tokens of a text; joined they are the text. The judge of the engine's own splitting."""
    text = data.decode("utf-8", "surrogateescape")
    return [word.encode("utf-8", "surrogateescape") for word in pattern().findall(text)]


def pieces(data: bytes, size_bytes: int = PIECE_BYTES) -> Iterator[bytes]:
    """A long text in pieces of about `size_bytes`, cut where it makes no difference; one piece where there is no such place."""
    begin = 0
    while begin < len(data):
        found = _CUT.search(data, begin + size_bytes - 1) if begin + size_bytes < len(data) else None
        end = found.end() if found else len(data)
        yield bytes(data[begin:end])
        begin = end
