"""Recomputed blocks and batches in parts on a GPU: the same bits where the order of sums is the same, also with many steps under way."""

import numpy as np
import pytest
from posttrainllm.data.corpus import Corpus
from posttrainllm.data.pairs import Pairs
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.live import GPT
from posttrainllm.model.lora import LoRAConfig
from posttrainllm.model.program import Program
from posttrainllm.model.saving import PLAIN, Saving
from posttrainllm.train import ahead
from posttrainllm.train.reports import StepReport
from posttrainllm.train.trainer import Trainer

pytestmark = pytest.mark.native_only(reason="wgpu-py drives the GPU here")
CONFIG = GPTConfig(layers=2, channels=16, heads=2, context=16, vocabulary=256, batch=4)
TEXT = Corpus("hamlet", b"To be, or not to be, that is the question. " * 300)
SETTINGS = {"steps": 12, "warmup_steps": 3, "evaluate_every_steps": 6, "evaluation_tokens": 128, "learning_rate": 3e-3}


def trainer_on(machine, saving, lora=None, corpus=TEXT, **settings):
    model = GPT(CONFIG, machine, Program(CONFIG, True, lora, saving))
    model.initialise(42)
    return Trainer(model, corpus, SETTINGS | settings)


def numbers(reports):
    return [(each.step, each.loss_nats, each.gradient_norm) for each in reports if isinstance(each, StepReport)]


@pytest.mark.parametrize("lora", [None, LoRAConfig(2, 4.0, ("attn.q", "mlp.proj"))], ids=["plain", "lora"])
def test_recomputed_blocks_change_no_bit(open_gpu, lora):
    plain, again = trainer_on(open_gpu(), PLAIN, lora), trainer_on(open_gpu(), Saving(recompute=2), lora)
    assert numbers(plain.run()) == numbers(again.run())
    assert plain.model.weights_sha256() == again.model.weights_sha256()


@pytest.mark.parametrize("saving", [Saving(2), Saving(4, 1), Saving(2, 0, "bf16")], ids=str)
def test_parts_in_blocks_of_steps_are_the_parts_of_single_steps(open_gpu, monkeypatch, saving):
    """Tokens, targets and shares of every part travel in a row; every part's loss comes back."""
    monkeypatch.setattr(ahead, "BLOCK_SECONDS", 1e9)
    monkeypatch.setattr(ahead, "AHEAD_SECONDS", 1e9)
    one, many = trainer_on(open_gpu(), saving), trainer_on(open_gpu(), saving)
    alone = [one.train_step() for _ in range(12)]
    assert numbers(alone) == numbers(many.run()) and many.ahead and many._ahead._block > 1
    assert one.model.weights_sha256() == many.model.weights_sha256()


def test_parts_learn_what_the_whole_learns(open_gpu):
    """Responses alone count, unevenly over the parts. Sums round otherwise, and twelve steps carry that on: a thousandth of a nat."""
    pairs = Pairs.from_list([(f"{n}", "x" * (1 + n % 9)) for n in range(40)])
    whole = numbers(trainer_on(open_gpu(), PLAIN, corpus=pairs).run())
    parts = numbers(trainer_on(open_gpu(), Saving(4), corpus=pairs).run())
    assert np.abs(np.array(whole) - np.array(parts)).max() < 1e-3 and whole != parts
