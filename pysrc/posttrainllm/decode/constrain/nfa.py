"""From a tree to a machine: Thompson's construction, then the subset construction, then the smallest machine."""

from __future__ import annotations

from collections.abc import Iterable

from .charset import char_machine
from .machine import MOST_STATES, Machine, joined, minimised, too_large
from .nodes import Alt, Call, Chars, Fixed, Members, Node, NotEnding, Repeat, Seq, Text

MOST_NFA_STATES = 200_000


class Nfa:
    """States with byte ranges, calls and empty edges."""

    def __init__(self, nullable: Iterable[str] = ()) -> None:
        self.moves: list[list[tuple[int, int, int]]] = []
        self.calls: list[list[tuple[str, int]]] = []
        self.empty: list[list[int]] = []
        self.nullable = frozenset(nullable)

    def state(self) -> int:
        """A new state."""
        if len(self.moves) >= MOST_NFA_STATES:
            raise too_large()
        self.moves.append([])
        self.calls.append([])
        self.empty.append([])
        return len(self.moves) - 1

    def add(self, node: Node, start: int) -> int:
        """Put `node` behind state `start`; returns the state behind it."""
        if isinstance(node, Text):
            for byte in node.data:
                after = self.state()
                self.moves[start].append((byte, byte, after))
                start = after
            return start
        if isinstance(node, Seq):
            for part in node.parts:
                start = self.add(part, start)
            return start
        end = self.state()
        if isinstance(node, Chars):
            self.embed(char_machine(node.ranges, node.in_json), start, end)
        elif isinstance(node, Fixed):
            self.embed(node.machine, start, end)
        elif isinstance(node, Alt):
            for option in node.options:
                first = self.state()
                self.empty[start].append(first)
                self.empty[self.add(option, first)].append(end)
        elif isinstance(node, Call):
            self.calls[start].append((node.name, end))
            if node.name in self.nullable:
                self.empty[start].append(end)
        elif isinstance(node, Repeat):
            self._repeat(node, start, end)
        elif isinstance(node, NotEnding):
            self._not_ending(node, start, end)
        elif isinstance(node, Members):
            self._members(node, start, end)
        return end

    def _repeat(self, node: Repeat, start: int, end: int) -> None:
        for _ in range(node.low):
            start = self.add(node.part, start)
        for _ in range(1 if node.high is None else node.high - node.low):
            loop, inner = self.state(), self.state()
            self.empty[start].append(loop)
            self.empty[loop] += [end, inner] if node.lazy else [inner, end]
            start = self.add(node.part, inner)
        self.empty[start].append(loop if node.high is None else end)

    def _not_ending(self, node: NotEnding, start: int, end: int) -> None:
        """Each state twice: the last byte was one of the ends, or not."""
        inner = Nfa(self.nullable)
        first = inner.state()
        last = inner.add(node.part, first)
        base = len(self.moves)
        for state in range(len(inner.moves)):
            for _ in range(2):
                copy = self.state()
                self.empty[copy] = [base + 2 * target + (copy - base) % 2 for target in inner.empty[state]]
                for low, high, target in inner.moves[state]:
                    self.moves[copy] += [(a, b, base + 2 * target + is_end) for a, b, is_end in _marked(low, high, node.ends)]
        self.empty[start].append(base + 2 * first)
        self.empty[base + 2 * last].append(end)

    def _members(self, node: Members, start: int, end: int) -> None:
        none, some = start, self.state()  # nothing written so far; something written
        for item, needed in node.items:
            before, after = self.state(), self.state()
            self.empty[none].append(before)
            self.empty[self.add(node.separator, some)].append(before)
            self.empty[self.add(item, before)].append(after)
            if needed:
                none, some = self.state(), after
            else:
                skipped = self.state()
                self.empty[none].append(skipped)
                self.empty[some].append(after)
                none, some = skipped, after
        if node.rest is not None:
            before = self.state()
            self.empty[none].append(before)
            self.empty[self.add(node.separator, some)].append(before)
            self.empty[self.add(node.rest, before)].append(some)
        self.empty[none].append(end)
        self.empty[some].append(end)

    def embed(self, machine: Machine, start: int, end: int) -> None:
        """Copy a machine between two states."""
        first = len(self.moves)
        for state, moves in enumerate(machine.moves):
            copy = self.state()
            self.moves[copy] = [(low, high, first + target) for low, high, target in moves]
            self.calls[copy] = [(name, first + target) for name, target in machine.calls[state]]
            if state in machine.accepts:
                self.empty[copy].append(end)
        self.empty[start].append(first)


