"""The logit lens, direct logit attribution and the next-token view against a page of NumPy."""

import numpy as np
import pytest

from posttrainllm import study
from posttrainllm.errors import ConfigError, DataError
from posttrainllm.model.config import GPTConfig
from posttrainllm.study import lens as lens_module
from tests.study.by_hand import forward as by_hand
from tests.study.by_hand import made, normalised, weights_of

CONFIG = GPTConfig(layers=2, channels=24, heads=3, context=20, vocabulary=61, batch=2)
OTHER = GPTConfig(layers=2, channels=24, heads=3, context=20, vocabulary=61, batch=2, tied=False, activation="gelu", hidden=50)
TOKENS = [7, 3, 3, 60, 0, 12, 7, 3, 41, 5, 5]
NEAR = 1e-5


def softmax(x):
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


@pytest.fixture
def model(any_machine):
    return made(any_machine, CONFIG)


def seen_through(model, stream):
    weights = weights_of(model)
    return normalised(stream, weights["ln_f.weight"], weights["ln_f.bias"]) @ weights[model.config.head].T


def test_a_head_of_its_own_is_what_the_lens_and_the_parts_look_through(any_machine):
    model = made(any_machine, OTHER)
    test_the_lens_is_ln_f_and_the_unembedding_at_each_layer(model, False)
    adds = study.contributions(model, TOKENS)
    assert np.allclose(adds.contribution.sum(0), adds.logits, rtol=0, atol=1e-4)


@pytest.mark.parametrize("mid", [False, True])
def test_the_lens_is_ln_f_and_the_unembedding_at_each_layer(model, mid):
    found, there = study.logit_lens(model, TOKENS, top=3, mid=mid), by_hand(weights_of(model), model.config, TOKENS)
    names = ["embed", *(f"blocks.{layer}.{part}" for layer in range(2) for part in (("resid_mid", "resid_post") if mid else ("resid_post",)))]
    assert len(found.layers) == len(names) == len(found.loss_nats)
    for row, name in enumerate(names):
        logits = seen_through(model, there[name])
        shares = softmax(logits)
        after = np.array(TOKENS[1:])
        own = shares[np.arange(len(after)), after]
        assert np.allclose(found.probability[row, :-1], own, rtol=0, atol=NEAR)
        assert np.array_equal(found.rank[row, :-1], (shares[:-1] > own[:, None]).sum(1))
        assert np.array_equal(found.top_tokens[row], np.argsort(-logits, axis=1)[:, :3])
        assert np.allclose(found.top_probability[row], -np.sort(-shares, axis=1)[:, :3], rtol=0, atol=NEAR)
        assert np.isclose(found.loss_nats[row], -np.log(own).mean(), atol=1e-4)
    assert found.rank[0, -1] == -1 and np.isnan(found.probability[:, -1]).all(), "nothing came after the last token"


def test_the_last_row_is_what_the_model_says(model):
    """Bit for bit the logits of a plain run, and the same however few layers fit one pass."""
    rows = {}

    async def gather():
        async for name, logits in lens_module.lens_logits_async(model, lens_module.tokens_of(model, TOKENS)):
            rows[name] = logits

    def all_rows():
        rows.clear()
        lens_module.now(gather())
        return dict(rows)

    whole = all_rows()
    assert np.array_equal(whole["blocks.1"], study.run(model, TOKENS, taps="logits")["logits"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lens_module, "MOST_LENS_BYTES", 1)
        apart = all_rows()
    assert all(np.array_equal(whole[name], apart[name]) for name in whole) and len(whole) == 3


@pytest.mark.parametrize("heads", [False, True])
def test_contributions_add_up_to_the_logits(model, heads):
    found = study.contributions(model, TOKENS, position=6, targets=[0, 33, 60], heads=heads)
    logits = by_hand(weights_of(model), CONFIG, TOKENS)["logits"][6, [0, 33, 60]]
    assert np.allclose(found.logits, logits, rtol=0, atol=NEAR) and np.allclose(found.contribution.sum(0), logits, rtol=0, atol=NEAR)
    assert found.parts == ["token", "position", *_parts(heads), "ln_f bias"]


def _parts(heads):
    attention = ["{0}.0", "{0}.1", "{0}.2", "{0} attn bias"] if heads else ["{0} attn"]
    return [name.format(layer) for layer in range(2) for name in (*attention, "{0} mlp")]


def test_a_part_that_is_zeroed_contributes_what_it_did(model):
    """By hand: one MLP's output through the centred, scaled ln_f that the whole stream had."""
    weights, there = weights_of(model), by_hand(weights_of(model), CONFIG, TOKENS)
    found = study.contributions(model, TOKENS, position=-1, targets=[9])
    part, stream = there["blocks.0.mlp.out"][-1], there["blocks.1.resid_post"][-1]
    by = (part - part.mean()) / np.sqrt(stream.var() + 1e-5) * weights["ln_f.weight"] @ weights["wte.weight"][9]
    assert np.isclose(found.contribution[found.parts.index("0 mlp"), 0], by, atol=NEAR)
    assert found.position == len(TOKENS) - 1


def test_next_token_has_the_ten_likeliest_and_what_made_them_so(model):
    found = study.next_token(model, TOKENS, position=3)
    shares = softmax(by_hand(weights_of(model), CONFIG, TOKENS)["logits"][3])
    assert np.array_equal(found.tokens, np.argsort(-shares)[:10])
    assert np.allclose(found.probability, -np.sort(-shares)[:10], rtol=0, atol=NEAR)
    assert found.by_layer.shape == (3, 10) and np.allclose(found.by_layer[-1], found.probability)
    assert np.allclose(found.adds.contribution.sum(0), found.logits, rtol=0, atol=NEAR)


def test_they_print_and_travel(model):
    lens, adds, bars = study.logit_lens(model, TOKENS), study.contributions(model, TOKENS), study.next_token(model, TOKENS)
    assert "blocks.1" in str(lens) and "Loss by layer" in str(lens)
    assert str(adds).splitlines()[-1].startswith("logit") and len(str(bars).splitlines()) == 10 and "%" in str(bars)
    for result in (lens, adds, bars):
        assert all(isinstance(each, np.ndarray) and each.dtype in (np.float32, np.int32) for each in result.to_dict()["arrays"].values())


def test_what_does_not_fit_is_refused(model):
    with pytest.raises(DataError, match="a position from 0 to 10"):
        study.contributions(model, TOKENS, position=11)
    with pytest.raises(ConfigError, match="top is a whole number"):
        study.logit_lens(model, TOKENS, top=0)
    with pytest.raises(DataError, match="one text"):
        study.next_token(model, [TOKENS, TOKENS])
    assert np.isnan(study.logit_lens(model, [5]).loss_nats).all()


def test_more_tokens_are_asked_about_than_the_context_holds(any_machine):
    short = made(any_machine, GPTConfig(layers=1, channels=24, heads=3, context=8, vocabulary=61, batch=1))
    found = study.next_token(short, TOKENS[:5], top=20)
    assert found.adds.contribution.shape == (5, 20) and np.allclose(found.adds.contribution.sum(0), found.logits, atol=NEAR)
    with pytest.raises(DataError):
        study.contributions(short, TOKENS[:5], targets=[*range(20), 61])
