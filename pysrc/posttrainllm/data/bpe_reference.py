"""BPE in plain Python: the judge of the C++ tokenizer in tests, and what is used where that is not there."""

from __future__ import annotations

import heapq
from array import array
from collections import Counter
from functools import lru_cache
from itertools import pairwise

from .pretokens import split

CACHED_WORDS = 1 << 16


class ReferenceBpe:
    """The methods of backends/bpe.py's engines, one pre-token at a time."""

    name = "python"

    def __init__(self) -> None:
        self._byte_ids, self._merges, self._counts = list(range(256)), {}, Counter()
        self._cached = lru_cache(CACHED_WORDS)(self.word)

    def load(self, table: array) -> None:
        """256 ids of the bytes, then (left, right, token) for each merge in order."""
        self._byte_ids = table[:256].tolist()
        triples = zip(table[256::3], table[257::3], table[258::3], strict=True)
        self._merges = {(left, right): (rank, token) for rank, (left, right, token) in enumerate(triples)}
        self._counts.clear()
        self._cached.cache_clear()

    def split(self, data: bytes) -> array:
        """The lengths of a text's pre-tokens, in bytes."""
        return array("i", map(len, split(data)))

    def encode(self, data: bytes) -> array:
        """A text's ids."""
        ids = array("i")
        for word in split(data):
            ids.extend(self._cached(word) if len(word) < 100 else self.word(word))
        return ids

    def word(self, word: bytes) -> list[int]:
        """One pre-token's ids."""
        *_, ids = self.stages(word)
        return ids

    def stages(self, word: bytes):
        """The ids of a pre-token before the first merge and after each: the pair of lowest rank goes first, leftmost first."""
        ids = [self._byte_ids[byte] for byte in word]
        yield ids
        never = (len(self._merges), -1)
        while len(ids) > 1:
            (_, token), at = min((self._merges.get(pair, never), at) for at, pair in enumerate(pairwise(ids)))
            if token < 0:
                return
            ids = [*ids[:at], token, *ids[at + 2 :]]
            yield ids

    def count(self, data: bytes) -> int:
        """Add a text's pre-tokens to the counts; how many different ones there are now."""
        self._counts.update(split(data))
        return len(self._counts)

    def train(self, tokens: int, minimum: int) -> array:
        """(left, right, token) of each merge learned; the rules are in ext/bpe_train.h and .cpp."""
        spelt = {byte_id: bytes((byte,)) for byte, byte_id in enumerate(self._byte_ids)}
        ids = {word: token for token, word in spelt.items()}
        words = [[ids[bytes((byte,))] for byte in word] for word in self._counts]
        times = list(self._counts.values())
        counts, where = Counter(), {}
        for number, symbols in enumerate(words):
            for pair in pairwise(symbols):
                counts[pair] += times[number]
                where.setdefault(pair, set()).add(number)
        queue = [(-count, pair) for pair, count in counts.items()]
        heapq.heapify(queue)
        learned, merges, wanted = set(), array("i"), 256 + tokens
        while len(spelt) < wanted and queue:
            count, pair = heapq.heappop(queue)
            if -count != counts[pair]:
                if counts[pair] > 0:
                    heapq.heappush(queue, (-counts[pair], pair))
                continue
            if -count < minimum:
                break
            word = spelt[pair[0]] + spelt[pair[1]]
            token = ids.setdefault(word, len(spelt))
            spelt[token] = word
            if pair not in learned:
                merges.extend((*pair, token))
                learned.add(pair)
            risen = set()
            for number in where.pop(pair):
                before, words[number] = words[number], _replaced(words[number], pair, token)
                for old in pairwise(before):
                    counts[old] -= times[number]
                for new in pairwise(words[number]):
                    counts[new] += times[number]
                    where.setdefault(new, set()).add(number)
                    risen.add(new)
            for new in risen:
                heapq.heappush(queue, (-counts[new], new))
        return merges

    def close(self) -> None:
        """Nothing to give back."""


def _replaced(symbols: list[int], pair: tuple[int, int], token: int) -> list[int]:
    """The symbols with each occurrence of the pair, from the left, as one token."""
    made, at = [], 0
    while at < len(symbols):
        found = at + 1 < len(symbols) and (symbols[at], symbols[at + 1]) == pair
        made.append(token if found else symbols[at])
        at += 2 if found else 1
    return made