def _marked(low: int, high: int, ends: bytes) -> list[tuple[int, int, int]]:
    """low … high in pieces: (first, last, whether they are ends)."""
    found = []
    for byte in range(low, high + 1):
        if found and found[-1][2] == (byte in ends):
            found[-1] = (found[-1][0], byte, found[-1][2])
        else:
            found.append((byte, byte, int(byte in ends)))
    return found


def machine_of(node: Node, nullable: Iterable[str] = (), preferred: bool = False) -> Machine:
    """The smallest machine of a tree; with `preferred`, of those texts alone that re.match would return as the match in them:
    alternatives in order, lazy repeats as short as can be. Raises ConfigError when it grows too large.
    """
    nfa = Nfa(nullable)
    start = nfa.state()
    return smallest(nfa, start, nfa.add(node, start), preferred)


def smallest(nfa: Nfa, start: int, end: int, preferred: bool = False) -> Machine:
    """The smallest machine of what leads from one state to another."""
    return minimised(_determinised(nfa, start, end, preferred))


def _split(moves: list[tuple[int, int, int]]) -> list[tuple[int, int, list[int]]]:
    """Overlapping ranges as disjoint ones, each with all its targets in the order in which they came."""
    if len(moves) == 1:
        low, high, target = moves[0]
        return [(low, high, [target])]
    starts: dict[int, list[tuple[int, int]]] = {}
    ends: dict[int, list[tuple[int, int]]] = {}
    for rank, (low, high, target) in enumerate(moves):
        starts.setdefault(low, []).append((rank, target))
        ends.setdefault(high + 1, []).append((rank, target))
    found, active, places = [], set(), sorted({*starts, *ends})
    for place, after in zip(places, [*places[1:], 256]):
        active.difference_update(ends.get(place, ()))
        active.update(starts.get(place, ()))
        if active:
            found.append((place, after - 1, [target for _, target in sorted(active)]))
    return found


def _determinised(nfa: Nfa, start: int, end: int, preferred: bool) -> Machine:
    closures: dict[int, tuple[int, ...]] = {}

    def closure(state: int) -> tuple[int, ...]:
        """States that matter (with an edge, or the end) reached by empty edges, the preferred first."""
        if state not in closures:
            seen: dict[int, None] = {}
            todo = [state]
            while todo:
                here = todo.pop()
                if here not in seen:
                    seen[here] = None
                    todo += reversed(nfa.empty[here])
            closures[state] = tuple(s for s in seen if s == end or nfa.moves[s] or nfa.calls[s])
        return closures[state]

    numbers: dict = {}
    order: list = []
    known: dict[tuple[int, ...], int] = {}

    def number(targets: Iterable[int]) -> int:
        targets = tuple(targets)
        if targets not in known:
            known[targets] = numbered(targets)
        return known[targets]

    def numbered(targets: tuple[int, ...]) -> int:
        reached = dict.fromkeys(state for target in targets for state in closure(target))
        if preferred:  # what stands behind a match is not tried any more
            states = tuple(reached)
            states = states[: states.index(end) + 1] if end in reached else states
        else:
            states = frozenset(reached)
        if states not in numbers:
            if len(order) >= MOST_STATES:
                raise too_large()
            numbers[states] = len(order)
            order.append(states)
        return numbers[states]

    number((start,))
    moves, calls, accepts = [], [], set()
    for here, states in enumerate(order):  # grows while it runs
        edges = [move for state in states for move in nfa.moves[state]]
        moves.append(joined((low, high, number(targets)) for low, high, targets in (_split(edges) if edges else ())))
        called: dict[str, list[int]] = {}
        for state in states:
            for name, target in nfa.calls[state]:
                called.setdefault(name, []).append(target)
        calls.append(tuple((name, number(called[name])) for name in sorted(called)))
        if end in states:
            accepts.add(here)
    return Machine(tuple(moves), tuple(calls), frozenset(accepts))
