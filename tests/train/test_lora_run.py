"""The run of an adapter: it trains the adapter alone, and comes back exactly beside its base, and beside no other."""

from dataclasses import replace

import pytest

from posttrainllm.configs import load
from posttrainllm.data.corpus import Corpus
from posttrainllm.errors import ConfigError, FormatError
from posttrainllm.model.adapted import lora
from posttrainllm.model.lora import LoRAConfig
from posttrainllm.store.checkpoint import Checkpoint, weights_sha256
from posttrainllm.train.reports import EvalReport, SampleReport, SavedReport, StepReport
from posttrainllm.train.state import adapter_of, check_run, checkpoint_of, model_of, trainer_of, weights_checkpoint
from posttrainllm.train.trainer import Live, Trainer
from tests.helpers.machines import open_once

from .making import QUICK, TINY, model_on, text

STEPS = 100
SETTINGS = QUICK | {"steps": STEPS, "evaluate_every_steps": 25}


@pytest.fixture
def base(machine):
    return model_on(machine)


def trainer_of_adapter(base, seed=3, **how):
    return Trainer(lora(base, machine=open_once("cpu-1"), seed=seed, **how), text(), SETTINGS)


def state(model):
    """Adapter and moments."""
    return [model.weight_bytes(name, region) for region in ("params", "m", "v") for name in model.trainable_names()]


def saved(trainer, name="tuned"):
    return Checkpoint.from_safetensors(checkpoint_of(trainer, name).to_bytes())


