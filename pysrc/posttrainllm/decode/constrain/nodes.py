"""A language as a tree of small parts: what regexes, JSON Schemas and grammars are turned into before automata are made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Text:
    """Exactly these bytes."""

    data: bytes


@dataclass(frozen=True)
class Chars:
    """One character out of sorted, disjoint ranges of code points, in UTF-8; in_json: as it stands inside a JSON string."""

    ranges: tuple[tuple[int, int], ...]
    in_json: bool = False


@dataclass(frozen=True)
class Seq:
    """One part after another; no parts is the empty text."""

    parts: tuple[Node, ...] = ()


@dataclass(frozen=True)
class Alt:
    """One of several; no options is a language without a text."""

    options: tuple[Node, ...] = ()


@dataclass(frozen=True)
class Repeat:
    """`part` from low to high times; high None is without end. lazy matters only where a match is preferred to others."""

    part: Node
    low: int = 0
    high: int | None = None
    lazy: bool = False


@dataclass(frozen=True)
class NotEnding:
    """Those texts of `part` whose last byte is none of `ends`."""

    part: Node
    ends: bytes


@dataclass(frozen=True)
class Call:
    """A definition by its name, which may be the one this stands in."""

    name: str


@dataclass(frozen=True)
class Members:
    """Items in this order with a separator between those that are there; each is (node, must it be there).

    `rest` may follow any number of times.
    """

    items: tuple[tuple[Node, bool], ...]
    separator: Node
    rest: Node | None = None


@dataclass(frozen=True)
class Fixed:
    """A machine that is made already (see machine.py)."""

    machine: object


Node = Text | Chars | Seq | Alt | Repeat | NotEnding | Call | Members | Fixed
EMPTY, NOTHING = Seq(), Alt()


def seq(*parts: Node) -> Node:
    """Parts in order, flat; NOTHING in it makes the whole NOTHING."""
    flat: list[Node] = []
    for part in parts:
        if part == NOTHING:
            return NOTHING
        if isinstance(part, Seq):
            flat += part.parts
        elif isinstance(part, Text) and flat and isinstance(flat[-1], Text):
            flat[-1] = Text(flat[-1].data + part.data)
        else:
            flat.append(part)
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def alt(*options: Node) -> Node:
    """One of several, flat."""
    flat: list[Node] = []
    for option in options:
        flat += option.options if isinstance(option, Alt) else (option,)
    return flat[0] if len(flat) == 1 else Alt(tuple(flat))


def children(node: Node) -> tuple[Node, ...]:
    """The parts right below a node."""
    if isinstance(node, Seq):
        return node.parts
    if isinstance(node, Alt):
        return node.options
    if isinstance(node, (Repeat, NotEnding)):
        return (node.part,)
    if isinstance(node, Members):
        return tuple(item for item, _ in node.items) + (node.separator,) + ((node.rest,) if node.rest else ())
    return ()


def walk(node: Node) -> Iterator[Node]:
    """A node and all below it."""
    todo = [node]
    while todo:
        node = todo.pop()
        yield node
        todo += children(node)


def rebuilt(node: Node, change) -> Node:
    """The tree with every leaf replaced by change(leaf)."""
    if isinstance(node, Seq):
        return seq(*(rebuilt(part, change) for part in node.parts))
    if isinstance(node, Alt):
        return alt(*(rebuilt(option, change) for option in node.options))
    if isinstance(node, Repeat):
        return Repeat(rebuilt(node.part, change), node.low, node.high, node.lazy)
    if isinstance(node, NotEnding):
        return NotEnding(rebuilt(node.part, change), node.ends)
    if isinstance(node, Members):
        items = tuple((rebuilt(item, change), needed) for item, needed in node.items)
        rest = None if node.rest is None else rebuilt(node.rest, change)
        return Members(items, rebuilt(node.separator, change), rest)
    return change(node)


def nullable(node: Node, names: frozenset[str] | set[str]) -> bool:
    """Whether the empty text belongs to it, given the definitions of which that is known."""
    if isinstance(node, Seq):
        return all(nullable(part, names) for part in node.parts)
    if isinstance(node, Alt):
        return any(nullable(option, names) for option in node.options)
    if isinstance(node, Repeat):
        return node.low == 0 or nullable(node.part, names)
    if isinstance(node, NotEnding):
        return nullable(node.part, names)
    if isinstance(node, Call):
        return node.name in names
    if isinstance(node, Members):
        return all(not needed or nullable(item, names) for item, needed in node.items)
    if isinstance(node, Fixed):
        return 0 in node.machine.accepts
    return isinstance(node, Text) and not node.data


def nullable_names(definitions: dict[str, Node]) -> set[str]:
    """The definitions to which the empty text belongs."""
    found: set[str] = set()
    while True:
        more = {name for name, node in definitions.items() if name not in found and nullable(node, found)}
        if not more:
            return found
        found |= more
