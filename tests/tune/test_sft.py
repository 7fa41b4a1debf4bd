"""Supervised tuning: it learns the responses and nothing of the prompts, with all weights or with an adapter's, and goes on exactly."""

import numpy as np
import pytest

import posttrainllm as pt
from posttrainllm.data.pair_rows import join
from posttrainllm.data.pairs import Pairs
from posttrainllm.errors import ConfigError, DataError
from posttrainllm.store.checkpoint import Checkpoint
from posttrainllm.train.reports import EvalReport, StepReport, StoppedReport
from posttrainllm.train.state import checkpoint_of, trainer_of
from posttrainllm.train.trainer import Live
from posttrainllm.tune.forgetting import ForgettingReport
from posttrainllm.tune.running import blocks, each
from posttrainllm.tune.settings import tuning_settings
from posttrainllm.tune.sft import sft, sft_trainer

from .making import CONFIG, FACTS, LORA, SHORT, corpus, model_on, pairs

BOTH = pytest.mark.parametrize("lora", [None, LORA], ids=["whole", "adapter"])
RATES = {None: 4e-3, LORA: 3e-2}


def answers(model):
    """What it says to each fact's prompt, greedily."""
    return [model.generate(SHORT.ask(q), 16, stop=SHORT.end, temperature=0.0) for q, _ in FACTS]


@BOTH
def test_it_learns_facts_and_stops_where_an_answer_ends(machine, lora):
    model = model_on(machine, lora, known=True)
    assert answers(model) != [a for _, a in FACTS]
    reports = list(sft(model, pairs(), steps=220, learning_rate=RATES[lora], seed=3))
    steps = [report for report in reports if isinstance(report, StepReport)]
    assert steps[0].loss_nats > 4 and steps[-1].loss_nats < 0.1 and len(steps) == 220
    assert answers(model) == [a for _, a in FACTS]
    assert isinstance(reports[0], EvalReport) and isinstance(reports[-1], StoppedReport)


def test_base_and_tuned_answer_differently_to_one_seed(machine):
    model = model_on(machine, LORA, known=True)
    base = answers(model)
    list(sft(model, pairs(), steps=60, learning_rate=3e-2))
    tuned = answers(model)
    model.strength = 0.0
    assert answers(model) == base != tuned
    model.strength = 1.0
    assert answers(model) == tuned


def test_the_base_keeps_its_bytes_under_an_adapter(machine):
    model = model_on(machine, LORA)
    frozen = [p.name for p in model.program.layout.frozen]
    before = model.weights_sha256(frozen)
    list(sft(model, pairs(), steps=5))
    assert model.weights_sha256(frozen) == before


def test_targets_in_the_prompt_change_nothing(any_machine):
    """Two batches that differ in what stands at the prompt's targets give the same step; one token of an answer does not."""
    part, _ = pairs().parts(CONFIG.context)
    tokens, targets = join(part, list(range(6)) + [0, 1], CONFIG.context)
    counted = np.frombuffer(targets, "<i4").copy()
    answered = [answer for _, answer in FACTS + FACTS[:2]]
    assert (counted >= 0).sum() == sum(len(answer) + 1 for answer in answered)
    other = np.where(counted < 0, -1 - np.arange(counted.size) % 7, counted)
    changed = counted.copy()
    changed[np.flatnonzero(counted >= 0)[0]] ^= 1

    def step(given):
        model = model_on(any_machine)
        recipe = (1e-3, 0.9, 0.99, 1e-8, 0.0, 1.0, 10.0, 100.0)
        return model.step(tokens, given.astype("<i4").tobytes(), recipe), model.weights_sha256()

    assert step(counted) == step(other) != step(changed)


def test_the_loss_of_a_report_is_that_of_the_response(any_machine):
    model = model_on(any_machine)
    trainer = sft_trainer(model, Pairs.from_list([("sea", "wet")], "one", SHORT), {"steps": 1, "learning_rate": 0.0})
    said, first = (SHORT.ask("sea") + SHORT.answer("wet")).encode(), len(SHORT.ask("sea"))
    logits = [np.asarray(model.logits(list(said[:at])), np.float64) for at in range(first, len(said))]
    expected = np.mean([np.log(np.exp(row).sum()) - row[target] for row, target in zip(logits, said[first:])])
    reports = list(each(blocks(trainer)))
    assert [report.event for report in reports] == ["eval", "step", "eval", "stopped"]
    assert reports[0].validation_loss_nats == pytest.approx(expected, rel=1e-5)
    assert reports[1].loss_nats == pytest.approx(expected, rel=1e-5)
    assert reports[1].bits_per_byte == pytest.approx(expected / np.log(2), rel=1e-5)


