"""Against TransformerLens on the same weights (tests/golden/study.npz, made by make_study.py, float64).

The judge must agree to 1e-12 where nothing was rounded, and to single precision where activations were put in. Another engine may
stray as far as single precision does through two blocks.
"""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from posttrainllm import study
from posttrainllm.study.effects import ablate
from tests.study.golden import ANSWERS, CONFIG, NAMES, POSITION, SOURCE, TOKENS, made_here

FILE = Path(__file__).resolve().parents[1] / "golden" / "study.npz"
EPS = 2.0**-23
EXACT, SINGLE = 1e-12, 20 * EPS  # of the largest number; measured: 1.3e-15 and 4.8 eps
GOLDEN = dict(np.load(FILE))
ABOUT = json.loads(str(GOLDEN.pop("about")))


@pytest.fixture
def model(any_machine):
    return made_here(any_machine)


def check(model, got, expected, put_in=False, label="", largest=0.0):
    exact = model.machine.name == "reference" and not put_in
    finite = np.isfinite(expected)
    got = np.asarray(got, np.float64)
    assert got.shape == expected.shape and np.array_equal(finite | (expected < -1e30), np.isfinite(got) | (got < -1e30)), label
    there = finite & (expected > -1e30)
    error = np.abs(got[there] - expected[there]).max() / max(largest, np.abs(expected[there]).max())
    assert error <= (EXACT if exact else SINGLE), f"{label}: off by {error:.3g} of the largest"


def test_the_weights_are_those_it_was_made_from(model):
    there = hashlib.sha256(b"".join(model.weight_bytes(name) for name in model.weight_names())).hexdigest()
    assert there == ABOUT["weights_sha256"] and ABOUT["transformer_lens"].startswith("4.")


def test_every_activation_it_names(model):
    found = study.run(model, TOKENS, taps=[*(f"blocks.*.{name}" for name in NAMES), "ln_f", "logits"])
    assert len(found) == CONFIG.layers * len(NAMES) + 2
    for address, array in found.items():
        check(model, array, GOLDEN[address], label=address)


def test_its_logit_lens(model):
    """accumulated_resid, with the stream's middles, through ln_final and the unembedding."""
    rows = {"0_pre": "embed", "0_mid": "0 attn", "1_pre": "blocks.0", "1_mid": "1 attn", "final_post": "blocks.1"}
    ours = study.logit_lens(model, TOKENS, top=1, mid=True)
    for golden, name in zip(GOLDEN["lens"], (rows[each] for each in ABOUT["lens"]), strict=True):
        row = ours.layers.index(name)
        powers = np.exp(golden - golden.max(1, keepdims=True))
        shares = powers / powers.sum(1, keepdims=True)
        after = np.array(TOKENS[1:])
        own = shares[np.arange(len(after)), after]
        check(model, ours.probability[row, :-1], own, label=name)
        assert np.array_equal(ours.rank[row, :-1], (shares[:-1] > own[:, None]).sum(1))
        assert np.array_equal(ours.top_tokens[row, :, 0], golden.argmax(1))


def test_its_direct_logit_attribution(model):
    """decompose_resid and stack_head_results through the stream's own ln_final scale."""
    ours = study.contributions(model, TOKENS, position=POSITION, targets=ANSWERS)
    names = {"embed": "token", "pos_embed": "position"} | {f"{n}_{part}_out": f"{n} {part}" for n in (0, 1) for part in ("attn", "mlp")}
    rows = [ours.parts.index(names[str(each)]) for each in GOLDEN["parts"]]
    check(model, ours.contribution[rows], GOLDEN["attribution"])
    heads = study.contributions(model, TOKENS, position=POSITION, targets=ANSWERS, heads=True)
    rows = [heads.parts.index(f"{str(each)[1]}.{str(each)[3]}") for each in GOLDEN["parts by head"]]
    check(model, heads.contribution[rows], GOLDEN["attribution by head"])


def difference(name):
    return GOLDEN[name][ANSWERS[0]] - GOLDEN[name][ANSWERS[1]]


def test_its_ablations_and_patches(model):
    how = {"position": POSITION, "answer": ANSWERS[0], "other": ANSWERS[1]}
    largest = np.abs(GOLDEN["logits"]).max()  # a difference is as exact as what it is of
    maps = {
        "zero head": ablate(model, TOKENS, "heads", "zero", **how),
        "patch head": study.patch(model, TOKENS, SOURCE, "heads", **how),
        "patch residual": study.patch(model, TOKENS, SOURCE, "residual", **how),
    }
    for name, found in maps.items():
        columns = found.logit_difference.shape[1]
        golden = np.array([[difference(f"{name} {layer}.{column}") for column in range(columns)] for layer in range(CONFIG.layers)])
        check(model, found.logit_difference, golden, put_in=True, label=name, largest=largest)
        assert np.abs(golden - difference_before()).max() > 0.05, "what changes nothing shows nothing"
    means = ablate(model, TOKENS, "mlps", "mean", **how).logit_difference[:, 0]
    check(model, means, np.array([difference(f"mean mlp {layer}") for layer in range(CONFIG.layers)]), put_in=True, label="mean mlp", largest=largest)


def difference_before():
    there = GOLDEN["logits"][POSITION]
    return there[ANSWERS[0]] - there[ANSWERS[1]]
