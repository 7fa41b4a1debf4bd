"""Preference tuning: margins rise, accuracy comes to 1, the reference is computed once and is the model before its first step."""

import math

import pytest

import posttrainllm as pt
from posttrainllm.data.pairs import Preferences
from posttrainllm.errors import ConfigError, DataError, FormatError
from posttrainllm.store.checkpoint import Checkpoint
from posttrainllm.train.state import checkpoint_of
from posttrainllm.tune import dpo as tuning
from posttrainllm.tune.dpo import PreferenceEvalReport, PreferenceStepReport, dpo, dpo_trainer, resume
from posttrainllm.tune.forgetting import ForgettingReport
from posttrainllm.tune.running import blocks, each
from posttrainllm.tune.sft import sft

from .making import CONFIG, FACTS, LORA, SHORT, corpus, model_on, pairs, preferences

BOTH = pytest.mark.parametrize("lora", [None, LORA], ids=["whole", "adapter"])
RATES = {None: 1e-3, LORA: 1e-2}


def log_probability(model, prompt, answer):
    """Of an answer and its end, from logits."""
    tokens, total = list(SHORT.ask(prompt).encode()), 0.0
    for token in SHORT.answer(answer).encode():
        logits = model.logits(tokens)
        top = max(logits)
        total += logits[token] - top - math.log(math.fsum(math.exp(x - top) for x in logits))
        tokens.append(token)
    return total


@BOTH
def test_margins_rise_and_accuracy_comes_to_one(machine, lora):
    model, examples = model_on(machine, lora, known=True), preferences()
    before = {row: [log_probability(model, row[0], each) for each in row[1:]] for row in examples.rows}
    reports = list(dpo(model, examples, steps=60, learning_rate=RATES[lora]))
    steps = [report for report in reports if isinstance(report, PreferenceStepReport)]
    evaluations = [report for report in reports if isinstance(report, PreferenceEvalReport)]
    assert steps[0].loss_nats == pytest.approx(math.log(2), abs=1e-5) and abs(steps[0].margin) < 1e-5
    assert steps[-1].loss_nats < 0.3 and steps[-1].margin > 1 and steps[-1].accuracy == 1.0
    thirds = [sum(report.margin for report in steps[at : at + 20]) for at in (0, 20, 40)]
    assert thirds == sorted(thirds)
    assert evaluations[0].accuracy == 0.0 and evaluations[-1].accuracy == 1.0, "a margin of 0 prefers nothing"
    for row, (chosen, rejected) in before.items():
        after = [log_probability(model, row[0], each) for each in row[1:]]
        assert after[0] - chosen > after[1] - rejected
    assert [report.event for report in reports[:3]] == ["eval", "step", "step"] and reports[-1].event == "stopped"
    assert steps[0].bits_per_byte is None and steps[0].tokens == CONFIG.batch * CONFIG.context


def test_margin_and_loss_of_an_evaluation_are_dpos(any_machine):
    """By hand, from logits before and after some steps."""
    model, examples = model_on(any_machine), preferences()
    before = [[log_probability(model, row[0], each) for each in row[1:]] for row in examples.rows]
    trainer = dpo_trainer(model, examples, {"steps": 6, "learning_rate": 2e-3}, beta=0.25)
    report = [r for r in each(blocks(trainer)) if r.event == "eval"][-1]
    for both, expected in zip(trainer.reference_nats, before):
        assert list(both) == pytest.approx(expected, abs=2e-4)
    margins = []
    for row, (chosen, rejected) in zip(examples.rows, before):
        after = [log_probability(model, row[0], each) for each in row[1:]]
        margins.append(0.25 * ((after[0] - chosen) - (after[1] - rejected)))
    assert report.margin == pytest.approx(sum(margins) / len(margins), abs=2e-4)
    assert report.validation_loss_nats == pytest.approx(sum(math.log1p(math.exp(-m)) for m in margins) / len(margins), abs=2e-4)
    assert report.accuracy == sum(m > 0 for m in margins) / len(margins)


