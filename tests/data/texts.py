"""Texts that a tokenizer may stumble over, the same everywhere."""

from __future__ import annotations

import random

KINDS = (
    "'s't're've'm'll'd'S''x’s",
    " \t\n\r\x0b\x0c\x85\xa0\u1680\u2003\u2028\u202f\u3000",
    "0123456789½²Ⅷ٣೬一二三",
    "the quick brown fox was in that house and there",
    "é̂ạ̈́ñ́ÅÅ\u200d\u200b\ufeff",
    "🙂👩‍👩‍👧🇩🇪👍🏽🤷‍♂️",
    "漢字仮名交じり文한국어ไทยہندیहिन्दी",
    '!?.,;:-–—()[]{}<|endoftext|>"@#$%^&*+=/\\~`',
)


def unicode_text(rng: random.Random) -> str:
    """Words, runs of blanks, contractions, digits, emoji, combining marks, CJK, or any code points but surrogates."""
    parts = []
    for _ in range(rng.randrange(1, 9)):
        kind = rng.randrange(len(KINDS) + 4)
        if kind < len(KINDS):
            parts += rng.choices(KINDS[kind], k=rng.randrange(1, 9))
        elif kind == len(KINDS):
            parts.append(rng.choice(" \n\t") * rng.randrange(1, 30))
        elif kind == len(KINDS) + 1:
            parts += [chr(code) for code in rng.choices(range(0x110000), k=6) if not 0xD800 <= code < 0xE000]
        else:
            parts.append(rng.choice((" the", " of", "ing", " and ", "It's ", "we'll", "don't", "\n\n")))
    return "".join(parts)


def any_bytes(rng: random.Random) -> bytes:
    """Text with bytes in it that are not UTF-8."""
    data = bytearray(unicode_text(rng).encode())
    for _ in range(rng.randrange(6)):
        at = rng.randrange(len(data) + 1)
        data[at : at + rng.randrange(2)] = rng.randbytes(rng.randrange(3))
    return bytes(data)


LEARNED_FROM = (
    "The quick brown fox jumps over the lazy dog, and the dog doesn't mind; it's what they'll do in the house of the fox.\n"
    "Über den Wölkchen, 漢字 und 仮名: 1999, 2000, 2001 … the end of the story, then and there.   \n\n\t🙂🙂 🙂 naïve café\n"
) * 40
"""Something to learn a small tokenizer from."""
