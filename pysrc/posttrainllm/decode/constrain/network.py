"""All machines of a constraint side by side: one numbering, byte classes, and how far each state is from an end.

A distance counts tokens: the fewest that lead from a state to the end of its machine. Tokens that run across the border of two
machines do not count towards it (they may still be written), so it is exact where there is one machine, as for every regex, and for a
byte vocabulary; elsewhere it is an upper bound that some token always brings down by one. That is what "can always be ended" rests on.
"""

from __future__ import annotations

import heapq

from ...errors import ConfigError
from .definitions import gathered
from .nfa import machine_of
from .nodes import Node, nullable_names
from .vocabulary import Branch, Vocabulary

FAR = 1 << 60  # no way to an end is known


class Network:
    """States 0 … n-1 of all machines, and n, FINAL, which accepts for the whole.

    rows[q][class] is the state after a byte of that class or -1; calls[q] are (machine, state after it); owner[q] is q's machine;
    start[m] is its first state. pure[q] means: nothing comes after q but the end of its machine.
    """

    def __init__(self, definitions: dict[str, Node], start: str, vocabulary: Vocabulary, place: str) -> None:
        kept = gathered(definitions, start)
        names = nullable_names(kept)
        machines = {name: machine_of(node, names) for name, node in kept.items()}
        numbers = {name: number for number, name in enumerate(machines)}
        self.start, self.owner, moves, self.calls = [], [], [], []
        self.accepts: list[bool] = []
        for name, machine in machines.items():
            base = len(self.owner)
            self.start.append(base)
            self.owner += [numbers[name]] * len(machine.moves)
            self.accepts += [state in machine.accepts for state in range(len(machine.moves))]
            moves += [[(low, high, base + target) for low, high, target in row] for row in machine.moves]
            self.calls += [tuple((numbers[called], base + target) for called, target in row) for row in machine.calls]
        self.first = numbers[start]
        self.final = len(self.owner)
        self.owner.append(-1)
        self.calls.append(())
        moves.append([])
        self.accepts.append(False)
        self.class_of, self.classes = _byte_classes(moves)
        dead = (-1,) * self.classes
        self.rows = [self._row(row) if row else dead for row in moves]
        self.moving = [bool(row) for row in moves]
        self.pure = [accepts and not self.calls[q] and not moves[q] for q, accepts in enumerate(self.accepts)]
        self.distance = self._distances(vocabulary)
        self.distance[self.final] = 0
        if self.distance[self.start[self.first]] >= FAR:
            raise ConfigError(
                place, "some text that the model's tokens can spell follows it", "none does", "look for what contradicts itself in it"
            )

    def _row(self, moves: list[tuple[int, int, int]]) -> tuple[int, ...]:
        row = [-1] * self.classes
        for low, high, target in moves:
            for number in range(self.class_of[low], self.class_of[high] + 1):
                row[number] = target
        return tuple(row)

    def _distances(self, vocabulary: Vocabulary) -> list[int]:
        """Knuth's generalisation of Dijkstra's algorithm: states in the order of their distance from the end of their machine."""
        before: list[list[int]] = [[] for _ in self.rows]
        for state in range(self.final):
            for target in self._after_one_token(state, vocabulary):
                before[target].append(state)
        callers: dict[int, list[tuple[int, int, int]]] = {}  # by the state that must be known: (caller, machine, state after)
        for state, calls in enumerate(self.calls):
            for machine, after in calls:
                for needed in {self.start[machine], after}:
                    callers.setdefault(needed, []).append((state, machine, after))
        found = [FAR] * len(self.rows)
        heap = [(0, state) for state, accepts in enumerate(self.accepts) if accepts]
        while heap:
            distance, state = heapq.heappop(heap)
            if found[state] < FAR:
                continue
            found[state] = distance
            for earlier in before[state]:
                if found[earlier] >= FAR:
                    heapq.heappush(heap, (distance + 1, earlier))
            for caller, machine, after in callers.get(state, ()):
                total = found[self.start[machine]] + found[after]
                if total < FAR and found[caller] >= FAR:
                    heapq.heappush(heap, (total, caller))
        return found

    def _after_one_token(self, state: int, vocabulary: Vocabulary) -> set[int]:
        """Where one token leads without leaving the machine."""
        if vocabulary.bytes_only and len(vocabulary.root.after) == 256:
            return set(self.rows[state]) - {-1}
        found: set[int] = set()
        todo: list[tuple[int, Branch]] = [(state, vocabulary.root)]
        while todo:
            here, branch = todo.pop()
            row = self.rows[here]
            for byte, longer in branch.after.items():
                target = row[self.class_of[byte]]
                if target >= 0:
                    if longer.tokens:
                        found.add(target)
                    if longer.after:
                        todo.append((target, longer))
        return found


def _byte_classes(moves: list[list[tuple[int, int, int]]]) -> tuple[bytes, int]:
    """Bytes between which no state tells apart, as one class: (class of each byte, number of classes)."""
    cuts = sorted({0} | {low for row in moves for low, _, _ in row} | {high + 1 for row in moves for _, high, _ in row} - {256})
    classes = bytearray(256)
    for number, (low, high) in enumerate(zip(cuts, [*cuts[1:], 256])):
        classes[low:high] = bytes((number,)) * (high - low)
    return bytes(classes), len(cuts)
