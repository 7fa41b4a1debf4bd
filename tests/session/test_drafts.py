"""Speculation in a Session: a smaller saved run proposes, the text is the model's own, and what it gained is told."""

import re

import pytest
from posttrainllm.session.tokens import facts_of

from tests.session.test_session import QUICK, TEXT, scenario
from tests.session.test_writing import written

pytestmark = pytest.mark.native_only(reason="the loop below is CPython's; e2e/ runs the same Session in the tab")

SMALL = {"layers": 1, "channels": 16, "heads": 2, "context": 24, "batch": 8}


async def two_runs(asker, **tokens):
    """A small run, then `tiny` on the same text, which stays live; the small one's id."""
    await asker.call("corpus.text", "corpus", text=TEXT)
    if tokens:
        await asker.call("tokens.use", "tokens", **tokens)
    asker.ask("train.start", config=SMALL, training=QUICK | {"steps": 60}, name="small")
    small = (await asker.wait("stopped"))["run_id"]
    asker.ask("train.start", preset="tiny", training=QUICK | {"steps": 60}, name="tiny")
    return small, (await asker.wait("stopped"))["run_id"]


@scenario
async def test_greedy_text_is_the_same_with_a_draft_and_acceptance_is_told(asker):
    draft, _ = await two_runs(asker)
    plain, _, _ = await written(asker, tokens=120, temperature=0)
    text, events, last = await written(asker, tokens=120, temperature=0, draft=draft, ahead=3)
    assert text == plain
    told = last["speculation"]
    assert 0 < told["accepted"] <= told["proposed"] and told["acceptance"] == pytest.approx(told["accepted"] / told["proposed"])
    assert 120 <= told["tokens"] <= 123 and 1 < told["tokens_per_pass"] <= 4
    assert told["plain_tokens_per_second"] > 0 and told["speed_up"] == pytest.approx(told["tokens_per_second"] / told["plain_tokens_per_second"])
    assert all("speculation" in event for event in events)
    _, events, last = await written(asker, tokens=30)
    assert "speculation" not in last


@scenario
async def test_a_draft_under_a_rule_and_with_probabilities(asker):
    draft, _ = await two_runs(asker)
    for seed in range(3):
        rule = {"kind": "regex", "text": "([a-z]{2,5} ){3,6}end", "end": "first"}
        text, events, last = await written(asker, tokens=60, temperature=1.2, seed=seed, draft=draft, constraint=rule, choices=5)
        assert re.fullmatch(rule["text"], text) and last["reason"] == "complete"
        assert last["speculation"]["passes"] > 0 and last["speculation"]["proposed"] > 0
        assert "".join(row["text"] for event in events for row in event["choices"]) == text


@scenario
async def test_the_plain_speed_is_measured_where_it_is_not_known(asker):
    draft, _ = await two_runs(asker)
    _, _, last = await written(asker, tokens=40, draft=draft)
    assert last["speculation"]["plain_tokens_per_second"] > 0
    _, _, last = await written(asker, tokens=1, draft=draft)
    assert last["tokens"] == 1


@scenario
async def test_over_bpe_tokens(asker):
    draft, _ = await two_runs(asker, name="bpe", vocabulary=300)
    plain, _, _ = await written(asker, tokens=50, temperature=0)
    text, _, last = await written(asker, tokens=50, temperature=0, draft=draft)
    assert text == plain and last["speculation"]["accepted"] > 0
    rows = (await asker.call("runs.list", "runs"))["runs"]
    [(name, sha256)] = {(row["tokenizer"], row["tokenizer_sha256"]) for row in rows}
    assert name == "bpe" and sha256 == facts_of(asker.session.model.tokenizer)["sha256"]


@scenario
async def test_what_is_no_draft_is_refused(asker):
    draft, live = await two_runs(asker)
    for run_id, words in ((live, "another run"), ("nowhere", "nowhere")):
        assert words in (await asker.call("write.start", "failed", prompt="x", draft=run_id))["message"]
    assert "ahead" in (await asker.call("write.start", "failed", prompt="x", draft=draft, ahead=0))["message"]
    await asker.call("runs.open", "opened", run_id=draft)
    assert "smaller" in (await asker.call("write.start", "failed", prompt="x", draft=live))["message"]
    await asker.call("tokens.use", "tokens", name="bpe", vocabulary=280)
    asker.ask("train.start", preset="tiny", training=QUICK | {"steps": 2})
    await asker.wait("stopped")
    assert "tokenizer" in (await asker.call("write.start", "failed", prompt="x", draft=draft))["message"]
    text, _, last = await written(asker, tokens=5)
    assert last["tokens"] == 5


@scenario
async def test_the_draft_goes_with_the_model_and_its_run_stays_free(asker):
    draft, _ = await two_runs(asker)
    await written(asker, tokens=5, draft=draft)
    kept = asker.session.writing.drafts._model
    await written(asker, tokens=5, draft=draft)
    assert asker.session.writing.drafts._model is kept, "opened once"
    await asker.call("runs.rename", "runs", run_id=draft, name="other")
    await asker.call("runs.delete", "runs", run_id=draft)
    await asker.trained(steps=2)
    assert asker.session.writing.drafts._model is None
