"""An untrained GPT, which would end a text nowhere and write any byte, under each kind of rule: its texts before three judges."""

import json
import re

import pytest

from posttrainllm.decode.constrain import grammar, json_schema, regex, vocabulary_of
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.live import GPT
from posttrainllm.model.program import Program
from tests.helpers.constrained import MANY

CONFIG = GPTConfig(layers=1, channels=16, heads=2, context=32, batch=1)
PATTERN = r"[a-z]{2,9}(-\d+|é\W)?|(?i:straße){1,2}"
SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": -5, "maximum": 300}, "s": {"type": ["string", "null"], "maxLength": 6}, "t": {"enum": ["a", 1.5, [None]]}},
    "required": ["n", "t"],
}  # fmt: skip
SUMS = """
    start: term (("+" | "-") term)*
    term: NUMBER | NAME | "(" start ")" | term "*" term
    NUMBER: /[0-9]+(\\.[0-9]+)?/
    NAME: /[a-zé]{1,5}/
    %ignore " "
"""


def texts_of(machine, make):
    """MANY texts from models of four seeds, each with the ends and temperatures in turn."""
    for number in range(4):
        model = GPT(CONFIG, machine, Program(CONFIG, training=False))
        model.initialise(number)
        constraint = make(vocabulary_of(model.tokenizer))
        for seed in range(MANY // 4):
            how = {"end": ("model", "first", "longest")[seed % 3], "temperature": (1.0, 3.0)[seed % 2]}
            yield model.generate("Once", tokens=40, constraint=constraint, seed=seed, top_k=0, **how)


def judged(machine, make, judge):
    """How many different texts there were, all of them accepted: judge(text) raises, or gives something false, where one is not."""
    found = list(texts_of(machine, make))
    assert len(found) == MANY
    for text in found:
        assert judge(text), text
    return len(set(found))


def test_regex_before_re(machine):
    assert judged(machine, lambda vocabulary: regex(PATTERN, vocabulary), re.compile(PATTERN).fullmatch) > MANY / 2


def test_schema_before_jsonschema(machine):
    jsonschema = pytest.importorskip("jsonschema", reason="the judge is the jsonschema library (rpds-py, which it needs, is compiled)")
    judge = jsonschema.Draft202012Validator(SCHEMA)
    assert judged(machine, lambda vocabulary: json_schema(SCHEMA, vocabulary), lambda text: judge.is_valid(json.loads(text))) > MANY / 2


def test_grammar_before_lark(machine):
    lark = pytest.importorskip("lark", reason="grammars are read by lark")
    judge = lark.Lark(SUMS, parser="earley", lexer="dynamic_complete")
    assert judged(machine, lambda vocabulary: grammar(SUMS, vocabulary), judge.parse) > MANY / 4


def test_the_judges_see_a_wrong_rule(machine):
    with pytest.raises(AssertionError):
        judged(machine, lambda vocabulary: regex(PATTERN.replace("{2,9}", "{1,9}"), vocabulary), re.compile(PATTERN).fullmatch)
