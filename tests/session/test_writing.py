"""What a Session writes: probabilities where asked for, the window said openly, and texts under a rule."""

import json
import math
import re

import pytest
from posttrainllm.decode.generate import window_start

from tests.session.test_session import scenario

pytestmark = pytest.mark.native_only(reason="the loop below is CPython's; e2e/ runs the same Session in the tab")


async def written(asker, prompt="To be", **fields):
    """(text, all its token events, the last event)."""
    identity, text, events = asker.ask("write.start", prompt=prompt, **fields), "", []
    while (event := await asker.wait("token", "wrote", reply_to=identity))["kind"] == "token":
        text += event["text"]
        events.append(event)
    return text, events, event


@scenario
async def test_probabilities_come_where_they_are_asked_for(asker):
    await asker.trained()
    plain, events, _ = await written(asker, tokens=30, seed=5)
    assert all("choices" not in event for event in events)
    text, events, _ = await written(asker, tokens=30, seed=5, choices=10)
    rows = [row for event in events for row in event["choices"]]
    assert text == plain == "".join(row["text"] for row in rows) and len(rows) == 30
    for row in rows:
        assert len(row["top"]) == 10 and row["logprob_nats"] <= 0
        assert sum(math.exp(value) for _, _, value in row["top"]) <= 1 + 1e-9
        if row["rank"] < 10:
            assert row["top"][row["rank"]][2] == pytest.approx(row["logprob_nats"])
        assert bytes([row["token"]]).decode("utf-8", "backslashreplace") == row["shown"]


@scenario
async def test_what_the_model_no_longer_sees_is_told(asker):
    await asker.trained()
    context = asker.session.model.config.context
    identity = asker.ask("write.start", prompt="x" * 10, tokens=60)
    begun = await asker.wait("writing", reply_to=identity)
    assert (begun["prompt_tokens"], begun["context"], begun["forgotten"], begun["unit"]) == (10, context, 0, "byte")
    last = await asker.wait("wrote", reply_to=identity)
    assert last["forgotten"] == window_start(70, context) > 0
    begun = await asker.call("write.start", "writing", prompt="x" * (context + 1), tokens=5)
    assert begun["forgotten"] == window_start(context + 1, context) > 0
    await asker.wait("wrote")


@pytest.mark.parametrize("end", ["first", "longest", "model"])
def test_a_regex_is_kept_to(end):
    @scenario
    async def body(asker):
        await asker.trained(steps=2)
        for seed in range(3):
            text, _, last = await written(asker, tokens=80, temperature=1.5, seed=seed, constraint={"kind": "regex", "text": "[a-c]{3,9}-[0-9]{2}", "end": end})
            assert re.fullmatch("[a-c]{3,9}-[0-9]{2}", text) and last["reason"] == "complete"

    body()


@scenario
async def test_schemas_and_grammars_too_and_with_probabilities(asker):
    await asker.trained(steps=2)
    schema = '{"type": "object", "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "y"]}}, "required": ["a", "b"], "additionalProperties": false}'
    text, events, _ = await written(asker, tokens=120, constraint={"kind": "json_schema", "text": schema, "end": "first"}, choices=3)
    made = json.loads(text)
    assert isinstance(made["a"], int) and made["b"] in ("x", "y") and set(made) == {"a", "b"}
    assert "".join(row["text"] for event in events for row in event["choices"]) == text
    text, _, _ = await written(asker, tokens=60, constraint={"kind": "grammar", "text": 'start: "(" start ")" | "x"', "end": "first"})
    assert re.fullmatch(r"\(*x\)*", text) and text.count("(") == text.count(")")


@scenario
async def test_what_is_wrong_in_a_rule_is_said_and_nothing_is_written(asker):
    await asker.trained(steps=2)
    for constraint, words in (
        ({"kind": "regex", "text": "(a"}, "regex"),
        ({"kind": "regex", "text": r"(a)\1"}, "regex"),
        ({"kind": "regex", "text": "a[^\\s\\S]"}, "regex"),
        ({"kind": "json_schema", "text": "{"}, "schema is JSON"),
        ({"kind": "json_schema", "text": '{"type": "integer", "minimum": 3, "maximum": 2}'}, "schema"),
        ({"kind": "grammar", "text": "start: nothing"}, "grammar"),
        ({"kind": "grammar", "text": "start: start"}, "grammar"),
        ({"kind": "regex", "text": "  "}, "an empty one"),
        ({"kind": "poem", "text": "x"}, "kind is one of"),
        ({"kind": "regex", "text": "a", "end": "never"}, "end is one of"),
        ({"kind": "json_schema", "text": "{}", "whitespace": "much"}, "whitespace is one of"),
        ({"colour": "red"}, "its parts are"),
        ({"kind": "regex", "text": 5}, "its parts are"),
        ({"kind": "regex", "text": "a{500}"}, "500"),
    ):
        for kind, fields in (("write.start", {"prompt": "x", "tokens": 50}), ("write.check", {"tokens": 50})):
            failed = await asker.call(kind, "failed", "token", "checked", constraint=constraint, **fields)
            assert failed["kind"] == "failed" and words in failed["message"], (constraint, failed)
            assert "went wrong inside" not in failed["message"]
    assert (await asker.call("write.check", "checked", constraint={"kind": "regex", "text": "ab+"}))["shortest_tokens"] == 2
    text, _, last = await written(asker, tokens=5)
    assert last["tokens"] == 5


@scenario
async def test_a_rule_is_checked_before_there_is_a_model(asker):
    assert (await asker.call("write.check", "checked", constraint={"kind": "regex", "text": "abc"}))["shortest_tokens"] == 3
    assert "there is none yet" in (await asker.call("write.start", "failed", prompt="x"))["message"]


@scenario
async def test_text_that_was_held_back_for_a_stop_text_comes_with_the_rest(asker):
    """Where the model ends the text, the last letters might have become the stop text: they belong to tokens told before."""
    await asker.trained(steps=2)
    found = 0
    for seed in range(40):
        text, events, last = await written(
            asker, tokens=30, temperature=2, top_k=0, seed=seed, choices=2, stop=["aab"], constraint={"kind": "regex", "text": "a+", "end": "model"}
        )
        rows = [row for event in events for row in event.get("choices", [])]
        assert "".join(row["text"] for row in rows) == text and last["reason"] == "complete"
        found += any("token" not in row for row in rows)
    assert found


@scenario
async def test_a_rule_over_bpe_tokens(asker):
    await asker.call("corpus.text", "corpus", text="To be, or not to be, that is the question. " * 300)
    await asker.call("tokens.use", "tokens", name="bpe", vocabulary=300)
    asker.ask("train.start", preset="tiny", training={"steps": 2, "warmup_steps": 0})
    await asker.wait("stopped")
    text, events, last = await written(asker, tokens=40, choices=4, constraint={"kind": "regex", "text": "(be|question|to| )+", "end": "longest"})
    assert re.fullmatch("(be|question|to| )+", text) and last["tokens"] == 40
    rows = [row for event in events for row in event["choices"]]
    assert any(len(row["shown"]) > 1 for row in rows) and "".join(row["shown"] for row in rows) == text
