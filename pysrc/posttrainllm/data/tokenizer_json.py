"""Hugging Face's tokenizer.json, for byte-level BPE as GPT-2 has it: written, and read from a file that anybody may have written.

Refused is what would make other ids than `tokenizers` makes: normalizers, other pre-tokenizers and models, post-processors that
add tokens, truncation and padding, added tokens that swallow blanks around them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from ..errors import FormatError
from .symbols import from_symbols, to_symbols

LIMIT_BYTES = 64 << 20
MAX_TOKENS = 1 << 20
LEVELS = 12
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
END_OF_TEXT = "<|endoftext|>"
REMEDY = "export it again from a byte-level BPE tokenizer (GPT-2's kind)"

Parts = tuple[list[bytes], list[tuple[int, int]], dict[str, int]]


def write(
    tokens: Sequence[bytes], merges: Sequence[tuple[int, int]], specials: dict[str, int], indent: int | None = None
) -> str:
    """The file's text. `indent` as json.dumps has it."""
    names = names_of(tokens, specials)
    whole = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": token, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
            for text, token in sorted(specials.items(), key=lambda item: item[1])
        ],
        "normalizer": None,
        "pre_tokenizer": BYTE_LEVEL,
        "post_processor": None,
        "decoder": BYTE_LEVEL,
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
            "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
            "vocab": {name: token for token, name in enumerate(names)},
            "merges": [f"{names[left]} {names[right]}" for left, right in merges],
        },
    }  # fmt: skip
    return json.dumps(whole, ensure_ascii=False, indent=indent)


def read(data: bytes) -> Parts:
    """(tokens by id, merges as pairs of ids, specials' ids) out of a file's bytes. Raises FormatError.

    That the merges make tokens of the vocabulary, and that all 256 bytes are tokens, is checked where they are used.
    """
    whole = _object(_parse(data), "the file")
    for part, wanted in (("truncation", None), ("padding", None), ("normalizer", None)):
        if whole.get(part) is not None:
            raise refusal(f"it has no {part}", f"{_kind(whole[part])} came", "save it without")
    _byte_level(whole, "pre_tokenizer", "type", "add_prefix_space", "use_regex")
    _byte_level(whole, "decoder", "type")
    if whole.get("post_processor") is not None and not _adds_nothing(whole["post_processor"]):
        _byte_level(whole, "post_processor", "type")
    model = _object(whole.get("model"), "its model")
    if model.get("type", "BPE") != "BPE":
        raise refusal("its model is BPE", f"{_kind(model['type'])} came")
    for name in ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback", "ignore_merges"):
        if model.get(name) not in (None, "", False):
            raise refusal(f"its model goes without {name}", f"{_quote(model[name])} came")
    names = _vocabulary(model.get("vocab"))
    specials = _added(whole.get("added_tokens") or [], names)
    merges = _merges(model.get("merges"), names)
    return _tokens(names, specials), merges, specials


def read_lists(vocabulary: bytes, merges: bytes) -> Parts:
    """The same out of vocab.json and merges.txt, GPT-2's older pair of files. Raises FormatError.

    GPT-2's own token for the end of a text is special there; these files cannot say so of others.
    """
    names = _vocabulary(_parse(vocabulary))
    if len(merges) > LIMIT_BYTES:
        raise refusal(f"merges.txt has at most {LIMIT_BYTES:,} bytes", f"{len(merges):,} came")
    try:
        lines = merges.decode("utf-8").replace("\r\n", "\n").split("\n")
    except UnicodeDecodeError as error:
        raise refusal("merges.txt is UTF-8", f"byte {error.start} of it is not") from None
    lines = [line for line in lines[lines[0].startswith("#version") :] if line]
    specials = {END_OF_TEXT: names[END_OF_TEXT]} if END_OF_TEXT in names else {}
    return _tokens(names, specials), _merges(lines, names), specials


def names_of(tokens: Sequence[bytes], specials: dict[str, int]) -> list[str]:
    """How files spell the tokens, by id."""
    names = [to_symbols(token) for token in tokens]
    for text, token in specials.items():
        names[token] = text
    return names


def refusal(rule: str, came: str, remedy: str = REMEDY) -> FormatError:
    """What reading raises."""
    return FormatError("tokenizer.json", rule, came, remedy, code="E-FORMAT-TOKENIZER")


