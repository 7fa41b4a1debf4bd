"""What a schema's keywords are, whether they are used rightly, and how two schemas become one or are told apart."""

from __future__ import annotations

from ...errors import ConfigError

PLACE = "json_schema"
ANNOTATIONS = {
    "$schema", "$id", "$comment", "$defs", "definitions", "title", "description", "default", "examples", "deprecated", "readOnly",
    "writeOnly",
}  # fmt: skip
NUMBERS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
KEYWORDS = {
    "object": {"properties", "required", "additionalProperties"},
    "array": {"items", "prefixItems", "minItems", "maxItems"},
    "string": {"pattern", "minLength", "maxLength", "format"},
    "number": NUMBERS,
    "integer": NUMBERS,
    "boolean": set(),
    "null": set(),
}
LOGIC = {"type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref"}
KNOWN = ANNOTATIONS | LOGIC | set().union(*KEYWORDS.values())
EVERY_KIND = ("object", "array", "string", "number", "boolean", "null")
_COUNTS = ("minItems", "maxItems", "minLength", "maxLength")


def checked(schema):
    """The schema, or ConfigError where it is none or uses a keyword that is not supported or wrongly."""
    if isinstance(schema, bool):
        return schema
    if not isinstance(schema, dict):
        raise ConfigError(PLACE, "a schema is an object, true or false", f"{schema!r} came", "correct it")
    unknown = sorted(key for key in schema if key not in KNOWN and not key.startswith("x-"))
    if unknown:
        raise ConfigError(PLACE, f"keywords are {', '.join(sorted(KNOWN - ANNOTATIONS))}", f"{', '.join(unknown)} came", "write it without")
    for key, value in schema.items():
        if not _right(key, value):
            raise ConfigError(PLACE, f"{key} has the form that the standard gives it", f"{value!r} came", "correct it")
    return schema


def _right(key: str, value) -> bool:
    if key in _COUNTS:
        return isinstance(value, int) and not isinstance(value, bool) and value >= 0
    if key in NUMBERS:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < float("inf")
    if key in ("properties", "$defs", "definitions"):
        return isinstance(value, dict)
    if key == "required":
        return isinstance(value, list) and all(isinstance(name, str) for name in value)
    if key in ("anyOf", "oneOf", "allOf", "enum"):
        return isinstance(value, list) and bool(value)
    if key == "prefixItems":
        return isinstance(value, list)
    if key in ("pattern", "format", "$ref"):
        return isinstance(value, str)
    if key == "type":
        return (isinstance(value, str) or isinstance(value, list) and bool(value)) and set(_listed(value)) <= set(KEYWORDS)
    return True


def _listed(value) -> list:
    return [value] if isinstance(value, str) else list(value)


def kinds(schema: dict) -> list[str]:
    """The types that are written: those named, else those that the keywords speak of, else all."""
    if "type" in schema:
        named = _listed(schema["type"])
        return [kind for kind in named if not (kind == "integer" and "number" in named)]
    spoken = [kind for kind in EVERY_KIND if KEYWORDS[kind] & set(schema)]
    return spoken or list(EVERY_KIND)


def same(a, b) -> bool:
    """JSON's equality: 1 is 1.0 but not true."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return a == b


def merged(a, b):
    """One schema for what both accept. Raises ConfigError where that takes more than putting keywords side by side."""
    if a is True or b is True:
        return b if a is True else a
    if a is False or b is False:
        return False
    whole = {**a, **b}
    for key in set(a) & set(b) - ANNOTATIONS:
        one, two = a[key], b[key]
        if key == "required":
            whole[key] = [*one, *(name for name in two if name not in one)]
        elif key == "type":
            listed = [kind for kind in _listed(one) if kind in _listed(two) or kind == "integer" and "number" in _listed(two)]
            listed += [kind for kind in _listed(two) if kind == "integer" and "number" in _listed(one) and kind not in listed]
            if not listed:
                return False
            whole[key] = listed
        elif key in ("minimum", "exclusiveMinimum", "minItems", "minLength"):
            whole[key] = max(one, two)
        elif key in ("maximum", "exclusiveMaximum", "maxItems", "maxLength"):
            whole[key] = min(one, two)
        elif key == "properties" and all(same(one[name], two[name]) for name in set(one) & set(two)):
            whole[key] = {**one, **two}
        elif not same(one, two):
            raise ConfigError(PLACE, f"{key} is given once", f"two that differ are to hold together: {one!r} and {two!r}", "write them as one")
    for one, two in ((a, b), (b, a)):
        if "additionalProperties" in one and set(two.get("properties", ())) - set(one.get("properties", ())):
            raise ConfigError(PLACE, "additionalProperties stands with all the properties", "allOf, anyOf or $ref parts them", "put them together")
        if "items" in one and len(two.get("prefixItems", ())) > len(one.get("prefixItems", ())):
            raise ConfigError(PLACE, "items stands with prefixItems", "allOf, anyOf or $ref parts them", "put them together")
    return whole


def _kind(value) -> str:
    if isinstance(value, bool) or value is None:
        return "null" if value is None else "boolean"
    if isinstance(value, (int, float)):
        return "integer" if value == int(value) else "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"


def _values(schema: dict) -> list | None:
    return [schema["const"]] if "const" in schema else schema.get("enum")


def apart(a, b, flat, depth: int = 8) -> bool:
    """Whether nothing that is written for `a` is valid for `b`, as far as can be seen; False also where it cannot."""
    a, b = flat(a), flat(b)
    if a is False or b is False:
        return True
    if a is True or b is True or not depth:
        return False
    for keyword in ("anyOf", "oneOf"):
        if keyword in a:
            return all(apart(option, b, flat, depth - 1) for option in a[keyword])
        if keyword in b:
            return all(apart(a, option, flat, depth - 1) for option in b[keyword])
    ours, theirs = _values(a), _values(b)
    if ours is not None:
        if theirs is not None:
            return not any(same(x, y) for x in ours for y in theirs)
        return "type" in b and not any(_fits(_kind(value), _listed(b["type"])) for value in ours)
    if theirs is not None:
        return not any(_fits(_kind(value), kinds(a)) for value in theirs)
    if "type" in b and not any(_fits(kind, _listed(b["type"])) or kind == "number" and "integer" in _listed(b["type"]) for kind in kinds(a)):
        return True
    if len(kinds(a)) > 1:
        return False
    return _objects_apart(a, b, flat, depth) if kinds(a) == ["object"] else _sizes_apart(a, b)


def _fits(kind: str, among: list[str]) -> bool:
    return kind in among or kind == "integer" and "number" in among


def _objects_apart(a: dict, b: dict, flat, depth: int) -> bool:
    ours, theirs = a.get("properties", {}), b.get("properties", {})
    for name in a.get("required", ()):
        if name in ours and name in theirs and apart(ours[name], theirs[name], flat, depth - 1):
            return True
        if name not in theirs and b.get("additionalProperties", True) is False:
            return True
    closed = a.get("additionalProperties", not ours) is False
    return closed and any(name not in ours and name not in a.get("required", ()) for name in b.get("required", ()))


def _sizes_apart(a: dict, b: dict) -> bool:
    names = {"array": ("minItems", "maxItems"), "string": ("minLength", "maxLength")}
    low, high = names.get(kinds(a)[0], ("minimum", "maximum"))
    return any(low in one and high in two and one[low] > two[high] for one, two in ((a, b), (b, a)))
