"""JSON Schema: what is written is valid by the jsonschema library, and what cannot be kept is refused."""

import datetime
import json
import re

import pytest

from posttrainllm.decode.constrain import json_schema, read
from posttrainllm.errors import ConfigError, DataError
from tests.helpers.constrained import BYTES, MANY, samples

jsonschema = pytest.importorskip(
    "jsonschema", reason="the judge is the jsonschema library (rpds-py, which it needs, is compiled)"
)

NODE = {
    "type": "object",
    "properties": {"v": {"type": "number"}, "kids": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
    "required": ["v"],
}
SCHEMAS = {
    "person": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 12},
            "age": {"type": "integer", "minimum": 0, "maximum": 130},
            "email": {"type": "string", "format": "email"},
            "tags": {
                "type": "array",
                "items": {"enum": ["a", 'b"é', None, 1.5, {"x": [1]}]},
                "minItems": 1,
                "maxItems": 3,
            },
        },
        "required": ["name", "age"],
        "additionalProperties": False,
    },
    "anything": True,
    "tree": {"$defs": {"node": NODE}, "$ref": "#/$defs/node"},
    "numbers": {"type": "array", "items": {"type": "number", "minimum": -1.25, "exclusiveMaximum": 3.5}, "minItems": 1},
    "whole numbers": {
        "type": "array",
        "items": {"type": "integer", "exclusiveMinimum": -17, "maximum": 1234},
        "maxItems": 4,
    },
    "one of": {
        "oneOf": [
            {"type": "object", "properties": {"k": {"const": "a"}, "x": {"type": "integer"}}, "required": ["k", "x"]},
            {"type": "object", "properties": {"k": {"const": "b"}}, "required": ["k"], "additionalProperties": True},
            {"type": ["null", "boolean"]},
            {"type": "string", "maxLength": 2},
            {"type": "string", "minLength": 3},
        ]
    },
    "any of": {
        "properties": {"a": {"type": "integer"}, "b": True},
        "additionalProperties": False,
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
    },
    "pattern": {"type": "string", "pattern": '^[a-c"\\n]+$', "minLength": 3, "maxLength": 5},
    "search": {"type": "string", "pattern": "b{2}|^c", "maxLength": 6},
    "extra": {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "additionalProperties": {"type": "boolean"},
        "required": ["a", "zz"],
    },
    "prefix": {
        "prefixItems": [{"type": "integer", "minimum": 0}, {"type": "boolean"}],
        "items": {"type": "null"},
        "minItems": 1,
        "maxItems": 4,
    },
    "all of": {
        "allOf": [
            {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
            {"properties": {"b": {"type": "null"}}},
        ]
    },
    "types": {"type": ["integer", "string", "null"], "minimum": 5, "maxLength": 3},
    "values": {"type": "number", "enum": [1, "x", 2.5, None, True]},
}