def test_the_reference_is_computed_once(machine, monkeypatch):
    model, calls = model_on(machine, LORA), []
    original = tuning.PreferenceTrainer._log_probabilities

    async def counting(self, part, places):
        calls.append(len(places))
        return await original(self, part, places)

    monkeypatch.setattr(tuning.PreferenceTrainer, "_log_probabilities", counting)
    list(dpo(model, preferences(), steps=5, evaluate_every_steps=5))
    assert calls == [6, 0, 6, 6], "six rows once (the held-out part is the same), then two evaluations"


def test_after_sft_the_reference_is_the_tuned_model(machine):
    model = model_on(machine, LORA, known=True)
    list(sft(model, pairs(), steps=60, learning_rate=3e-2))
    trainer = dpo_trainer(model, preferences(), {"steps": 1})
    reports = list(each(blocks(trainer)))
    assert reports[1].loss_nats == pytest.approx(math.log(2), abs=1e-4)
    assert trainer.reference_nats[0][0] == pytest.approx(log_probability(model, *FACTS[0]), abs=0.5)
    model.strength = 0.0
    assert trainer.reference_nats[0][0] > log_probability(model, *FACTS[0]) + 5


def test_with_the_usual_settings_answers_that_sft_taught_are_kept(machine):
    def answers():
        return [model.generate(SHORT.ask(q), 16, stop=SHORT.end, temperature=0.0) for q, _ in FACTS]

    model, taught = model_on(machine, LORA, known=True), [a for _, a in FACTS]
    list(sft(model, pairs(), steps=220, learning_rate=3e-2, seed=3))
    assert answers() == taught
    adapter = model.adapter
    last = [report for report in dpo(model, preferences(), validation_fraction=0.0) if report.event == "eval"][-1]
    assert answers() == taught and last.accuracy > 0.8 and last.margin > 0.2
    model.swap(adapter)
    list(dpo(model, preferences(), learning_rate=3e-2))
    assert answers() != taught, "at sft's rate here they are not"


@BOTH
def test_a_run_goes_on_exactly(machine, lora):
    def steps(trainer, until):
        return [(r.step, r.loss_nats, r.margin) for r in each(blocks(trainer, until=until)) if r.event == "step"]

    whole = dpo_trainer(model_on(machine, lora), preferences(), {"steps": 9})
    expected, sha = steps(whole, 9), whole.model.weights_sha256()
    first = dpo_trainer(model_on(machine, lora), preferences(), {"steps": 9})
    got = steps(first, 4)
    saved = Checkpoint.from_safetensors(checkpoint_of(first, "tastes").to_bytes())
    live = model_on(machine, lora)
    again = resume(saved, preferences(), model=live)
    assert again.beta == 0.1 and got + steps(again, 9) == expected and live.weights_sha256() == sha
    assert [row["margin"] for row in again.history] == [margin for _, _, margin in expected]


def test_a_save_of_another_kind_is_refused(machine):
    other = checkpoint_of(pt.Trainer(model_on(machine), pairs(), {"steps": 1}), "facts")
    with pytest.raises(FormatError, match="beta and the reference of 6 preferences"):
        resume(other, preferences(), model=model_on(machine))
    trainer = dpo_trainer(model_on(machine), preferences(), {"steps": 2})
    list(each(blocks(trainer)))
    saved = checkpoint_of(trainer, "tastes")
    saved.schedule["reference_nats"] = saved.schedule["reference_nats"][:-2]
    with pytest.raises(FormatError, match="beta and the reference"):
        resume(saved, preferences(), model=model_on(machine))
    saved = checkpoint_of(trainer, "tastes")
    with pytest.raises(DataError, match="goes on with the text it began with"):
        resume(saved, Preferences.from_list([(q, a, "no") for q, a in FACTS], "tastes", SHORT).split_at(0.0), model=model_on(machine))


