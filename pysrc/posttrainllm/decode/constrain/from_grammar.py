"""A grammar in lark's notation as definitions. Lark reads it; what is written is accepted by Lark(text, parser="earley",
lexer="dynamic_complete"), which takes terminals at every length that they match. Lark's other lexers take the longest only and
may refuse a text such as two names with nothing between them.

What %ignore names may stand before each terminal and at the end. A terminal is what re.match returns for it, as in lark: /a|ab/ is
never "ab", and /".*?"/ ends at the first quotation mark. Rules may be ambiguous and recurse anywhere.
"""

from __future__ import annotations

from ...errors import ConfigError
from .from_regex import regex
from .machine import Machine, ending_in, next_bytes, not_beginning
from .nfa import machine_of
from .nodes import Call, Fixed, Node, Repeat, alt, seq

PLACE = "grammar"


def grammar(text: str, start: str = "start") -> tuple[dict[str, Node], str]:
    """(definitions, the first one's name). Raises ConfigError where lark refuses the text, or a terminal is no regular expression."""
    try:
        import lark
    except ImportError:
        raise ConfigError(PLACE, "the Python package lark is installed", "it is not", "pip install lark") from None
    try:
        read = lark.Lark(text, parser="earley", lexer="dynamic_complete", start=start, maybe_placeholders=False)
    except Exception as error:  # noqa: BLE001 - lark hands on what re raises, or the package regex where that is installed
        reason = " ".join(str(error).split())[:300]
        raise ConfigError(
            PLACE, "lark can read it (see lark's documentation of grammars)", reason or "it cannot", "correct it"
        ) from None
    return _Reader(read).definitions(), "text"


class _Reader:
    def __init__(self, read) -> None:
        self.machines = {terminal.name: self.terminal(terminal) for terminal in read.terminals}
        self.rules, self.start = read.rules, read.options.start[0]
        self.gaps: list[tuple[bytes, Node]] = []
        self.ignored: dict[str, Node] = {}
        self.read_gaps(read.ignore_tokens)

    def read_gaps(self, names: list[str]) -> None:
        """Definitions of runs of ignored terminals, one for each set of bytes that would have made the last one longer.

        Lark ignores as much as matches, so none of those bytes may come next.
        """
        parts: dict[bytes, list] = {}
        for name in dict.fromkeys(names):
            machine = self.machines[name]
            exits: dict[bytes, list[int]] = {}
            for state in sorted(machine.accepts):
                exits.setdefault(next_bytes(machine, state), []).append(state)
            for longer, states in exits.items():
                parts.setdefault(longer, []).append(ending_in(machine, states))
        self.gaps = [(longer, Call(f"ignored {number}")) for number, longer in enumerate(parts)]
        for (_, gap), machines in zip(self.gaps, parts.values()):
            options = [Fixed(machine) for machine in machines]
            for barred, before in self.gaps:
                options += [seq(before, Fixed(not_beginning(machine, barred))) for machine in machines]
            self.ignored[gap.name] = alt(*options)

    def definitions(self) -> dict[str, Node]:
        """rule NAME for each rule, terminal NAME for each terminal with what may be ignored before it."""
        options: dict[str, list[Node]] = {}
        for rule in self.rules:
            options.setdefault(f"rule {rule.origin.name}", []).append(seq(*map(self.symbol, rule.expansion)))
        found = {name: alt(*each) for name, each in options.items()} | self.ignored
        for name, machine in self.machines.items():
            behind = (seq(gap, Fixed(not_beginning(machine, barred))) for barred, gap in self.gaps)
            found[f"terminal {name}"] = alt(Fixed(machine), *behind)
        found["text"] = seq(Call(f"rule {self.start}"), Repeat(alt(*(gap for _, gap in self.gaps)), 0, 1))
        return found

    def symbol(self, symbol) -> Node:
        """A call of a rule or terminal."""
        if symbol.is_term and symbol.name not in self.machines:
            raise ConfigError(PLACE, "every terminal has a pattern", f"{symbol.name} has none", "define it")
        return Call(f"{'terminal' if symbol.is_term else 'rule'} {symbol.name}")

    def terminal(self, terminal) -> Machine:
        """What lark may take for a terminal: any text that re.match returns for it."""
        try:
            node = regex(terminal.pattern.to_regexp(), alone=False)
        except ConfigError as error:
            raise ConfigError(f"{PLACE}: terminal {terminal.name}", *error.parts[1:]) from None
        return machine_of(node, preferred=True)