@pytest.fixture
def halfway(base):
    """(checkpoint of step 50, state after 100 steps in one go, that run's history)."""
    straight = trainer_of_adapter(base)
    list(straight.run())
    wanted, history = state(straight.model), straight.history
    first = trainer_of_adapter(base)
    list(first.run(STEPS // 2))
    return saved(first), wanted, history


def losses(history):
    return [(row["step"], row["loss_nats"], row.get("validation_loss_nats")) for row in history]


@pytest.mark.parametrize("given", ["live base", "saved base", "live tuned model", "one of another alpha"])
def test_a_hundred_steps_are_fifty_and_fifty(base, halfway, given):
    checkpoint, wanted, history = halfway
    if given == "live base":
        how = {"base": base, "machine": open_once("cpu-1")}
    elif given == "saved base":
        how = {"base": Checkpoint.from_safetensors(weights_checkpoint(base, "base").to_bytes()), "machine": open_once("cpu-1")}
    else:
        alpha = None if given == "live tuned model" else 20
        how = {"model": lora(base, machine=open_once("cpu-1"), seed=99, alpha=alpha)}
    resumed = trainer_of(checkpoint, text(), **how)
    assert resumed.step == STEPS // 2 and state(resumed.model) != wanted
    list(resumed.run())
    assert state(resumed.model) == wanted and losses(resumed.history) == losses(history)


def test_the_file_holds_the_adapter_alone(base, halfway):
    checkpoint, *_ = halfway
    assert checkpoint.parameters == 2 * 2 * 16 * 4 and checkpoint.resumable
    assert checkpoint.weights.keys() == checkpoint.m.keys() == checkpoint.v.keys()
    assert checkpoint.adapter == {"name": "tuned", "lora": LoRAConfig.of().to_dict(), "base_sha256": base.weights_sha256()}
    adapter = adapter_of(checkpoint)
    assert adapter.base_sha256 == base.weights_sha256() == weights_sha256(weights_checkpoint(base, "base").weights)
    assert adapter_of(weights_checkpoint(base, "base")) is None


def test_the_base_is_untouched(base, halfway):
    before = model_on(open_once("cpu-1")).weights_sha256()
    assert base.weights_sha256() == before


def test_another_base_is_refused_with_a_sentence(base, halfway):
    checkpoint, *_ = halfway
    for seed, config, message in (
        (2, TINY, "made on the weights with sha256"),
        (1, replace(TINY, layers=2), "changes a model of 1 layers"),
    ):
        other = model_on(open_once("cpu-1"), config, seed)
        for given in (other, weights_checkpoint(other, "other")):
            with pytest.raises(ConfigError, match=message):
                trainer_of(checkpoint, text(), base=given, machine=base.machine)
    with pytest.raises(ConfigError, match="comes with the model it changes; it came alone; give the base, whose weights have sha256"):
        trainer_of(checkpoint, text())
    assert model_of(checkpoint, base=weights_checkpoint(other := model_on(open_once("cpu-1"), seed=2), "b"), machine=base.machine, any_base=True)
    assert other.lora is None


def test_a_live_model_must_have_the_adapters_shape(base, halfway):
    checkpoint, *_ = halfway
    for model in (base, lora(base, machine=open_once("cpu-1"), rank=2)):
        with pytest.raises(ConfigError, match="an adapter of {'rank': 4"):
            trainer_of(checkpoint, text(), model=model)
    tuned = lora(base, machine=open_once("cpu-1"))
    whole = Trainer(base, text(), SETTINGS)
    with pytest.raises(ConfigError, match="the live model has the run's sizes"):
        trainer_of(saved(whole), text(), model=tuned)
    other = lora(model_on(base.machine, seed=5), machine=open_once("cpu-1"))
    with pytest.raises(ConfigError, match="made on the weights with sha256"):
        trainer_of(checkpoint, text(), model=other)


SPOILT = {
    "not an object of three": {"name": "x"},
    "a rank that is none": {"name": "x", "lora": LoRAConfig.of().to_dict() | {"rank": 0}, "base_sha256": ""},
    "another shape": {"name": "x", "lora": LoRAConfig.of(rank=3).to_dict(), "base_sha256": ""},
    "other targets": {"name": "x", "lora": LoRAConfig.of(targets=["mlp.fc"]).to_dict(), "base_sha256": ""},
    "none": {},
}


@pytest.mark.parametrize("what", SPOILT)
def test_a_file_that_does_not_hold_together_is_refused(base, halfway, what):
    checkpoint = replace(halfway[0], adapter=SPOILT[what])
    with pytest.raises(FormatError):
        check_run(checkpoint, text())
    with pytest.raises(FormatError):
        trainer_of(checkpoint, text(), base=base)


def test_a_saved_run_opens_as_a_tuned_model(base):
    """One allocation, no second copy: a new adapter, or one that was trained."""
    checkpoint = Checkpoint.from_safetensors(weights_checkpoint(base, "base").to_bytes())
    fresh = model_of(checkpoint, True, lora=LoRAConfig.of(), machine=open_once("cpu-1"), seed=3)
    tokens = list(range(8))
    assert fresh.logits(tokens) == base.logits(tokens) and fresh.base_sha256() == base.weights_sha256()
    trainer = Trainer(fresh, text(), SETTINGS)
    list(trainer.run(10))
    adapter, tuned = fresh.adapter, bytes(fresh.logits(tokens))
    again = model_of(checkpoint, lora=adapter, machine=open_once("cpu-1"))
    assert bytes(again.logits(tokens)) == tuned and again.adapter == adapter
    with pytest.raises(ConfigError, match="made on the weights"):
        model_of(Checkpoint.from_safetensors(weights_checkpoint(model_on(base.machine, seed=8), "b").to_bytes()), lora=adapter)


def test_everything_of_a_trainer_goes_on_working(base):
    """Steps, evaluations, samples and saves, on another text than the base's."""
    sums = "".join(f"{a} plus {b} is {a + b}. " for a in range(12) for b in range(12))
    list(Trainer(base, text(), SETTINGS).run())
    tuned, kept = lora(base, machine=open_once("cpu-1"), targets=("attn.qkv", "mlp.fc", "mlp.proj")), []
    live = Live(sample_seconds=1e-6, sample_tokens=5, save_seconds=1e-6, save=lambda trainer: (kept.append(saved(trainer)) or "here", 1))
    trainer = Trainer(tuned, Corpus.from_text(sums, "sums"), SETTINGS | {"learning_rate": 0.03})
    kinds = {type(report) for report in trainer.run(50, live)}
    assert {StepReport, EvalReport, SampleReport, SavedReport} <= kinds
    rows = [row["loss_nats"] for row in trainer.history]
    assert sum(rows[-5:]) < 0.9 * sum(rows[:5]) and len(kept) > 10 and kept[-1].step == 50


def test_defaults_of_an_adapters_training_are_its_own(base):
    trainer = Trainer(lora(base, machine=open_once("cpu-1")), text())
    own = load("lora")["training"]
    assert {name: trainer.settings[name] for name in own} == own and own["weight_decay"] == 0.0
    assert Trainer(lora(base, machine=open_once("cpu-1")), text(), {"weight_decay": 0.2}).settings["weight_decay"] == 0.2
    assert Trainer(base, text()).settings["weight_decay"] == load("training")["weight_decay"]
