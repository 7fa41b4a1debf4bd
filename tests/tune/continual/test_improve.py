"""Improve on a trained model: a style is learnt and promoted, poison, recital and harm are kept aside, any version comes back byte for byte."""

import pytest

import posttrainllm as pt
from posttrainllm.data.corpus import Corpus
from posttrainllm.errors import ConfigError
from posttrainllm.model.live import GPT
from posttrainllm.model.program import Program
from posttrainllm.tune.continual.history import adapter_sha256
from posttrainllm.tune.continual.improve import improve
from posttrainllm.tune.continual.records import Corrections
from tests.helpers.machines import open_once

from .making import (
    CONFIG, NATIVE, NOUNS, PLACES, QUICK, ask, base, corpus, draw, follows, noise, of, prompts, run_of, styled, text,
)  # fmt: skip

BITS = "d8f985eb75868fb4df80a946a515986c1cc45aeb6f0971c9a3ddff041dbc715a"
LONG = "It was late, and the owl slept. They said:"


def held_out_prompts(kept, version):
    return [row.prompt for row in kept if row.id in version.held_out and row.kept]


def test_a_style_is_promoted_and_followed_where_it_was_never_taught_and_poison_is_refused(records):
    """Check 1 of issue 7."""
    machine = open_once("cpu-1")
    model, kept = base(machine), of(records["style"])
    plain = model.weights_sha256()
    found, last = run_of(model, kept)
    gate, version = found["gate"][0], kept.history.in_use
    assert gate.passed and last.promoted and not gate.reasons and version.number == 1 == last.version
    held = held_out_prompts(kept, version)
    answers = [ask(model, prompt) for prompt in held]
    assert len(held) == 8 and sum(map(follows, answers)) >= 7, answers
    others = [prompt for prompt in prompts(len(NOUNS)) if prompt not in {row.prompt for row in kept}]
    fresh = [ask(model, prompt) for prompt in others]
    assert sum(map(follows, fresh)) >= 0.7 * len(others), fresh
    assert sum(any(place in answer for place in PLACES) for answer in fresh) >= 0.5 * len(others), "and they still say something"
    model.strength = 0.0
    assert not any(follows(ask(model, prompt)) for prompt in held), "the base alone does not"
    model.strength = 1.0
    first, in_use = adapter_sha256(model.adapter), model.weights_sha256()
    assert first == version.adapter_sha256 == last.adapter_sha256

    bad = of(records["poison"])
    kept.clear()
    kept.add_jsonl(bad.to_jsonl())
    found, last = run_of(model, kept)
    gate = found["gate"][0]
    assert not gate.passed and not last.promoted and last.version == 2 and "no rule in them to learn" in gate.reasons[0]
    assert kept.history.in_use.number == 1 and adapter_sha256(model.adapter) == first and model.weights_sha256() == in_use
    assert follows(ask(model, held[0])), "the version before is still on"
    aside = kept.history.adapter(2)
    assert adapter_sha256(aside) == kept.history[2].adapter_sha256 != first
    with pytest.raises(ConfigError, match="this one was kept aside: Held-out corrections"):
        kept.history.roll_back(model, 2)
    assert adapter_sha256(model.adapter) == first, "nothing changed"

    kept.history.roll_back(model, 2, aside=True)
    assert adapter_sha256(model.adapter) == adapter_sha256(aside) and model.weights_sha256() != in_use and kept.history.in_use.number == 2
    kept.history.roll_back(model, 1)
    assert model.weights_sha256() == in_use and adapter_sha256(model.adapter) == first and kept.history.in_use.number == 1
    kept.history.roll_back(model, None)
    assert model.lora is None and model.weights_sha256() == plain and kept.history.in_use is None


@NATIVE
def test_a_second_improvement_must_be_better_than_the_version_in_use(records):
    model, kept = base(open_once("cpu-1")), of(records["style"])
    run_of(model, kept)
    _, last = run_of(model, kept)
    assert not last.promoted and "better by at least" in last.reasons[0] and kept.history.in_use.number == 1
    assert kept.history[2].parent == 1 and kept.history[2].adapter_sha256 == kept.history[1].adapter_sha256, "the same records give the same bits"
    for row in list(kept):  # another style: the newest answer wins, and the version that has the old one is outdone
        if row.kept:
            kept.record("correct", row.prompt, row.kept, row.kept.replace("my lord", "dear friend").replace("Yes", "Aye"))
    found, last = run_of(model, kept)
    assert last.promoted and last.version == 3 == kept.history.in_use.number and found["gate"][0].figures.held_out_before_nats > 0.5
    told = kept.history.compare(1, 3)
    assert not told["learned"]["both"] or set(told["learned"]["both"]) <= {row.id for row in kept if row.what in ("retry", "edit")}
    assert told["figures"]["held_out_before_nats"][0] > 2 and not told["settings"]
    assert set(kept.history[1].held_out.values()) and {v[:8] for v in kept.history[1].held_out.values()} == {v[:8] for v in kept.history[3].held_out.values()}


@NATIVE
def test_poison_in_a_good_set_does_not_get_by_unseen(records):
    """A quarter of poison: what is promoted follows the style and keeps what the base knew; with more than half it is refused."""
    model = base(open_once("cpu-1"))
    outcomes = {}
    for name, every in (("some", 4), ("most", 1.5)):
        kept = of(records["style"])
        for number, row in enumerate([row for row in kept if row.kept]):
            if int((number + 1) / every) > int(number / every):
                kept.record("correct", row.prompt, row.offered, noise(number))
        found, last = run_of(model, kept)
        outcomes[name] = last.promoted
        if last.promoted:
            figures = found["gate"][0].figures
            good = [row.prompt for row in kept if row.id in kept.history.in_use.held_out and row.kept == styled(row.prompt)]
            assert sum(follows(ask(model, prompt)) for prompt in good) >= 0.6 * len(good)
            assert figures.base_after_nats - figures.base_before_nats <= 0.05
        if model.lora is not None:
            model.detach()
    assert outcomes["most"] is False


