"""A constraint: which tokens may come next, so that the text can always be brought to an end that is accepted."""

from __future__ import annotations

from ...errors import ConfigError
from .network import FAR, Network
from .nodes import Node
from .states import State, States
from .vocabulary import Branch, Vocabulary

MOST_INNER = 2_000  # states of machines of which the walk through the vocabulary is kept
MOST_HELD = 4_000_000  # tokens in all of these walks: some 64 MB
MOST_MASKS = 64  # of one state, for different numbers of tokens left
MOST_AHEAD = 250_000  # beginnings of tokens looked at when a constraint is made: 0.1 s, so that few masks are made while writing


class Masks:
    """Of one state: its tokens by how far they leave the end, and masks made so far by the reach that they need."""

    __slots__ = ("allowed", "bits", "by_distance", "farthest")

    def __init__(self, by_distance: dict[int, list[int]]) -> None:
        self.by_distance = by_distance
        self.farthest = max(by_distance, default=0)
        self.allowed: dict[int, tuple[int, ...]] = {}
        self.bits: dict[int, bytes] = {}


class Constraint:
    """Texts of a language, token by token over one vocabulary. Made by regex, json_schema or grammar (in __init__.py).

    `left` is the number of tokens that may still come, None for no limit: a token after which the text could not be ended
    in the rest is not allowed. If shortest(state) <= left, then every state that is entered keeps that.
    """

    def __init__(self, definitions: dict[str, Node], start: str, vocabulary: Vocabulary, place: str) -> None:
        self.vocabulary, self.place = vocabulary, place
        try:
            self._network = Network(definitions, start, vocabulary, place)
        except RecursionError:
            raise ConfigError(place, "parts nest a few hundred deep at most", "more came", "write it flatter") from None
        self._states = States(self._network)
        self._groups: dict[Branch, list] = {}
        self._inner: dict[int, tuple] = {}
        self._seen = self._held = 0
        for state in range(self._network.final):
            if self._seen >= MOST_AHEAD or len(self._inner) >= MOST_INNER:  # the rest when it is met
                break
            self._inside(state)

    def start(self) -> State:
        """The state before the first token."""
        return self._states.first

    def advance(self, state: State, token: int) -> State | None:
        """The state after a token (its number in the vocabulary), None where it may not come."""
        try:
            return state.moved[token]
        except KeyError:
            pass
        after: State | None = state if 0 <= token < len(self.vocabulary) and self.vocabulary.tokens[token] else None
        if after is not None:
            for byte in self.vocabulary.tokens[token]:
                after = self._states.step(after, self._network.class_of[byte])
                if after is None:
                    break
        if after is not None and after.distance >= FAR:
            after = None
        state.moved[token] = after
        return after

    def finished(self, state: State) -> bool:
        """Whether the text is accepted as it stands."""
        return state.accepts

    def must_stop(self, state: State, left: int | None = None) -> bool:
        """Whether the text is accepted and no token may come."""
        return state.accepts and not self.allowed(state, left)

    def shortest(self, state: State) -> int:
        """Tokens within which the text can be ended for certain; 0 where it may end here. See network.py on when it is exact."""
        return state.distance

    def allowed(self, state: State, left: int | None = None) -> tuple[int, ...]:
        """The tokens that may come, in order."""
        masks = state.masks or self._masks(state)
        reach = masks.farthest if left is None or left > masks.farthest else left - 1
        try:
            return masks.allowed[reach]
        except KeyError:
            if len(masks.allowed) >= MOST_MASKS:
                masks.allowed.clear()
                masks.bits.clear()
            found = sorted(
                token for distance, tokens in masks.by_distance.items() if distance <= reach for token in tokens
            )
            masks.allowed[reach] = tuple(found)
            return masks.allowed[reach]

    def mask(self, state: State, left: int | None = None) -> bytes:
        """uint8 [V]: 1 where a token may come, else 0."""
        allowed = self.allowed(state, left)
        masks = state.masks
        reach = masks.farthest if left is None or left > masks.farthest else left - 1
        if reach not in masks.bits:
            bits = bytearray(len(self.vocabulary))
            for token in allowed:
                bits[token] = 1
            masks.bits[reach] = bytes(bits)
        return masks.bits[reach]

    def require(self, tokens: int) -> None:
        """Raises ConfigError when no text fits into so many tokens."""
        shortest = self.start().distance
        if shortest > tokens:
            raise ConfigError(
                self.place, f"room for its shortest text, {shortest:,} tokens", f"at most {tokens:,} were to be written",
                f"allow {shortest:,} tokens or more",
            )  # fmt: skip

    def _masks(self, state: State) -> Masks:
        """Walk the vocabulary from a state."""
        found: dict[int, list[int]] = {}
        todo, whole = [(state, self.vocabulary.root)], None
        if len(state.items) == 1:  # most are: what stays in its machine is the same wherever the machine was called
            ((here, frame),) = state.items
            near, beyond, inside = self._inside(here)
            base = frame.distance[self._network.owner[here]]
            if beyond:
                found = {base + distance: list(tokens) for distance, tokens in near.items()}
            else:
                found, whole = {base + distance: tokens for distance, tokens in near.items()}, inside
            todo = [(self._states.at(after, frame), branch) for after, branch in beyond]
        while todo:
            place, branch = todo.pop()
            for number, tokens, longer in self._grouped(branch):
                distance = self._states.peek(place, number)
                if tokens and distance < FAR:
                    found.setdefault(distance, []).extend(tokens)
                if longer:
                    after = self._states.step(place, number)
                    if after is not None:
                        todo += [(after, each) for each in longer]
        state.masks = Masks(found)
        if whole is not None:
            state.masks.allowed[state.masks.farthest] = whole
        return state.masks

    def _inside(self, start: int) -> tuple[dict[int, list[int]], list[tuple[int, Branch]], tuple[int, ...]]:
        """From a machine's state: tokens by the distance that they leave to the machine's end, beginnings of tokens that come to
        where it may end or call another, and all those tokens in order."""
        if start not in self._inner:
            if len(self._inner) >= MOST_INNER or self._held >= MOST_HELD:
                self._inner.clear()
                self._held = 0
            network, near, beyond = self._network, {}, []
            todo = [(start, self.vocabulary.root)]
            while todo:
                here, branch = todo.pop()
                self._seen += 1
                row = network.rows[here]
                for number, tokens, longer in self._grouped(branch):
                    after = row[number]
                    if after < 0:
                        continue
                    if tokens and network.distance[after] < FAR:
                        near.setdefault(network.distance[after], []).extend(tokens)
                    if longer:
                        simple = not network.accepts[after] and not network.calls[after]
                        (todo if simple else beyond).extend((after, each) for each in longer)
            for tokens in near.values():
                tokens.sort()  # here once: runs in order are soon put together
            whole = tuple(sorted(token for tokens in near.values() for token in tokens))
            self._held += len(whole)
            self._inner[start] = near, beyond, whole
        return self._inner[start]

    def _grouped(self, branch: Branch) -> list[tuple[int, list[int], list[Branch]]]:
        """What comes after a beginning, by the class of the next byte: (class, tokens that end there, branches that go on)."""
        if branch not in self._groups:
            groups: dict[int, tuple[int, list[int], list[Branch]]] = {}
            for byte, longer in branch.after.items():
                number = self._network.class_of[byte]
                _, tokens, more = groups.setdefault(number, (number, [], []))
                tokens += longer.tokens
                if longer.after:
                    more.append(longer)
            self._groups[branch] = list(groups.values())
        return self._groups[branch]
