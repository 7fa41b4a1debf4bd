"""The check itself: a model that learned its text by heart is caught, one that learned nothing is cleared, copies are where they are said to be."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

import posttrainllm as pt
from posttrainllm.data.bpe import BPETokenizer
from posttrainllm.data.corpus import Corpus
from posttrainllm.decode.generate import write
from posttrainllm.errors import ConfigError, DataError
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.live import GPT
from posttrainllm.model.program import Program
from posttrainllm.ops.normal import GOLDEN, mix
from posttrainllm.study.memorise import Progress, memorise_async
from posttrainllm.study.passages import Part, continued, longest_run
from posttrainllm.train.trainer import Trainer
from posttrainllm.waiting import each_now, now

WORDS = """able acid aged also area army away baby back ball band bank base bath bear beat been beer bell belt best bill bird blow blue
boat body bomb bond bone book boom born boss both bowl bulk burn bush busy""".split()
TEXT = " ".join(WORDS[mix(i * GOLDEN + 7) % len(WORDS)] for i in range(500))
CORPUS = Corpus.from_text(TEXT, "words").split_at(0.4)  # 1,500 bytes to learn by heart, 999 of the same words in another order
CONFIG = GPTConfig(layers=2, channels=64, heads=4, context=32, batch=16)
STEPS = 800
SETTINGS = {"learning_rate": 6e-3, "warmup_steps": 20, "decay_steps": STEPS, "evaluate_every_steps": STEPS, "evaluation_tokens": 64,
            "weight_decay": 0.0, "steps": STEPS}  # fmt: skip


def model_on(machine, weights=None, config=CONFIG, tokenizer=None):
    """An untrained model, or one with these weights."""
    model = GPT(config, machine, Program(config))
    model.tokenizer = tokenizer or model.tokenizer
    model.initialise(1)
    for name, data in (weights or {}).items():
        model.set_weight_bytes(name, data)
    return model


@pytest.fixture(scope="module")
def by_heart(machine):
    """Weights of a model that learned the training part by heart: two seconds of training."""
    model = model_on(machine)
    list(Trainer(model, CORPUS, SETTINGS).run())
    return {name: model.weight_bytes(name) for name in model.weight_names()}


def test_a_model_that_knows_its_text_by_heart_is_caught(machine, by_heart):
    report = pt.memorise(model_on(machine, by_heart), CORPUS, prefixes=24, continuation_tokens=16)
    subject = report["model"]
    assert subject.verdict.kind == "memorised"
    assert subject.training.exact_rate >= 0.9 and subject.held_out.exact_rate <= 0.05
    assert subject.training.bits_per_byte < 0.2 < 1 < subject.held_out.bits_per_byte
    assert sorted(subject.training.longest_bytes)[2] == 16 and (report.prefix_tokens, report.continuation_tokens) == (16, 16)
    for probe in subject.probes:
        whole = probe.prefix + probe.truth
        assert CORPUS.data[probe.at : probe.at + 32].decode() == whole and probe.continues_at == probe.at + 16
        assert (probe.group == "training") == (probe.at + 32 <= CORPUS.split)
        assert probe.exact == (probe.output == probe.truth) == (probe.run_tokens == 16)
        if probe.exact and probe.group == "training":
            (span,) = probe.spans
            assert (span.begin, span.end, span.at, span.line) == (0, 16, probe.continues_at, 1)


def test_a_model_that_learned_nothing_is_cleared(machine):
    report = pt.memorise({"untrained": model_on(machine)}, CORPUS, prefixes=24)
    subject = report["untrained"]
    assert subject.verdict.kind == "no sign" and subject.training.exact == subject.held_out.exact == 0
    assert subject.training.bits_per_byte == pytest.approx(8, abs=0.3) and not subject.copied()
    assert max(report.chance_bytes) >= 5, "held-out text shares whole words with the training text"


def test_copied_spans_point_to_identical_text(machine, by_heart):
    report = pt.memorise(model_on(machine, by_heart), CORPUS, prefixes=24, continuation_tokens=16, span_bytes=6)
    probes, seen = report["model"].probes, 0
    assert report.span_bytes == 6
    for probe in probes:
        for span in probe.spans:
            run = probe.output_bytes[span.begin : span.end]
            assert len(run) >= 6 and CORPUS.data[span.at : span.at + len(run)] == run and span.at + len(run) <= CORPUS.split
            seen += probe.group == "held out"
        assert "".join(text for text, _ in probe.pieces()) == probe.output
        assert [span for _, span in probe.pieces() if span] == list(probe.spans)
        copied = CORPUS.data[probe.longest_at : probe.longest_at + probe.longest_bytes]
        assert copied in probe.output_bytes and len(copied) == probe.longest_bytes
    assert seen > 5, "after text it never saw it writes what it knows"


def test_subjects_side_by_side_and_json(machine, by_heart):
    model = model_on(machine, by_heart)
    seen = []
    report = pt.memorise(
        {"plain": model, "prompt only": (model, {"shots": True})}, CORPUS, prefixes=12, prefix_tokens=8, continuation_tokens=8, progress=seen.append
    )
    assert [(each.name, each.shots) for each in report.subjects] == [("plain", 0), ("prompt only", 16)]
    places = [[probe.at for probe in each.probes] for each in report.subjects]
    assert places[0] == places[1] == sorted(places[0]), "all are asked the same"
    assert [item.done for item in seen] == list(range(1, seen[-1].total + 1)) and seen[-1].total == 1 + 2 * 24
    assert seen[0].probe is None and seen[-1].probe is report["prompt only"].probes[-1]
    facts = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    first = facts["subjects"][0]
    assert first["training"]["count"] == 12 and sum(first["training"]["histogram"]) == 12
    assert facts["buckets"] == [[0, 0], [1, 1], [2, 3], [4, 7], [8, 8]] and first["verdict"]["kind"] == report["plain"].verdict.kind
    assert "".join(text for text, _ in first["probes"][0]["pieces"]) == first["probes"][0]["output"]
    assert "probes" not in report.to_dict(probes=False)["subjects"][0]
    other = pt.memorise(model, CORPUS, prefixes=12, prefix_tokens=8, continuation_tokens=8, seed=43)
    assert [probe.at for probe in other["model"].probes] != places[0]


def test_base_prompt_only_and_adapter_side_by_side(machine):
    """A base that knows the words but not this text; an adapter that learned the text by heart: only the adapter is to blame."""
    model = model_on(machine)
    other = Corpus.from_text(" ".join(WORDS[mix(i * GOLDEN + 99) % len(WORDS)] for i in range(500)), "other words")
    list(Trainer(model, other, SETTINGS | {"steps": 300, "decay_steps": 300}).run())
    model.attach(pt.LoRAConfig(rank=16, alpha=32, targets=("attn.qkv", "attn.proj", "mlp.fc", "mlp.proj")))
    list(Trainer(model, CORPUS, SETTINGS | {"learning_rate": 1e-2, "steps": 2 * STEPS, "decay_steps": 2 * STEPS}).run())
    model.strength = 0.75
    subjects = {
        "base": (model, {"strength": 0.0}), "prompt only": (model, {"strength": 0.0, "shots": True}), "LoRA": (model, {"strength": 1.0}),
    }  # fmt: skip
    report = pt.memorise(subjects, CORPUS, prefixes=20, prefix_tokens=12, continuation_tokens=8)
    kinds = [subject.verdict.kind for subject in report.subjects]
    assert kinds[0] in ("no sign", "traces") and kinds[1] in ("no sign", "traces") and kinds[2] == "memorised"
    assert report["base"].training.exact == report["prompt only"].training.exact == 0
    assert report["LoRA"].training.exact_rate >= 0.9 and report["LoRA"].held_out.exact_rate <= 0.1
    assert model.strength == 0.75, "it is put back"
    assert report["base"].training.bits_per_byte > 1 > report["LoRA"].training.bits_per_byte
    model.detach()
    again = pt.memorise({"base": model, "shown": (model, {"shots": True})}, CORPUS, prefixes=20, prefix_tokens=12, continuation_tokens=8)
    assert again["base"].probes == report["base"].probes, "strength 0 is the base"
    assert again["shown"].probes == report["prompt only"].probes


def test_it_is_the_greedy_text(machine, by_heart):
    """With the truth as a draft it writes what plain greedy writing does, whatever is true."""
    model = model_on(machine, by_heart)
    for truth in (list(CORPUS.data[116:132]), list(b"zzzzzzzzzzzzzzzz"), list(CORPUS.data[116:120] + b"able acid ag")):
        written, nats = now(continued(model, list(CORPUS.data[100:116]), truth))
        plain = "".join(piece.text for piece in write(model, CORPUS.data[100:116].decode(), 16, temperature=0))
        assert bytes(written).decode() == plain
        hand = 0.0
        for at, token in enumerate(truth):
            logits = np.asarray(model.logits(list(CORPUS.data[100:116]) + truth[:at]), np.float64)
            hand += np.log(np.exp(logits - logits.max()).sum()) + logits.max() - logits[token]
        assert nats == pytest.approx(hand, rel=1e-6)


def test_on_bpe_tokens_places_are_bytes(machine):
    tokenizer = BPETokenizer.train(bytes(CORPUS.train), 300)
    config = GPTConfig(layers=1, channels=16, heads=2, context=16, vocabulary=tokenizer.vocabulary, batch=2)
    report = pt.memorise(model_on(machine, None, config, tokenizer), CORPUS, prefixes=20)
    assert (report.tokenizer, report.prefix_tokens, report.continuation_tokens) == ("bpe", 8, 4)
    for probe in report["model"].probes:
        data = (probe.prefix + probe.truth).encode()
        assert CORPUS.data[probe.at : probe.at + len(data)] == data and probe.continues_at == probe.at + len(probe.prefix.encode())
        assert probe.truth_bytes == len(probe.truth.encode()) > 4
    nats = sum(probe.nats for probe in report["model"].probes if probe.group == "training")
    nbytes = sum(probe.truth_bytes for probe in report["model"].probes if probe.group == "training")
    assert report["model"].training.bits_per_byte == pytest.approx(nats / nbytes / np.log(2))


def test_places_are_spread_do_not_overlap_and_follow_the_seed():
    part = Part(CORPUS, "training")
    places = list(part.places(20, 32, 5, lambda start: False))
    assert len(places) == 20 and all(later - before >= 32 for before, later in zip(places, places[1:], strict=False))
    assert all(1500 * i // 20 <= place <= 1500 * (i + 1) // 20 - 32 for i, place in enumerate(places))
    assert places == list(part.places(20, 32, 5, lambda start: False)) != list(part.places(20, 32, 6, lambda start: False))
    assert len(list(part.places(1000, 32, 5, lambda start: False))) == 1500 // 32
    odd = list(part.places(20, 32, 5, lambda start: start % 2 == 0))
    assert len(odd) == 20 and all(place % 2 for place in odd) and not list(part.places(20, 32, 5, lambda start: True))
    assert longest_run([1, 2, 3, 4], [1, 9, 3, 4]) == 2 and longest_run([1], [2]) == 0


def test_held_out_text_that_was_trained_on_is_left_out(machine):
    """The end of the text is its beginning again: that part tells nothing about chance."""
    again = Corpus.from_text(TEXT[:1500] + TEXT[:600] + TEXT[1500:], "words again").split_at(0.5)
    assert again.split < 1600
    report = pt.memorise(model_on(machine), again, prefixes=30)
    held = [probe for probe in report["model"].probes if probe.group == "held out"]
    assert 8 <= len(held) < 30 and all(again.data[probe.at : probe.at + 24] not in again.data[: again.split] for probe in held)
    whole = Corpus.from_text(TEXT[:1000] * 2, "twice").split_at(0.5)
    with pytest.raises(DataError, match="does not stand in the training part too; 0 came"):
        pt.memorise(model_on(machine), whole)


def test_training_text_that_stands_there_twice_is_left_out_too(machine):
    """Else the parts were not picked alike: what repeats itself, which is easy, would be asked for in the training part only."""
    twice = Corpus.from_text(TEXT[:300] + TEXT[:1200] + TEXT[1500:], "words twice").split_at(0.4)
    report = pt.memorise(model_on(machine), twice, prefixes=30)
    training = [probe for probe in report["model"].probes if probe.group == "training"]
    train = twice.data[: twice.split]
    assert 8 <= len(training) <= 26 and all(train.count(train[probe.at : probe.at + 24]) == 1 for probe in training)
    assert any(300 < probe.at < 1500 for probe in training)
    with pytest.raises(DataError, match="of training text that stands there once; 0 came"):
        pt.memorise(model_on(machine), Corpus.from_text(TEXT[:300] * 5 + TEXT[1500:], "five times").split_at(0.4))


def test_training_text_that_is_shown_is_not_asked_for(machine):
    model = model_on(machine)
    report = pt.memorise({"shown": (model, {"shots": 16})}, CORPUS, prefixes=40, prefix_tokens=8, continuation_tokens=8)
    asked, texts = [], model.logits_of_async

    async def listening(tokens, last):
        asked.append(bytes(tokens[:16]))
        return await texts(tokens, last)

    model.logits_of_async = listening
    again = pt.memorise({"shown": (model, {"shots": 16})}, CORPUS, prefixes=40, prefix_tokens=8, continuation_tokens=8)
    shown = set(asked)
    assert len(shown) == 1, "the same before every prefix"
    begin = CORPUS.data.find(shown.pop())
    assert 0 <= begin and begin + 16 <= CORPUS.split
    training = [probe for probe in again["shown"].probes if probe.group == "training"]
    assert len(training) >= 39 and all(probe.at + 16 <= begin or probe.at >= begin + 16 for probe in training)
    assert [probe.output for probe in report["shown"].probes] == [probe.output for probe in again["shown"].probes]


def test_an_index_may_be_given_and_a_check_left(machine):
    from posttrainllm.study.matches import Matches

    index = Matches(bytes(CORPUS.train))
    list(index.build())
    steps = memorise_async(model_on(machine), CORPUS, prefixes=8, matches=index)
    first = next(each_now(steps))
    assert isinstance(first, Progress) and first.probe is not None, "nothing is left to build"
    now(steps.aclose())


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"prefixes": 7}, ConfigError, "prefixes is a whole number from 8 to 1,000; 7 came"),
        ({"prefixes": 8.0}, ConfigError, "8.0 came"),
        ({"prefix_tokens": 0}, ConfigError, "prefix_tokens"),
        ({"prefix_tokens": 30, "continuation_tokens": 3}, ConfigError, "fit the 32 tokens of the context of model; 0 [+] 33 tokens came"),
        ({"span_bytes": 0}, ConfigError, "span_bytes"),
        ({"seed": -1}, ConfigError, "seed"),
    ],
)
def test_mistakes_are_sentences(machine, options, error, said):
    with pytest.raises(error, match=said):
        pt.memorise(model_on(machine), CORPUS, **options)


def test_mistakes_with_subjects(machine):
    model = model_on(machine)
    for subjects, error, said in (
        ({}, ConfigError, "none came"),
        ({"x": (model, {"shot": 3})}, ConfigError, "shot came"),
        ({"x": (model, {"shots": 9})}, ConfigError, "of the context of x; 9 [+] 24"),
        ({"x": (model, {"strength": 0.5})}, ConfigError, "x has no adapter"),
    ):
        with pytest.raises(error, match=said):
            pt.memorise(subjects, CORPUS)
    other = SimpleNamespace(config=CONFIG, tokenizer=BPETokenizer.train(CORPUS.data, 256), lora=None)
    with pytest.raises(DataError, match="that of two is another than that of one"):
        pt.memorise({"one": model, "two": other}, CORPUS)
    with pytest.raises(DataError, match="at least 8 passages of 24 tokens of held out text that does"):
        pt.memorise(model, CORPUS.split_at(0.05))
