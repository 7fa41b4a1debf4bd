"""Adapters through the real peft: files of ours load there and give the same logits, and files that it saved load here.

Opt-in: it needs torch, transformers and peft, which the project's own environment leaves out for their size. In one that has them,
    PYTHONPATH=pysrc python -m pytest tests/store/test_peft_live.py
The rest of the suite has what they said in tests/golden/lora.npz.
"""

import numpy as np
import pytest

for module in ("torch", "transformers", "peft"):
    pytest.importorskip(module, reason="opt-in: needs torch, transformers and peft; tests/golden/lora.npz holds what they say")

import torch

from posttrainllm.backends.reference import ReferenceMachine
from posttrainllm.model.lora import LoRAConfig
from posttrainllm.store.peft import CONFIG as PEFT_CONFIG
from posttrainllm.store.peft import WEIGHTS, from_files, load
from tests.golden.make_golden import CONFIG
from tests.golden.make_lora_golden import random_adapter
from tests.helpers.models import Model, batch, recipe
from tests.helpers.peft_models import PeftModel, gpt2, gradients, logits_and_loss
from tests.store.test_peft import TARGETS

TOKENS, TARGET_TOKENS = batch(CONFIG, 0)


@pytest.fixture(scope="module")
def base():
    return Model(ReferenceMachine(), CONFIG).weights()


@pytest.mark.parametrize("rslora", [False, True])
@pytest.mark.parametrize("targets", TARGETS.values(), ids=TARGETS)
def test_peft_and_we_say_the_same(base, targets, rslora, tmp_path):
    one = random_adapter(LoRAConfig(3, 5, targets, rslora), 4)
    one.save(tmp_path / "ours")
    theirs = PeftModel.from_pretrained(gpt2(CONFIG, base), tmp_path / "ours", is_trainable=True).double()
    logits, loss = logits_and_loss(theirs, TOKENS, TARGET_TOKENS)
    loss.backward()
    ours = Model(ReferenceMachine(), CONFIG, adapter=one)
    own_logits = ours.evaluate(TOKENS, TARGET_TOKENS)[2]
    assert np.abs(own_logits - logits.detach().numpy()).max() < 1e-12 * np.abs(own_logits).max()
    plain = logits_and_loss(gpt2(CONFIG, base), TOKENS, TARGET_TOKENS)[0].detach().numpy()
    assert np.abs(own_logits - plain).max() > 0.001
    ours.step(TOKENS, TARGET_TOKENS, recipe(1, 0.0))
    own = ours.gradients()
    for name, expected in gradients(theirs, one).items():
        assert np.abs(own[name] - expected).max() < 1e-11 * np.abs(expected).max(), name
    theirs.float().save_pretrained(tmp_path / "theirs")
    again = from_files((tmp_path / "theirs" / WEIGHTS).read_bytes(), (tmp_path / "theirs" / PEFT_CONFIG).read_bytes())
    assert again.weights == one.weights and again.config.shape == one.config.shape
    assert again.config.scaling == pytest.approx(one.config.scaling, rel=1e-14)


def test_peft_merges_to_the_same_model(base, tmp_path):
    one = random_adapter(LoRAConfig.of(), 5)
    one.save(tmp_path)
    merged = PeftModel.from_pretrained(gpt2(CONFIG, base), tmp_path).merge_and_unload()
    expected = logits_and_loss(merged, TOKENS, TARGET_TOKENS)[0].detach().numpy()
    got = Model(ReferenceMachine(), CONFIG, adapter=load(tmp_path)).evaluate(TOKENS, TARGET_TOKENS)[2]
    assert np.abs(got - expected).max() < 1e-6 * np.abs(expected).max()
    assert torch.is_tensor(merged.transformer.wte.weight)
