"""Named definitions made fewer and flatter, the language kept: what recurs at an end becomes repetition, small ones move in.

Only recursion in the middle ("(" expression ")") is left as calls; without any, the whole is one machine.
"""

from __future__ import annotations

from .nodes import Alt, Call, Fixed, Node, Repeat, Seq, Text, alt, children, rebuilt, seq, walk

SMALL, LARGEST = 60, 4_000  # states, about: what is always moved in, and what a definition may grow to


def linear(name: str, node: Node) -> Node:
    """A definition without calls of itself at the very beginning or end of its alternatives.

    With A = γA | Aα | AδA | β the texts of A are γ*βα* (δ γ*βα*)*; how they are nested does not matter to a recogniser.
    """
    before, behind, between, rest = [], [], [], []
    itself = Call(name)
    for option in node.options if isinstance(node, Alt) else (node,):
        parts = option.parts if isinstance(option, Seq) else (option,)
        if parts == (itself,):
            continue
        head, tail = bool(parts) and parts[0] == itself, bool(parts) and parts[-1] == itself
        if head and tail:
            between.append(seq(*parts[1:-1]))
        elif head:
            behind.append(seq(*parts[1:]))
        elif tail:
            before.append(seq(*parts[:-1]))
        else:
            rest.append(option)
    if not (before or behind or between):
        return alt(*rest)
    one = alt(*rest)
    if before:
        one = seq(Repeat(alt(*before)), one)
    if behind:
        one = seq(one, Repeat(alt(*behind)))
    return seq(one, Repeat(seq(alt(*between), one))) if between else one


def _size(node: Node) -> int:
    """About how many states a tree makes."""
    if isinstance(node, Text):
        return len(node.data)
    if isinstance(node, Fixed):
        return len(node.machine.moves)
    if isinstance(node, Repeat):
        return _size(node.part) * max(node.low, node.high or 1, 1)
    return 1 + sum(map(_size, children(node)))


def _calls(node: Node, found: dict[str, int], times: int = 1) -> dict[str, int]:
    """How often each name is called, as written out; added to `found`."""
    if isinstance(node, Call):
        found[node.name] = found.get(node.name, 0) + times
    more = times * max(node.low, node.high or 1, 1) if isinstance(node, Repeat) else times
    for child in children(node):
        _calls(child, found, more)
    return found


def gathered(definitions: dict[str, Node], start: str) -> dict[str, Node]:
    """The definitions that are left after all that can has moved in; only those that `start` reaches."""
    left = {name: linear(name, node) for name, node in _reached(definitions, start).items()}
    sizes = {name: _size(node) for name, node in left.items()}
    calls = {name: _calls(node, {}) for name, node in left.items()}
    while True:
        chosen = None
        for name in sorted(left, key=sizes.__getitem__):
            growth = sizes[name] * (sum(called.get(name, 0) for called in calls.values()) - 1)
            fits = growth <= LARGEST if sizes[name] <= SMALL else growth <= SMALL and sizes[name] <= LARGEST
            if name != start and name not in calls[name] and fits:
                chosen = Call(name)
                break
        if chosen is None:
            return _reached(left, start)
        moved = left.pop(chosen.name)
        del calls[chosen.name]
        for name in [name for name, called in calls.items() if chosen.name in called]:
            left[name] = linear(name, rebuilt(left[name], lambda leaf: moved if leaf == chosen else leaf))
            sizes[name], calls[name] = _size(left[name]), _calls(left[name], {})


def _reached(definitions: dict[str, Node], start: str) -> dict[str, Node]:
    found, todo = {start: definitions[start]}, [start]
    while todo:
        for node in walk(found[todo.pop()]):
            if isinstance(node, Call) and node.name not in found:
                found[node.name] = definitions[node.name]
                todo.append(node.name)
    return found