def _parse(data: bytes):
    from ..store import strict_json  # at a call: reading files is the store's, one layer up

    if len(data) > LIMIT_BYTES:
        raise refusal(f"a file has at most {LIMIT_BYTES:,} bytes", f"{len(data):,} came")
    shortest_merge, shortest_added = 10, 32  # ["a","b"],   {"id":256,"content":"<|e|>"},
    crowd = strict_json.Crowd(
        brackets=min(strict_json.MAX_BRACKETS, 256 + len(data) // shortest_merge), objects=256 + len(data) // shortest_added
    )
    try:
        return strict_json.parse(data, LEVELS, "the file", crowd)
    except strict_json.Refused as error:
        raise refusal(error.rule, error.came) from None


def _byte_level(whole: dict, part: str, *checked: str) -> None:
    found = _object(whole.get(part), f"its {part}")
    for key in checked:
        if found.get(key, BYTE_LEVEL[key] if key == "use_regex" else None) != BYTE_LEVEL[key]:
            raise refusal(
                f"its {part} is ByteLevel with {key} {json.dumps(BYTE_LEVEL[key])}", f"{_quote(found.get(key))} came"
            )


def _adds_nothing(part) -> bool:
    """A template that is the text alone: transformers 5 writes it for GPT-2."""
    return isinstance(part, dict) and part.get("type") == "TemplateProcessing" and part.get("single") == [{"Sequence": {"id": "A", "type_id": 0}}]


def _vocabulary(vocab) -> dict[str, int]:
    """Names and ids: 0, 1, 2 … each once."""
    names = _object(vocab, "its vocabulary")
    if len(names) > MAX_TOKENS:
        raise refusal(f"a vocabulary has at most {MAX_TOKENS:,} tokens", f"{len(names):,} came")
    seen: set[int] = set()
    for name, token in names.items():
        if type(token) is not int or not 0 <= token < len(names):
            raise refusal(
                f"ids are whole numbers from 0 to {len(names) - 1:,}, one for each token",
                f"{_quote(name)} has {_quote(token)}",
            )
        if token in seen:
            raise refusal("no two tokens have the same id", f"{_quote(name)} has {token}, as one before it")
        seen.add(token)
    return names


def _added(added, names: dict[str, int]) -> dict[str, int]:
    """Added tokens by text. Those that the vocabulary lacks take the ids after it, in order, as `tokenizers` gives them."""
    specials, fresh, normalized = {}, len(names), set()
    for entry in _list(added, "its added_tokens"):
        entry = _object(entry, "an added token")
        text, token = entry.get("content"), entry.get("id")
        if not isinstance(text, str) or not text or not _is_text(text):
            raise refusal("an added token has a text", f"{_quote(text)} came")
        if text in specials:
            raise refusal("each added token is there once", f"{_quote(text)} is there twice")
        for key in ("single_word", "lstrip", "rstrip"):
            if entry.get(key):
                raise refusal("an added token stands for its text alone", f"{_quote(text)} has {key}")
        normalized.add(bool(entry.get("normalized")))
        wanted = names.get(text, fresh)
        if type(token) is not int or token != wanted:
            raise refusal(f"the added token {_quote(text)} has the id {wanted}", f"{_quote(token)} came")
        fresh += wanted == fresh
        specials[text] = token
    if len(normalized) > 1:
        raise refusal("added tokens are all normalized or none is", "both came")
    return specials


def _merges(merges, names: dict[str, int]) -> list[tuple[int, int]]:
    """Pairs of ids. A merge is "a b" or, as newer files have it, ["a", "b"]."""
    found = []
    for rank, merge in enumerate(_list(merges, "its merges")):
        pair = merge.split(" ") if isinstance(merge, str) else merge
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(side, str) for side in pair):
            raise refusal('a merge is two tokens, "a b" or ["a", "b"]', f"merge {rank:,} is {_quote(merge)}")
        for side in pair:
            if side not in names:
                raise refusal("merges join tokens of the vocabulary", f"merge {rank:,} names {_quote(side)}")
        found.append((names[pair[0]], names[pair[1]]))
    return found


def _tokens(names: dict[str, int], specials: dict[str, int]) -> list[bytes]:
    """Bytes by id."""
    tokens = [b""] * (len(names) + sum(text not in names for text in specials))
    for name, token in names.items():
        if name in specials:
            continue
        data = from_symbols(name)
        if not data:
            raise refusal(
                "tokens are spelt in the 256 characters that stand for bytes", f"token {token} is {_quote(name)}"
            )
        tokens[token] = data
    for text, token in specials.items():
        tokens[token] = text.encode("utf-8")
    return tokens


def _is_text(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _object(value, what: str) -> dict:
    if not isinstance(value, dict):
        raise refusal(f"{what} is an object", f"{_kind(value)} came")
    return value


def _list(value, what: str) -> list:
    if not isinstance(value, list):
        raise refusal(f"{what} are a list", f"{_kind(value)} came")
    return value


def _quote(value) -> str:
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _kind(value) -> str:
    return (
        value["type"]
        if isinstance(value, dict) and isinstance(value.get("type"), str) and len(value["type"]) < 40
        else _quote(value)
    )