def test_a_smaller_beta_strays_further(machine):
    def strayed(beta):
        model = model_on(machine, known=True)
        before = [log_probability(model, *fact) for fact in FACTS]
        list(dpo(model, preferences(), beta, steps=80, learning_rate=1e-3))
        return sum(abs(log_probability(model, *fact) - each) for fact, each in zip(FACTS, before))

    assert strayed(0.02) > 1.5 * strayed(0.5)


@pytest.mark.parametrize("beta", [0, -1, math.nan, math.inf, True, "0.1", 1e4])
def test_beta_has_a_range(machine, beta):
    with pytest.raises(ConfigError, match="beta is a number"):
        dpo_trainer(model_on(machine), preferences(), beta=beta)


@pytest.mark.parametrize("batch", [1, 3, 8])
def test_any_batch_will_do(machine, batch):
    model = model_on(machine, config=CONFIG.with_batch(batch))
    reports = [r for r in dpo(model, preferences(), steps=2) if isinstance(r, PreferenceStepReport)]
    assert reports[0].tokens == 2 * max(1, batch // 2) * CONFIG.context and reports[1].margin != 0


def test_pairs_teach_no_preference_and_preferences_no_answers(machine):
    """Pairs lack the second answer, and sft would learn the rejected ones as well."""
    model = model_on(machine)
    with pytest.raises(ConfigError, match="dpo: it learns from pt.Preferences: .*; Pairs came; give pt.sft"):
        pt.dpo(model, pairs())
    with pytest.raises(ConfigError, match="sft: it learns from pt.Pairs: .*; Preferences came; give pt.dpo"):
        pt.sft(model, preferences())
    with pytest.raises(ConfigError, match="Corpus came"):
        pt.sft(model, corpus())


def test_rows_alike_when_cut_are_left_out_and_the_rest_is_learned(machine):
    """What differs after the context is out of sight: such a row's margin would stay 0 and hide in the mean."""
    same = "the hat on the cat on the mat"
    rows = [("cat", "flat", "one"), ("hat", same + "s", same + "t"), ("rat", "a vat", "on me")]
    model = model_on(machine, known=True)
    trainer = dpo_trainer(model, Preferences.from_list(rows, "tastes", SHORT).split_at(0.0), {"steps": 30, "learning_rate": 1e-3, "validation_fraction": 0.0})
    reports = [report for report in each(blocks(trainer)) if report.event == "eval"]
    assert reports[-1].accuracy == 1.0 and trainer.reference_nats[1] == (0.0, 0.0) and trainer.reference_nats[2][0] < 0
    saved = Checkpoint.from_safetensors(checkpoint_of(trainer, "tastes").to_bytes())
    assert resume(saved, trainer.corpus, model=model_on(machine)).reference_nats == trainer.reference_nats


def test_what_is_forgotten_is_told(machine):
    model, text = model_on(machine), corpus()
    reports = list(dpo(model, preferences(), base=text, steps=3))
    first, last = [report for report in reports if isinstance(report, ForgettingReport)]
    assert reports[0] is first and last.after_nats == pt.text_loss(model, text).loss_nats != first.before_nats


def test_a_number_that_is_not_finite_keeps_the_weights(machine):
    model = model_on(machine)
    trainer = dpo_trainer(model, preferences(), {"steps": 4})
    lists = blocks(trainer)
    reports = each(lists)
    sha, cursor = model.weights_sha256(), trainer.batches.cursor
    assert [next(reports).event for _ in range(3)] == ["eval", "step", "step"]
    assert model.weights_sha256() != sha
    trainer.reference_nats = [(math.nan, 0.0)] * len(FACTS)
    last = list(reports)[-1]
    assert (last.reason, last.step) == ("nonfinite", 0), "it went back to the last state with a finite evaluation"
    assert model.weights_sha256() == sha and trainer.batches.cursor == cursor