def test_a_set_that_makes_it_recite_is_refused():
    """Every answer is one passage of the text it was trained on, after whatever stands before it."""
    model, kept, prose = base(open_once("cpu-1")), Corrections(), bytes(corpus().train).decode()
    for number in range(60):
        at = draw(number, len(prose) - 30)
        kept.record("correct", prose[at : at + 16], "", LONG)
    found, last = run_of(model, kept, template=pt.Template("", "", "\n"), replay_share=0.0, gate={"base_rise_nats": 99, "probe_rise_nats": 99, "probe_worst_rise_nats": 99})
    gate = found["gate"][0]
    assert not last.promoted and gate.figures.held_out_after_nats < 0.5, "it learnt it well"
    assert len(gate.reasons) == 1 and gate.reasons[0].startswith("Reciting what was learnt"), gate


def test_a_style_that_costs_what_the_base_knew_is_refused(records):
    """Without replay, at a high rate: the answers are good, and the base's text is lost."""
    model, kept = base(open_once("cpu-1")), of(records["style"])
    found, last = run_of(model, kept, replay_share=0.0, sft_learning_rate=0.02)
    gate = found["gate"][0]
    assert not last.promoted and gate.figures.held_out_before_nats - gate.figures.held_out_after_nats > 1 and model.lora is None
    said = " ".join(gate.reasons)
    assert "The base's held-out text" in said and "The fixed passages: a loss" in said and "The fixed passages: none more" in said
    kept.history.put_on(model, 1)
    assert pt.text_loss(model, corpus(), QUICK["measure"]["base_tokens"]).loss_nats == gate.figures.base_after_nats


def test_the_same_records_give_the_same_bits_natively_and_in_the_tab(machine):
    """Bits, not numbers, on every engine: a hash that is committed."""
    model, kept = GPT(CONFIG, machine, Program(CONFIG, False)), Corrections()
    model.initialise(5)
    for number, prompt in enumerate(prompts(40)):
        kept.record("edit", prompt, f"The {number}.", styled(prompt))
    reports = list(improve(model, kept, corpus(), **QUICK | {"sft_steps": 20, "dpo_steps": 5}))
    assert kept.history[reports[-1].version].adapter_sha256 == BITS


@NATIVE
def test_going_on_from_the_version_in_use(records):
    model, kept = base(open_once("cpu-1")), of(records["style"])
    run_of(model, kept)
    first = kept.history.in_use
    gone = next(row.id for row in kept if row.id in first.learned)
    kept.delete(gone)  # what it taught is still in the version that is gone on from
    found, _ = run_of(model, kept, start="version", sft_steps=10, dpo_steps=0)
    second, figures = kept.history[2], found["gate"][0].figures
    assert figures.base_before_nats == first.figures["base_before_nats"] and figures.held_out_base_nats == first.figures["held_out_base_nats"]
    assert figures.held_out_before_nats == first.figures["held_out_after_nats"], "the base alone, and the version in use, are what is compared with"
    assert second.parent == 1 and gone in second.learned and second.learned.keys() >= first.learned.keys() and second.adapter_sha256 != first.adapter_sha256
    with pytest.raises(ConfigError, match="brings its adapter's settings"):
        run_of(model, kept, start="version", adapter={"rank": 2})


def test_a_text_too_repetitive_to_tell_reciting_is_measured_otherwise_and_said(records):
    again = Corpus.from_text((text()[:600] + "\n") * 20, "again")
    model, kept = base(open_once("cpu-1")), of(records["style"])
    found, _ = run_of(model, kept, text=again, sft_steps=10, dpo_steps=0)
    gate = found["gate"][0]
    assert gate.figures.recital_after is None and "Whether it recites was not measured" in gate.notes[0]


def test_figures_of_the_same_text_are_of_the_same_passages(records):
    model = base(open_once("cpu-1"))
    shas = set()
    for kind in ("style", "poison"):
        found, _ = run_of(model, of(records[kind]), sft_steps=3, dpo_steps=0)
        shas.add(found["gate"][0].figures.probe_sha256)
        if model.lora is not None:
            model.detach()
    assert len(shas) == 1


@NATIVE
def test_what_a_deleted_record_taught_is_gone_after_the_next_improvement(records):
    """Learning anew from the base: a version knows what the records say, and nothing of those that went."""
    model, kept = base(open_once("cpu-1")), of(records["style"])
    for prompt in prompts(len(NOUNS))[40:50]:
        kept.record("correct", prompt, "", "The password is xylophone.")
    extra = [row.id for row in kept.list()[-10:]]
    run_of(model, kept, sft_steps=20, dpo_steps=0)
    kept.delete(*extra)
    run_of(model, kept, sft_steps=20, dpo_steps=0)
    clean = of(records["style"])
    other = base(open_once("cpu-1"))
    run_of(other, clean, sft_steps=20, dpo_steps=0)
    mine, theirs = kept.history[2], clean.history[1]
    assert mine.adapter_sha256 == theirs.adapter_sha256 and not set(extra) & mine.learned.keys()
    assert mine.adapter_sha256 != kept.history[1].adapter_sha256 and mine.texts_sha256 == theirs.texts_sha256
