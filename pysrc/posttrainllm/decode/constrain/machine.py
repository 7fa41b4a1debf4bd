"""Deterministic automata over bytes: the smallest of a language, what two have in common, and what one has alone.

A machine may also have call edges: there a definition's text must come before it goes on (a recursive transition network).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...errors import ConfigError

MOST_STATES = 20_000
Moves = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class Machine:
    """State 0 is the start. moves[q] are (first byte, last byte, target), sorted, disjoint; calls[q] are (name, target)."""

    moves: tuple[Moves, ...]
    calls: tuple[tuple[tuple[str, int], ...], ...]
    accepts: frozenset[int]

    def step(self, state: int, byte: int) -> int | None:
        """The target of one byte."""
        for low, high, target in self.moves[state]:
            if low <= byte <= high:
                return target
        return None

    def matches(self, data: bytes) -> bool:
        """Whether a machine without calls accepts `data`."""
        state: int | None = 0
        for byte in data:
            state = self.step(state, byte)
            if state is None:
                return False
        return state in self.accepts


def too_large() -> ConfigError:
    """The error for what grows past the limits."""
    return ConfigError(
        "constraint", f"its automaton has at most {MOST_STATES:,} states", "a larger one came of it",
        "make counted repeats and character classes smaller",
    )  # fmt: skip


def joined(moves: Iterable[tuple[int, int, int]]) -> Moves:
    """Neighbouring ranges with one target as one range."""
    found: list[tuple[int, int, int]] = []
    for low, high, target in moves:
        if found and found[-1][2] == target and found[-1][1] + 1 == low:
            found[-1] = (found[-1][0], high, target)
        else:
            found.append((low, high, target))
    return tuple(found)


def minimised(machine: Machine) -> Machine:
    """The same language with the fewest states (Moore's refinement), without states from which nothing is accepted.

    States that accept at different depths are told apart at once, by the shortest and the longest way to an end. After that only states
    before one whose block changed are looked at again, and of a block that splits the largest part keeps its number (Hopcroft): a long chain
    costs what its states do, not their square.
    """
    shortest, longest = _depths(machine)
    live = [state for state in range(len(machine.moves)) if state in shortest]
    if 0 not in shortest:
        return Machine(((),), ((),), frozenset())
    block = _numbered({state: (state in machine.accepts, shortest[state], longest.get(state)) for state in live})

    def signature(state: int) -> tuple:
        return (
            joined((low, high, block[target]) for low, high, target in machine.moves[state] if target in block),
            tuple((name, block[target]) for name, target in machine.calls[state] if target in block),
        )

    members: dict[int, set[int]] = {}
    before: dict[int, set[int]] = {state: set() for state in live}
    for state in live:
        members.setdefault(block[state], set()).add(state)
        for target in (*(target for _, _, target in machine.moves[state]), *(target for _, target in machine.calls[state])):
            if target in before:
                before[target].add(state)
    unsure = set(live)
    while unsure:
        parts: dict[int, dict[tuple, set[int]]] = {}
        for state in unsure:
            parts.setdefault(block[state], {}).setdefault(signature(state), set()).add(state)
        unsure = set()
        for number, found in parts.items():
            rest = members[number].difference(*found.values())  # none of theirs changed: alike, and like none of the others
            split = sorted([*found.values(), *([rest] if rest else [])], key=len)
            members[number] = split.pop()
            for part in split:
                fresh = len(members)
                members[fresh] = part
                block.update(dict.fromkeys(part, fresh))
                unsure.update(*(before[state] for state in part))
    final = _numbered({state: (block[state],) for state in live})  # in order of first appearance; the start, first of all, is 0
    chosen = {final[state]: state for state in live}
    moves = tuple(joined((low, high, final[t]) for low, high, t in machine.moves[chosen[number]] if t in final) for number in range(len(chosen)))
    calls = tuple(tuple((name, final[t]) for name, t in machine.calls[chosen[number]] if t in final) for number in range(len(chosen)))
    return Machine(moves, calls, frozenset(final[state] for state in live if state in machine.accepts))


def _numbered(keys: dict[int, tuple]) -> dict[int, int]:
    numbers: dict[tuple, int] = {}
    return {state: numbers.setdefault(key, len(numbers)) for state, key in keys.items()}


def _depths(machine: Machine) -> tuple[dict[int, int], dict[int, int]]:
    """Edges on the shortest way to an accepting state, and on the longest where no circle can be reached."""
    before: list[set[int]] = [set() for _ in machine.moves]
    after: list[set[int]] = []
    for state, moves in enumerate(machine.moves):
        after.append({target for _, _, target in moves} | {target for _, target in machine.calls[state]})
        for target in after[state]:
            before[target].add(state)
    shortest = dict.fromkeys(machine.accepts, 0)
    todo = list(machine.accepts)
    for state in todo:  # grows while it runs
        for earlier in before[state]:
            if earlier not in shortest:
                shortest[earlier] = shortest[state] + 1
                todo.append(earlier)
    waiting = [sum(target in shortest for target in targets) for targets in after]
    longest = {state: 0 for state in shortest if not waiting[state]}
    todo = list(longest)
    for state in todo:
        for earlier in before[state]:
            if earlier in shortest:
                waiting[earlier] -= 1
                if not waiting[earlier]:
                    longest[earlier] = 1 + max(longest[target] for target in after[earlier] if target in shortest)
                    todo.append(earlier)
    return shortest, longest


def intersection(a: Machine, b: Machine) -> Machine:
    """What both accept; neither has calls. `difference` is the same with the second one's verdict turned."""
    return _product(a, b, lambda in_a, in_b: in_a and in_b, False)


def difference(a: Machine, b: Machine) -> Machine:
    """What `a` accepts and `b` does not."""
    return _product(a, b, lambda in_a, in_b: in_a and not in_b, True)


def _product(a: Machine, b: Machine, verdict, b_may_end: bool) -> Machine:
    numbers, order = {(0, 0): 0}, [(0, 0)]
    moves, accepts = [], set()
    for here, (p, q) in enumerate(order):  # grows while it runs; q is None where b has died
        row = []
        for low, high, target in a.moves[p]:
            for first, last, other in _cover(low, high, b.moves[q] if q is not None else ()):
                if other is None and not b_may_end:
                    continue
                pair = (target, other)
                if pair not in numbers:
                    if len(order) >= MOST_STATES:
                        raise too_large()
                    numbers[pair] = len(order)
                    order.append(pair)
                row.append((first, last, numbers[pair]))
        moves.append(tuple(row))
        if verdict(p in a.accepts, q in b.accepts):
            accepts.add(here)
    return minimised(Machine(tuple(moves), ((),) * len(moves), frozenset(accepts)))


def _cover(low: int, high: int, moves: Moves) -> list[tuple[int, int, int | None]]:
    """low … high cut where `moves` change, with their targets or None."""
    found, place = [], low
    for first, last, target in moves:
        if last < low or first > high:
            continue
        if first > place:
            found.append((place, first - 1, None))
        found.append((max(first, place), min(last, high), target))
        place = min(last, high) + 1
    if place <= high:
        found.append((place, high, None))
    return found


def ending_in(machine: Machine, states: Iterable[int]) -> Machine:
    """What leads to one of these accepting states."""
    return minimised(Machine(machine.moves, machine.calls, frozenset(states)))


def not_beginning(machine: Machine, barred: bytes) -> Machine:
    """What does not begin with one of these bytes."""
    first = tuple(
        move
        for byte in range(256)
        if byte not in barred
        for move in ((byte, byte, machine.step(0, byte)),)
        if move[2] is not None
    )
    moves = tuple(
        tuple((low, high, target + 1) for low, high, target in row) for row in (joined(first), *machine.moves)
    )
    accepts = {state + 1 for state in machine.accepts} | ({0} if 0 in machine.accepts else set())
    return minimised(Machine(moves, ((), *machine.calls), frozenset(accepts)))


def next_bytes(machine: Machine, state: int) -> bytes:
    """The bytes that may follow in a state."""
    return bytes(byte for low, high, _ in machine.moves[state] for byte in range(low, high + 1))
