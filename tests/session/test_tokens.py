"""Tokenizers in a Session: chosen, learned again with another text, loaded and saved, looked at; and runs that are trained on them."""

import asyncio
import json
import math

import pytest
from posttrainllm.data.bpe import BPETokenizer
from posttrainllm.data.corpus import Corpus
from posttrainllm.errors import DeviceOutOfMemoryError
from posttrainllm.session import tokens

from tests.session.test_session import QUICK, TEXT, running, scenario

pytestmark = pytest.mark.native_only(reason="the loop below is CPython's; e2e/ runs the same Session in the tab")


async def learned(asker, vocabulary=300):
    await asker.call("corpus.text", "corpus", text=TEXT, name="hamlet")
    return await asker.call("tokens.use", "tokens", name="bpe", vocabulary=vocabulary)


async def trained(asker, **training):
    asker.ask("train.start", preset="tiny", training=QUICK | training)
    return await asker.wait("stopped")


@scenario
async def test_learning_tells_what_came_of_it(asker):
    told = await learned(asker)
    part = bytes(Corpus("hamlet", TEXT.encode()).train)
    judge = BPETokenizer.train(part, 300)
    count = len(judge.encode(TEXT))
    assert (told["name"], told["vocabulary"], told["merges"], told["source"]) == ("bpe", judge.vocabulary, len(judge.merges), "hamlet")
    assert told["train_tokens"] + told["validation_tokens"] == told["tokens"] and abs(told["tokens"] - count) <= 1  # cut at the split
    assert told["bytes_per_token"] == pytest.approx(len(TEXT) / told["tokens"])
    heard = [event for event in asker.events if event["kind"] == "learning"]
    assert heard[-1]["done_bytes"] == heard[-1]["total_bytes"] == len(part)


@scenario
async def test_a_run_is_trained_saved_and_opened_with_its_tokenizer(asker):
    vocabulary = (await learned(asker))["vocabulary"]
    planned = await asker.call("plan", "planned", preset="tiny")
    plain = 256 * 48
    assert planned["parameters"] == 70464 - plain + vocabulary * 48
    stopped = await trained(asker)
    started = next(event for event in asker.events if event["kind"] == "started")
    assert started["config"]["vocabulary"] == vocabulary and started["tokenizer"]["name"] == "bpe"
    await asker.call("tokens.use", "tokens", name="bytes")  # for coming runs: the saved one keeps its own
    row = (await asker.call("runs.list", "runs"))["runs"][0]
    assert (row["tokenizer"], row["vocabulary"], row["tokenizer_sha256"]) == ("bpe", vocabulary, started["tokenizer"]["sha256"])
    opened = await asker.call("runs.open", "opened", run_id=stopped["run_id"])
    assert opened["tokenizer"] == started["tokenizer"]
    assert asker.session.model.tokenizer.vocabulary == vocabulary
    asker.ask("write.start", prompt="To be", tokens=12)
    assert (await asker.wait("wrote"))["tokens"] == 12
    exported = (await asker.call("runs.export", "exported", run_id=stopped["run_id"]))["buffer"]
    async with running() as other:
        await other.call("runs.import", "runs", name="x", buffer=exported)
        assert (await other.wait("opened"))["tokenizer"] == started["tokenizer"]


@scenario
async def test_another_text_is_learned_anew_and_the_same_one_not(asker):
    first = await learned(asker)
    made = asker.session.tokens.tokenizer
    assert (await asker.call("tokens.use", "tokens", name="bpe", vocabulary=300))["sha256"] == first["sha256"]
    assert asker.session.tokens.tokenizer is made
    asker.ask("corpus.text", text="Something else, and else again. " * 300, name="other")
    told = await asker.wait("tokens")
    assert told["reply_to"] is None and told["source"] == "other" and told["sha256"] != first["sha256"]
    await asker.call("tokens.use", "tokens", name="bytes")
    asker.ask("corpus.text", text=TEXT)
    await asker.wait("corpus")
    assert asker.session.tokens.text() is asker.session.corpus


@scenario
async def test_learning_anew_that_fails_is_told_and_no_run_begins_on_the_old_tokens(asker):
    await learned(asker)
    request = asker._number
    real, BPETokenizer.train_async = BPETokenizer.train_async, failing
    try:
        asker.ask("corpus.text", text="Something else, and else again. " * 300, name="other")
        failed = await asker.wait("failed")
        assert failed["reply_to"] == request and "no memory" in failed["message"]
        assert "no memory" in (await asker.call("train.start", "failed", "started", preset="tiny", training=QUICK))["message"]
    finally:
        BPETokenizer.train_async = real
    asker.ask("train.start", preset="tiny", training=QUICK | {"steps": 2})
    await asker.wait("stopped")
    assert asker.session.tokens._source == "other"


async def failing(*_, **__):
    raise DeviceOutOfMemoryError("tokenizer", "text and tables fit", "no memory", "use a shorter text")


@scenario
async def test_saved_and_loaded_it_is_the_same_and_stays_with_another_text(asker):
    first = await learned(asker)
    saved = await asker.call("tokens.save", "exported")
    assert saved["name"] == "tokenizer.json" and json.loads(saved["buffer"])["model"]["type"] == "BPE"
    async with running() as other:
        told = await other.call("tokens.load", "tokens", name="mine.json", buffer=saved["buffer"])
        assert told["source"] == "mine.json" and told["merges"] == first["merges"] and "tokens" not in told
        other.ask("corpus.text", text="Something else. " * 300)
        again = await other.wait("tokens")
        assert again["sha256"] == told["sha256"] and again["tokens"] > 0