@pytest.mark.parametrize("whitespace", ["compact", "spaced", "free"])
@pytest.mark.parametrize("name", SCHEMAS)
def test_whatever_is_written_is_valid(name, whitespace):
    schema = SCHEMAS[name]
    judge = jsonschema.Draft202012Validator(schema)
    for text in samples(lambda vocabulary: json_schema(schema, vocabulary, whitespace), MANY // 3 + 1, tokens=90):
        value = json.loads(text)
        judge.validate(value)
        marks = re.sub(r'"(?:[^"\\]|\\.)*"', "", text)
        assert whitespace == "free" or not re.search(
            r"\s" if whitespace == "compact" else r"[^,:]\s|\s\s|[,:]\S", marks
        )


def accepts(schema, text, whitespace="compact"):
    constraint = json_schema(schema, BYTES, whitespace)
    state = constraint.start()
    for byte in text.encode():
        state = constraint.advance(state, byte)
        if state is None:
            return False
    return constraint.finished(state)


@pytest.mark.parametrize(
    ("schema", "values"),
    [
        (SCHEMAS["person"], [{"name": "Ann", "age": 130}, {"name": "ñ🙂\n\"\\", "age": 0, "email": "a.b@x-y.org", "tags": ['b"é', None, 1.5]}]),
        (SCHEMAS["tree"], [{"v": 1.5, "kids": [{"v": -2, "kids": []}, {"v": 0, "kids": [{"v": 1}]}]}]),
        (True, [None, [], {}, {"a": [{"b": {}}], "": ""}, "x", -0.5, [[[[1, 2], 3]]]]),
        (SCHEMAS["one of"], [{"k": "a", "x": 1}, {"k": "b", "zz": [1]}, None, "ab", "abc"]),
        ({"type": "integer", "minimum": -105, "maximum": 2093}, [-105, -99, -1, 0, 7, 10, 99, 2093]),
        ({"type": "number", "minimum": 0.1, "maximum": 12.75}, [0.1, 0.100001, 12.75, 3, 12.5]),
    ],
)  # fmt: skip
def test_what_is_valid_can_be_written(schema, values):
    for value in values:
        assert accepts(schema, json.dumps(value, ensure_ascii=False, separators=(",", ":"))), value
        assert accepts(schema, json.dumps(value, ensure_ascii=False), "spaced"), value
        assert accepts(schema, json.dumps(value, ensure_ascii=False, indent=2), "free"), value


@pytest.mark.parametrize(
    ("schema", "texts"),
    [
        ({"type": "integer", "minimum": -105, "maximum": 2093}, ["-106", "2094", "-0", "01", "1.0", "", "-", "1e2", "10000000000000000"]),
        ({"type": "number", "minimum": 0.1, "exclusiveMaximum": 12.75}, ["0.0999", "12.75", "12.750", "0", "13", "-1", ".5", "1."]),
        ({"type": "string", "maxLength": 2}, ['"abc"', '"\n"', '"\\x"', '"', '"ab', "ab"]),
        (SCHEMAS["extra"], ['{"a":1}', '{"a":1,"zz":true,"a":false}', '{"a":1,"zz":true,"zz":false}', '{"zz":true,"a":1}', '{"a":1,"zz":true,"b":1}']),
        ({"type": "object", "additionalProperties": False}, ['{"a":1}', "{ }", "{}{}", " {}"]),
        ({"const": 1}, ["true", "2", "1.0"]),
    ],
)  # fmt: skip
def test_what_is_not_is_not(schema, texts):
    for text in texts:
        assert not accepts(schema, text), text


@pytest.mark.parametrize("kind", ["date", "time", "date-time", "uuid", "ipv4", "email"])
def test_formats(kind):
    import ipaddress
    import uuid

    check = {
        "date": datetime.date.fromisoformat, "time": datetime.time.fromisoformat, "date-time": datetime.datetime.fromisoformat,
        "uuid": uuid.UUID, "ipv4": ipaddress.IPv4Address, "email": lambda text: re.fullmatch(r"[^@\s]+@[^@\s.]+(\.[^@\s.]+)+", text) or 1 / 0,
    }[kind]  # fmt: skip
    for text in samples(lambda vocabulary: json_schema({"type": "string", "format": kind}, vocabulary), 80, tokens=120):
        assert text.isascii()
        check(json.loads(text))


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (7, "a schema is an object"), ({"typ": "string"}, "typ came"), ({"not": {}}, "not came"), ({"type": "text"}, "type has the form"),
        ({"type": "array", "uniqueItems": True}, "uniqueItems came"), ({"multipleOf": 2}, "multipleOf came"), ({"minLength": -1}, "minLength has"),
        ({"$ref": "#/$defs/none"}, "a place that is there"), ({"$ref": "other.json"}, "in the same document"), ({"type": "string", "format": "iri"}, "format is one of"),
        ({"type": "string", "pattern": "(a)\\1"}, "a reference to a group"), ({"oneOf": [{"type": "string"}, {"maxLength": 3}]}, "oneOf/0 and 1 may both hold"),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "can be told apart"), ({"enum": [1], "minimum": 0}, "stand alone"),
        ({"allOf": [{"type": "object", "additionalProperties": False}, {"properties": {"a": True}}]}, "with all the properties"),
        ({"$defs": {"a": {"$ref": "#/$defs/a", "title": "x", "minimum": 1}}, "$ref": "#/$defs/a"}, "does not lead back"),
        ({"type": "string", "maxLength": 100000}, "at most 20,000 states"), ({"enum": ["\ud800"]}, "whole characters"),
        ({"properties": {"a": {"type": "string", "nonsense": 1}}}, "nonsense came"), ({"exclusiveMinimum": True}, "exclusiveMinimum has"),
    ],
)  # fmt: skip
def test_what_cannot_be_kept_is_refused_with_a_sentence(schema, said):
    with pytest.raises(ConfigError, match=said):
        json_schema(schema, BYTES)


@pytest.mark.parametrize(
    "schema",
    [
        False, {"type": "integer", "minimum": 3, "maximum": 2}, {"type": "integer", "exclusiveMinimum": 2, "exclusiveMaximum": 3},
        {"type": "string", "minLength": 2, "maxLength": 1}, {"type": "string", "pattern": "^a$", "minLength": 2}, {"type": "string", "enum": [1]},
        {"type": "object", "properties": {"a": False}, "required": ["a"]}, {"type": "object", "required": ["a"], "additionalProperties": False},
        {"$ref": "#"}, {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}, {"type": "array", "items": False, "minItems": 1},
        {"allOf": [{"type": "string"}, {"type": "null"}]}, {"type": "array", "minItems": 3, "maxItems": 2},
    ],
)  # fmt: skip
def test_a_schema_without_a_text_is_refused(schema):
    with pytest.raises(ConfigError, match="none does"):
        json_schema(schema, BYTES)


def test_a_schema_may_come_as_text():
    assert (
        read("json_schema", '{"const": [1]}', BYTES).shortest(read("json_schema", '{"const": [1]}', BYTES).start()) == 3
    )
    with pytest.raises(DataError, match="the schema is JSON"):
        read("json_schema", "{", BYTES)
    with pytest.raises(ConfigError, match="whitespace is one of"):
        json_schema(True, BYTES, "wild")
