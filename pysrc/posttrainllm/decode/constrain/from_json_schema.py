"""JSON Schema as definitions: every text that follows them is JSON that the schema's validators accept.

Not every value that a schema takes can be written; what is, is this. Properties come in the schema's order, then names that
`required` adds, then, where additionalProperties is given as true or a schema (or there are no properties at all), any others. A schema
without type writes the types that its keywords speak of. Strings are UTF-8, escaped only where they must be. How numbers are limited
stands in json_text.py. Whitespace: "compact" has none, "spaced" one space after , and :, as Python writes it, "free" any spaces,
tabs and line breaks around the marks (no line break or space is ever written outside the value).
"""

from __future__ import annotations

from urllib.parse import unquote

from ...errors import ConfigError
from .json_merge import ANNOTATIONS, KEYWORDS, apart, checked, kinds, merged, same
from .json_text import STRING, integer, key_but, number, string, written
from .nfa import machine_of
from .nodes import EMPTY, NOTHING, Call, Chars, Fixed, Members, Node, Repeat, Text, alt, seq

PLACE = "json_schema"
ANY_VALUE = "any value"
_SPACES = Repeat(Chars(((9, 10), (13, 13), (32, 32))))
LEAVES = {"string": string, "number": number, "integer": integer}
WHITESPACE = {"compact": (EMPTY, EMPTY), "spaced": (EMPTY, Text(b" ")), "free": (_SPACES, _SPACES)}


def json_schema(schema, whitespace: str = "compact") -> tuple[dict[str, Node], str]:
    """(definitions, the first one's name). Raises ConfigError for what is no schema, asks for too much, or is not supported."""
    if whitespace not in WHITESPACE:
        raise ConfigError(PLACE, f"whitespace is one of {', '.join(WHITESPACE)}", f"{whitespace!r} came", "choose one of those")
    reader = _Reader(schema, *WHITESPACE[whitespace])
    try:
        return reader.definitions(), "#"
    except RecursionError:
        raise ConfigError(PLACE, "schemas nest a few hundred deep at most", "more came", "use $ref") from None