@scenario
async def test_a_text_is_shown_in_its_tokens(asker):
    await learned(asker)
    text = "To be, or not: 🙂 zzz"
    told = await asker.call("tokens.split", "split", text=text)
    assert [token["id"] for token in told["tokens"]] == list(asker.session.tokens.tokenizer.encode(text))
    assert (told["tokens"][0]["begin"], told["tokens"][-1]["end"]) == (0, len(text.encode())) and told["bytes"] == len(text.encode())
    assert told["bytes_per_token"] == pytest.approx(told["bytes"] / told["count"])
    assert (await asker.call("tokens.split", "split", text=""))["count"] == 0
    long = await asker.call("tokens.split", "split", text="zq " * 3000)
    assert len(long["tokens"]) == tokens.MOST_SHOWN < long["count"]
    assert "byte" in (await asker.call("tokens.split", "failed", text="x" * (tokens.LONGEST_TEXT_BYTES + 1)))["message"]


@scenario
async def test_bytes_are_tokens_too(asker):
    told = await asker.call("tokens.split", "split", text="añ")
    assert [(token["id"], token["text"]) for token in told["tokens"]] == [(97, "a"), (0xC3, "\\xc3"), (0xB1, "\\xb1")]
    assert (await asker.call("tokens.merges", "merges"))["total"] == 0
    assert "bytes have none" in (await asker.call("tokens.save", "failed"))["message"]


@scenario
async def test_merges_come_in_order_in_pages_and_by_what_they_make(asker):
    await learned(asker, 400)
    tokenizer = asker.session.tokens.tokenizer
    told = await asker.call("tokens.merges", "merges")
    assert told["total"] == told["found"] == len(tokenizer.merges)
    assert [row["rank"] for row in told["rows"]] == list(range(min(100, told["total"])))
    first = told["rows"][0]
    assert first["left"] + first["right"] == first["text"]
    corpus = asker.session.tokens.text()
    assert first["count"] == list(corpus.train).count(first["id"]) + list(corpus.validation).count(first["id"])
    found = await asker.call("tokens.merges", "merges", search="be")
    assert found["rows"] and all("be" in row["text"] for row in found["rows"]) and found["found"] < found["total"]
    tail = await asker.call("tokens.merges", "merges", first=told["total"] - 3)
    assert [row["rank"] for row in tail["rows"]] == [told["total"] - 3, told["total"] - 2, told["total"] - 1]
    assert (await asker.call("tokens.merges", "merges", search="no such thing"))["rows"] == []


@scenario
async def test_the_models_own_tokenizer_is_shown_where_asked(asker):
    assert "there is none yet" in (await asker.call("tokens.split", "failed", text="x", of="model"))["message"]
    await learned(asker)
    await trained(asker, steps=2)
    await asker.call("tokens.use", "tokens", name="bytes")
    assert (await asker.call("tokens.split", "split", text="To be", of="model"))["count"] < (await asker.call("tokens.split", "split", text="To be"))["count"]
    assert (await asker.call("tokens.save", "exported", of="model"))["bytes"] > 1000
    assert "choice or model" in (await asker.call("tokens.merges", "failed", of="x"))["message"]


@scenario
async def test_what_cannot_be_used_changes_nothing(asker):
    first = await learned(asker)
    made = asker.session.tokens.tokenizer
    for kind, fields, words in (
        ("tokens.use", {"name": "words"}, "bytes or bpe"),
        ("tokens.use", {"name": "bpe", "vocabulary": 12}, "256 to"),
        ("tokens.load", {"buffer": b"{}"}, "tokenizer.json"),
        ("tokens.load", {"buffer": b"\xff"}, "tokenizer.json"),
    ):
        assert words in (await asker.call(kind, "failed", **fields))["message"]
    assert asker.session.tokens.tokenizer is made and (await asker.call("tokens.use", "tokens", name="bpe", vocabulary=300))["sha256"] == first["sha256"]
    asker.ask("train.start", preset="tiny", training=QUICK | {"steps": 100_000})
    await asker.wait("step")
    assert "is going" in (await asker.call("tokens.use", "failed", name="bytes"))["message"]


@scenario
async def test_a_text_too_short_in_tokens_is_refused_before_the_model_goes(asker):
    await asker.call("corpus.text", "corpus", text=TEXT[:900], name="short")
    await asker.call("tokens.use", "tokens", name="bpe", vocabulary=300)
    assert "window" in (await asker.call("train.start", "failed", preset="tiny", training=QUICK))["message"]
    assert any("window" in warning for warning in (await asker.call("plan", "planned", preset="tiny"))["warnings"])


def test_text_in_tokens_is_what_the_trainer_reads():
    async def go():
        async with running() as asker:
            await learned(asker)
            await trained(asker, steps=3)
            trainer = asker.session.training.trainer
            assert trainer.corpus is asker.session.tokens.text(), "encoded once"
            assert trainer.history[0]["loss_nats"] == pytest.approx(math.log(trainer.model.tokenizer.vocabulary), abs=0.3)
            assert trainer.corpus.tokens_sha256 == Corpus("x", TEXT.encode()).tokens(trainer.model.tokenizer).tokens_sha256

    asyncio.run(go())
