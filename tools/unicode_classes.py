"""Write pysrc/posttrainllm/data/unicode_classes.py: which code points are letters, numbers or white space to BPE's pre-tokenizer.

For whoever takes a newer Unicode; build.sh never runs this. It is one version for all, whatever Python runs the package:
the one that the `tokenizers` library has, because ids must equal its. Run it with a Python of that version (3.14 has
16.0), or with the package `unicodedata2` of that version installed.
"""

from __future__ import annotations

import itertools
import textwrap

from tools import paths

VERSION = "16.0.0"
TARGET = paths.PACKAGE / "data" / "unicode_classes.py"
HEAD = '''"""Letters, numbers and white space of Unicode {version}, written by tools/unicode_classes.py. Do not edit."""

VERSION = "{version}"
RUNS = (
'''


def database():
    """A unicodedata module of VERSION."""
    for name in ("unicodedata", "unicodedata2"):
        try:
            found = __import__(name)
        except ImportError:
            continue
        if found.unidata_version == VERSION:
            return found
    raise SystemExit(
        f"This needs a Python whose unicodedata is of {VERSION}, or the package unicodedata2 of that version."
    )


def letter_of(category: str, code: int) -> str:
    r"""l for \p{L}, n for \p{N}, s for \s (White_Space), o for others."""
    if category[0] == "Z" or 9 <= code <= 13 or code == 0x85:
        return "s"
    return {"L": "l", "N": "n"}.get(category[0], "o")


def module() -> str:
    """The file's text: each run is a letter and its length in hexadecimal digits."""
    data = database()
    letters = (letter_of(data.category(chr(code)), code) for code in range(0x110000))
    runs = "".join(f"{letter}{sum(1 for _ in run):x}" for letter, run in itertools.groupby(letters))
    lines = "".join(f'    "{line}"\n' for line in textwrap.wrap(runs, 110))
    return HEAD.format(version=VERSION) + lines + ")\n"


if __name__ == "__main__":
    TARGET.write_text(module(), encoding="utf-8")