class _Reader:
    def __init__(self, document, gap: Node, after: Node) -> None:
        self.document, self.gap = document, gap
        self.comma, self.colon = seq(gap, Text(b","), after), seq(gap, Text(b":"), after)
        self.spaced = after == Text(b" ")
        self.wanted: list[str] = ["#"]
        self.leaves: dict[str, Node] = {}

    def definitions(self) -> dict[str, Node]:
        """Of the whole document and of all that is referred to in it."""
        found: dict[str, Node] = {}
        while self.wanted:
            name = self.wanted.pop()
            if name not in found:
                found[name] = self.any_value() if name == ANY_VALUE else self.node(self.target(name), name)
        return found | self.leaves

    def call(self, name: str) -> Call:
        self.wanted.append(name)
        return Call(name)

    def target(self, reference):
        """The schema that a reference within the document names."""
        if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
            raise ConfigError(PLACE, "$ref names a place in the same document (#/$defs/…)", f"{reference!r} came", "copy the schema in")
        found = self.document
        for part in reference.split("/")[1:]:
            part = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and part.isdigit() and int(part) < len(found):
                found = found[int(part)]
            elif isinstance(found, dict) and part in found:
                found = found[part]
            else:
                raise ConfigError(PLACE, "$ref names a place that is there", f"{reference!r} came", "correct it, or add it to $defs")
        return found

    def flat(self, schema, chain: tuple[str, ...] = ()):
        """A schema with $ref and allOf merged into what stands beside them."""
        schema = checked(schema)
        if isinstance(schema, bool) or not {"$ref", "allOf"} & set(schema):
            return schema
        parts = [{key: value for key, value in schema.items() if key not in ("$ref", "allOf")}]
        if "$ref" in schema:
            if schema["$ref"] in chain:
                raise ConfigError(PLACE, "a reference beside other keywords does not lead back to itself", f"{schema['$ref']} came", "take it apart")
            parts.append(self.flat(self.target(schema["$ref"]), (*chain, schema["$ref"])))
        parts += [self.flat(part, chain) for part in schema.get("allOf", ())]
        whole = parts[0]
        for part in parts[1:]:
            whole = merged(whole, part)
        return whole

    def node(self, schema, where: str) -> Node:
        """The tree of one schema."""
        schema = checked(schema)
        if schema is False:
            return NOTHING
        if schema is True or not set(schema) - ANNOTATIONS:
            return self.call(ANY_VALUE)
        if set(schema) - ANNOTATIONS == {"$ref"}:
            self.target(schema["$ref"])
            return self.call(schema["$ref"])
        schema = self.flat(schema)
        if schema is False:
            return NOTHING
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                beside = {key: value for key, value in schema.items() if key != keyword}
                return self.options(schema[keyword], beside, keyword, where)
        if "const" in schema or "enum" in schema:
            return self.values(schema, where)
        return alt(*(self.one(kind, schema, where) for kind in kinds(schema)))

    def options(self, options: list, beside: dict, keyword: str, where: str) -> Node:
        if not set(beside) - ANNOTATIONS:
            nodes = [self.node(option, f"{where}/{keyword}/{place}") for place, option in enumerate(options)]
            flat = [self.flat(option) for option in options] if keyword == "oneOf" else []
        else:
            flat = [merged(beside, self.flat(option)) for option in options]
            nodes = [self.node(option, f"{where}/{keyword}/{place}") for place, option in enumerate(flat)]
        if keyword == "oneOf":
            for i, a in enumerate(flat):
                for j, b in enumerate(flat):
                    if i != j and not apart(a, b, self.flat):
                        raise ConfigError(
                            PLACE, "options of oneOf can be told apart by type, by a required const or by bounds",
                            f"{where}/oneOf/{i} and {j} may both hold", "write anyOf, or give each a required property with its own const",
                        )  # fmt: skip
        return alt(*nodes)

    def values(self, schema: dict, where: str) -> Node:
        """const and enum: the values themselves, those of the right type."""
        others = set(schema) - ANNOTATIONS - {"const", "enum", "type"}
        if others:
            raise ConfigError(PLACE, "const and enum stand alone or beside type", f"{', '.join(sorted(others))} came in {where}", "leave it out")
        values = schema.get("enum", [schema.get("const")])
        if "const" in schema:
            values = [value for value in values if same(value, schema["const"])]
        separators = (", ", ": ") if self.spaced else (",", ":")
        texts = [
            written(value, separators)
            for value in values
            if "type" not in schema or not apart({"const": value}, {"type": schema["type"]}, self.flat)
        ]
        return alt(*texts)

    def one(self, kind: str, schema: dict, where: str) -> Node:
        """Values of one type."""
        if kind == "object":
            return self.object(schema, where)
        if kind == "array":
            return self.array(schema, where)
        if kind in LEAVES:
            return self.leaf(kind, {key: value for key, value in schema.items() if key in KEYWORDS[kind]})
        return alt(Text(b"true"), Text(b"false")) if kind == "boolean" else Text(b"null")

    def any_value(self) -> Node:
        """Any JSON."""
        value = self.call(ANY_VALUE)
        members = Members((), self.comma, seq(STRING, self.colon, value))
        listed = _list(value, self.comma, 0, None, False)
        return alt(
            seq(Text(b"{"), self.gap, members, self.gap, Text(b"}")), seq(Text(b"["), self.gap, listed, self.gap, Text(b"]")),
            self.leaf("string", {}), self.leaf("number", {}), Text(b"true"), Text(b"false"), Text(b"null"),
        )  # fmt: skip

    def leaf(self, kind: str, limits: dict) -> Call:
        """A string or number: one definition for all that have the same limits, so that a large one is there once."""
        name = f"{kind} {sorted(limits.items())}"
        if name not in self.leaves:
            self.leaves[name] = Fixed(machine_of(LEAVES[kind](limits)))
        return Call(name)

    def object(self, schema: dict, where: str) -> Node:
        properties, required = schema.get("properties", {}), schema.get("required", [])
        others = schema.get("additionalProperties", not properties)
        named = dict(properties)
        for name in required:
            named.setdefault(name, schema.get("additionalProperties", True))
        items = tuple(
            (seq(written(name), self.colon, self.node(value, f"{where}/properties/{name}")), name in required)
            for name, value in named.items()
            if name in required or checked(value) is not False
        )
        rest = None if others is False else seq(key_but(list(named)), self.colon, self.node(others, f"{where}/additionalProperties"))
        return seq(Text(b"{"), self.gap, Members(items, self.comma, rest), self.gap, Text(b"}"))

    def array(self, schema: dict, where: str) -> Node:
        low, high = schema.get("minItems", 0), schema.get("maxItems")
        first = [self.node(item, f"{where}/prefixItems/{place}") for place, item in enumerate(schema.get("prefixItems", ()))]
        rest = self.node(schema.get("items", True), f"{where}/items")
        if high is not None and high < low:
            return NOTHING
        first = first if high is None else first[:high]
        # Behind the items that have their own schemas come so many more, if all of those are there.
        more_low, more_high = max(0, low - len(first)), None if high is None else high - len(first)
        whole = _list(rest, self.comma, more_low, more_high, bool(first)) if more_high != 0 else EMPTY
        for place in reversed(range(len(first))):
            whole = seq(first[place], whole)
            if place:
                whole = seq(self.comma, whole)
            if place >= low:
                whole = Repeat(whole, 0, 1)
        return seq(Text(b"["), self.gap, whole, self.gap, Text(b"]"))


def _list(item: Node, comma: Node, low: int, high: int | None, goes_on: bool) -> Node:
    """low … high items with commas between, and one before them if the list goes on."""
    if goes_on:
        return Repeat(seq(comma, item), low, high)
    some = seq(item, Repeat(seq(comma, item), max(0, low - 1), None if high is None else high - 1))
    return some if low else Repeat(some, 0, 1)