@BOTH
def test_a_run_goes_on_exactly(machine, lora):
    def steps(trainer, until):
        return [(r.step, r.loss_nats, r.gradient_norm) for r in each(blocks(trainer, until=until)) if r.event == "step"]

    base = model_on(machine)
    settings = {"steps": 9, "evaluate_every_steps": 4}
    whole = sft_trainer(model_on(machine, lora), pairs(3), settings)
    expected, sha = steps(whole, 9), whole.model.weights_sha256()
    first = sft_trainer(model_on(machine, lora), pairs(3), settings)
    got = steps(first, 4)
    data = checkpoint_of(first, "facts").to_bytes()
    live = model_on(machine, lora, seed=1)
    again = trainer_of(Checkpoint.from_safetensors(data), pairs(3), model=live)
    assert (again.step, again.batches.cursor) == (4, first.batches.cursor) and base.config == live.config
    assert got + steps(again, 9) == expected and live.weights_sha256() == sha
    with pytest.raises(DataError, match="a run goes on with the text it began with, 'facts'|\"facts\""):
        trainer_of(Checkpoint.from_safetensors(data), pairs(2), model=live)


def test_moments_of_another_run_are_forgotten(any_machine):
    """A model that comes from a training run takes the same first steps as one that brings no moments."""
    trained, fresh = model_on(any_machine), None
    list(pt.train(trained, corpus(), steps=3, evaluation_tokens=64))
    weights = {name: trained.weight_bytes(name) for name in trained.weight_names()}
    settings = {"steps": 3}
    one = [r.loss_nats for r in sft(trained, pairs(), **settings) if isinstance(r, StepReport)]
    fresh = model_on(any_machine)
    for name, data in weights.items():
        fresh.set_weight_bytes(name, data)
    assert [r.loss_nats for r in sft(fresh, pairs(), **settings) if isinstance(r, StepReport)] == one


def test_a_model_for_writing_gets_room_to_learn(machine):
    from posttrainllm.model.live import GPT
    from posttrainllm.model.program import Program

    model = GPT(CONFIG, machine, Program(CONFIG, training=False))
    model.initialise(1)
    sha = model.weights_sha256()
    model.make_trainable()
    assert model.weights_sha256() == sha
    reports = list(sft(model, pairs(), steps=4))
    assert reports[-1].reason == "finished" and model.weights_sha256() != sha


@BOTH
def test_what_is_forgotten_is_measured_before_and_after(machine, lora):
    model, text = model_on(machine, known=True), corpus()
    known = pt.text_loss(model, text)
    if lora:
        model.attach(lora)
    reports = list(sft(model, pairs(), base=text, steps=60, learning_rate=RATES[lora]))
    first, last = [report for report in reports if isinstance(report, ForgettingReport)]
    assert reports[0] is first and reports[-2] is last and isinstance(reports[-1], StoppedReport)
    assert (first.before_nats, first.after_nats, first.forgotten_nats) == (known.loss_nats, None, None)
    assert last.before_nats == known.loss_nats and last.after_nats == pt.text_loss(model, text).loss_nats
    assert last.forgotten_nats > 0.3 and last.before_bits_per_byte == pytest.approx(known.loss_nats / np.log(2))
    assert last.to_dict()["event"] == "forgetting" and last.to_dict()["forgotten_nats"] == last.forgotten_nats
    if lora:
        model.strength = 0.0
        assert pt.text_loss(model, text).loss_nats == known.loss_nats, "the base itself forgot nothing"


def test_held_out_pairs_are_what_an_evaluation_measures(machine):
    model = model_on(machine)
    examples = Pairs.from_list(FACTS * 5, "facts", SHORT)
    assert len(examples.held_out) == 3
    trainer = sft_trainer(model, examples, {"steps": 1})
    losses = []
    for index in examples.held_out:
        one = Pairs.from_list([examples.rows[index]], "one", SHORT)
        losses += [(sft_trainer(model, one, {"steps": 1}).evaluate().validation_loss_nats, one.parts(24)[0].counted)]
    expected = sum(loss * count for loss, count in losses) / sum(count for _, count in losses)
    assert trainer.evaluate().validation_loss_nats == pytest.approx(expected, rel=1e-6)


def test_settings_are_the_tables_and_short_runs_decay_in_time(any_machine):
    model = model_on(any_machine)
    usual = tuning_settings("sft", model)
    assert usual["steps"] == usual["decay_steps"] == 200 and usual["learning_rate"] == 2e-4
    short = sft_trainer(model, pairs(), {"steps": 8}).settings
    assert (short["decay_steps"], short["warmup_steps"]) == (8, 0)
    assert sft_trainer(model, pairs(), {"steps": 8, "decay_steps": 50, "warmup_steps": 3}).settings["decay_steps"] == 50
    with pytest.raises(ConfigError, match="learning_rates"):
        sft_trainer(model, pairs(), {"learning_rates": 1})
    model.attach(LORA)
    assert tuning_settings("sft", model)["learning_rate"] == 2e-3
    dpo = tuning_settings("dpo", model)
    assert dpo["learning_rate"] == 1e-4, "a twentieth of sft's: at that, answers that were learned are gone after fifty steps"
    assert dpo["steps"] == dpo["decay_steps"] == 50 and tuning_settings("dpo", model, {"learning_rate": 1})["learning_rate"] == 1


def test_it_stops_when_asked(machine):
    asked = iter(["", "", "stop"])
    reports = list(sft(model_on(machine), pairs(), live=Live(asked=lambda: next(asked)), steps=9))
    assert reports[-1].reason == "stopped" and reports[-1].step == 2
