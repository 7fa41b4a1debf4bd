"""Where a text stands in a network of machines: Earley's algorithm over bytes, made deterministic as it is used.

A state is a set of items (machine state, frame). A frame is a place of the text at which machines were called: for each of them who
waits for its end. Equal sets are one object, so a state that comes again costs a look-up. Left recursion and ambiguity need nothing
special; a call with nothing behind it hands on who waits for its caller, so that recursion at the end takes no room.
"""

from __future__ import annotations

from collections.abc import Iterable

from .network import FAR, Network

MOST_KEPT = 20_000  # states; a grammar can have a new one for each byte of a long text


class Frame:
    """waiting[machine] are (state after it, frame of who waits); distance[machine] is the way from its end to the whole's."""

    __slots__ = ("distance", "waiting")


class State:
    """A place in the text, never changed by what is asked of it.

    Two states are equal if they are one object; after MOST_KEPT of them equal places may be two, which costs time only.
    `distance` is the number of tokens from which an end is in reach for certain, 0 where the text may end.
    """

    __slots__ = ("accepts", "after", "distance", "items", "masks", "moved")

    def __init__(self, items: tuple[tuple[int, Frame], ...], accepts: bool, distance: int) -> None:
        self.items, self.accepts, self.distance = items, accepts, distance
        self.after: dict[int, State | None] = {}  # by byte class
        self.moved: dict[int, State | None] = {}  # by token
        self.masks = None  # constraint.Masks, when asked for


class States:
    """Makes and keeps the states of one network."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self._known: dict[frozenset, State] = {}
        self._frames: dict[frozenset, Frame] = {}
        nobody, root = Frame(), Frame()
        nobody.waiting, nobody.distance = {-1: ()}, {-1: 0}  # FINAL belongs to machine -1
        root.waiting, root.distance = {network.first: ((network.final, nobody),)}, {network.first: 0}
        self.first = self._state(((network.start[network.first], root),))

    def at(self, q: int, frame: Frame) -> State:
        """The state of one item."""
        return self._state(((q, frame),))

    def step(self, state: State, number: int) -> State | None:
        """The state after a byte of that class, or None where none may come."""
        try:
            return state.after[number]
        except KeyError:
            rows = self.network.rows
            kernel = {(rows[q][number], frame) for q, frame in state.items if rows[q][number] >= 0}
            after = state.after[number] = self._state(kernel) if kernel else None
            return after

    def peek(self, state: State, number: int) -> int:
        """The distance after a byte of that class without making its state; FAR where none may come."""
        network, least = self.network, FAR
        for q, frame in state.items:
            target = network.rows[q][number]
            if target >= 0:
                least = min(least, network.distance[target] + frame.distance[network.owner[target]])
        return least

    def _state(self, kernel: Iterable[tuple[int, Frame]]) -> State:
        key = frozenset(kernel)
        state = self._known.get(key)
        if state is None:
            if len(self._known) >= MOST_KEPT:
                self._forget()
            state = self._known[key] = self._closed(key)
        return state

    def _forget(self) -> None:
        """Let go of all that nobody else holds."""
        for state in self._known.values():
            state.after, state.moved = {}, {}
        self._known, self._frames = {}, {}

    def _closed(self, kernel: frozenset) -> State:
        """The state of these items: what they complete, and what they call."""
        network = self.network
        owner, accepts, calls, final = network.owner, network.accepts, network.calls, network.final
        items, todo, accepted = set(kernel), list(kernel), False
        while todo:
            q, frame = todo.pop()
            if accepts[q]:
                for item in frame.waiting[owner[q]]:
                    if item[0] == final:
                        accepted = True
                    elif item not in items:
                        items.add(item)
                        todo.append(item)
        distance = 0 if accepted else min(network.distance[q] + frame.distance[owner[q]] for q, frame in kernel)
        callers = [(q, frame) for q, frame in items if calls[q]]
        moving = [item for item in items if network.moving[item[0]]]
        if callers:
            frame, called = self._frame(callers)
            moving += [(network.start[machine], frame) for machine in called if network.moving[network.start[machine]]]
        return State(tuple(moving), accepted, min(distance, FAR))

    def _frame(self, callers: list[tuple[int, Frame]]) -> tuple[Frame, Iterable[int]]:
        """The frame of all machines called here, also by those called here (their own frame is None until it is known)."""
        network = self.network
        waiting: dict[int, set] = {}
        heirs: dict[int, set[int]] = {}  # who is handed what a machine called here is waited for with
        todo = [(machine, after, frame) for q, frame in callers for machine, after in network.calls[q]]
        while todo:
            machine, after, frame = todo.pop()
            known = waiting.get(machine)
            if known is None:
                known = waiting[machine] = set()
                todo += [(called, behind, None) for called, behind in network.calls[network.start[machine]]]
            if network.pure[after] and frame is None:
                caller = network.owner[after]
                if machine not in heirs.setdefault(caller, set()):
                    heirs[caller].add(machine)
                    todo += [(machine, *item) for item in waiting.get(caller, ())]
            elif network.pure[after]:
                todo += [(machine, *item) for item in frame.waiting[network.owner[after]]]
            elif (after, frame) not in known:
                known.add((after, frame))
                todo += [(heir, after, frame) for heir in heirs.get(machine, ())]
        key = frozenset((machine, *item) for machine, held in waiting.items() for item in held)
        if key not in self._frames:
            self._frames[key] = self._made(waiting)
        return self._frames[key], waiting

    def _made(self, waiting: dict[int, set]) -> Frame:
        network, frame = self.network, Frame()
        frame.waiting = {m: tuple((after, frame if held is None else held) for after, held in each) for m, each in waiting.items()}
        frame.distance = dict.fromkeys(waiting, FAR)
        changed = True
        while changed:
            changed = False
            for machine, held in frame.waiting.items():
                least = min((network.distance[after] + other.distance[network.owner[after]] for after, other in held), default=FAR)
                if least < frame.distance[machine]:
                    frame.distance[machine], changed = least, True
        return frame
