"""Against TransformerLens on the same weights (tests/golden/study.npz, made by make_study.py, float64).

The judge must agree to 1e-12 where nothing was rounded. Elsewhere a quantity may be off by its bound from bounds.py, which is derived from
what each op may err. What was put in is itself of a pass that may be off: then the bounds of both passes count, as squares.
"""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from posttrainllm import study
from posttrainllm.study.effects import ablate
from tests.helpers.machines import open_once
from tests.study.bounds import Bounds
from tests.study.by_hand import forward as by_hand
from tests.study.by_hand import weights_of
from tests.study.golden import ANSWERS, CONFIG, NAMES, POSITION, SOURCE, TOKENS, made_here

FILE = Path(__file__).resolve().parents[1] / "golden" / "study.npz"
EXACT = 1e-12  # of the largest number; measured: 1.3e-15
GOLDEN = dict(np.load(FILE))
ABOUT = json.loads(str(GOLDEN.pop("about")))


@pytest.fixture
def model(any_machine):
    return made_here(any_machine)


@pytest.fixture(scope="module")
def weights():
    return weights_of(made_here(open_once("cpu")))


@pytest.fixture(scope="module")
def bounds(weights):
    return Bounds(weights, CONFIG, TOKENS)


def check(model, got, expected, bound, put_in=False, label=""):
    """No further from TransformerLens than the bound; on the judge to EXACT, but where activations in single precision were put in."""
    finite = np.isfinite(expected)
    got = np.asarray(got, np.float64)
    assert got.shape == expected.shape and np.array_equal(finite | (expected < -1e30), np.isfinite(got) | (got < -1e30)), label
    there = finite & (expected > -1e30)
    error, largest = np.abs(got[there] - expected[there]).max(), np.abs(expected[there]).max()
    if model.machine.name == "reference" and not put_in:
        bound = EXACT * largest
    assert error <= bound, f"{label}: off by {error:.3g}, allowed {bound:.3g}, the largest is {largest:.3g}"


def test_the_weights_are_those_it_was_made_from(model):
    there = hashlib.sha256(b"".join(model.weight_bytes(name) for name in model.weight_names())).hexdigest()
    assert there == ABOUT["weights_sha256"] and ABOUT["transformer_lens"].startswith("4.")


def test_the_bounds_let_no_error_through(bounds, weights):
    """Far below what a slip makes: another form of GELU, scores a thousandth too large, the gain of ln_1 half a thousandth too small."""
    assert bounds.address("logits") < 2e-5 * np.abs(GOLDEN["logits"]).max()
    exact = replace(CONFIG, activation="gelu")
    slips = [by_hand(weights, exact, TOKENS), by_hand(weights, CONFIG, TOKENS, {"blocks.0.attn.scores": lambda there: 1.001 * there})]
    gains = {name: each * np.float64((1 - 5e-4) if name.endswith("ln_1.weight") else 1) for name, each in weights.items()}
    slips.append(by_hand(gains, CONFIG, TOKENS))
    for slip in slips:
        assert np.abs(slip["logits"] - GOLDEN["logits"]).max() > 2 * bounds.address("logits")


def test_every_activation_it_names(model, bounds):
    found = study.run(model, TOKENS, taps=[*(f"blocks.*.{name}" for name in NAMES), "ln_f", "logits"])
    assert len(found) == CONFIG.layers * len(NAMES) + 2
    for address, array in found.items():
        check(model, array, GOLDEN[address], bounds.address(address), label=address)


def test_its_logit_lens(model, bounds):
    """accumulated_resid, with the stream's middles, through ln_final and the unembedding."""
    rows = {"0_pre": "embed", "0_mid": "0 attn", "1_pre": "blocks.0", "1_mid": "1 attn", "final_post": "blocks.1"}
    ours = study.logit_lens(model, TOKENS, top=1, mid=True)
    for golden, name in zip(GOLDEN["lens"], (rows[each] for each in ABOUT["lens"]), strict=True):
        row = ours.layers.index(name)
        powers = np.exp(golden - golden.max(1, keepdims=True))
        shares = powers / powers.sum(1, keepdims=True)
        after = np.array(TOKENS[1:])
        own = shares[np.arange(len(after)), after]
        stream = {"embed": "embed", "0 attn": "blocks.0.resid_mid", "1 attn": "blocks.1.resid_mid"}.get(name, f"{name}.resid_post")
        check(model, ours.probability[row, :-1], own, bounds.lens(stream) / 2, label=name)  # a share moves by at most half of what logits do
        assert np.array_equal(ours.rank[row, :-1], (shares[:-1] > own[:, None]).sum(1))
        assert np.array_equal(ours.top_tokens[row, :, 0], golden.argmax(1))


def attribution(weights, heads=False):
    """What `contributions` computes, of what stands everywhere: parts by ANSWERS."""
    head = weights[CONFIG.head][ANSWERS].T

    def of(found):
        stream = found["blocks.1.resid_post"][POSITION]
        parts = [found["embed"][POSITION]]
        for layer in range(CONFIG.layers):
            parts += list(found[f"blocks.{layer}.attn.result"][POSITION]) if heads else [found[f"blocks.{layer}.attn.out"][POSITION]]
            parts.append(found[f"blocks.{layer}.mlp.out"][POSITION])
        parts = np.array(parts)
        return (parts - parts.mean(1, keepdims=True)) / np.sqrt(stream.var() + 1e-5) * weights["ln_f.weight"] @ head

    return of


def test_its_direct_logit_attribution(model, bounds, weights):
    """decompose_resid and stack_head_results through the stream's own ln_final scale."""
    ours = study.contributions(model, TOKENS, position=POSITION, targets=ANSWERS)
    names = {"embed": "token", "pos_embed": "position"} | {f"{n}_{part}_out": f"{n} {part}" for n in (0, 1) for part in ("attn", "mlp")}
    rows = [ours.parts.index(names[str(each)]) for each in GOLDEN["parts"]]
    check(model, ours.contribution[rows], GOLDEN["attribution"], bounds.of(attribution(weights)), label="parts")
    heads = study.contributions(model, TOKENS, position=POSITION, targets=ANSWERS, heads=True)
    rows = [heads.parts.index(f"{str(each)[1]}.{str(each)[3]}") for each in GOLDEN["parts by head"]]
    check(model, heads.contribution[rows], GOLDEN["attribution by head"], bounds.of(attribution(weights, True)), label="heads")


def difference(name):
    return GOLDEN[name][ANSWERS[0]] - GOLDEN[name][ANSWERS[1]]


def test_its_ablations_and_patches(model, bounds, weights):
    """The bound of a map is taken from the run without changes: what is put in ends the errors of before, but may be off itself as much as
    where it was taken from; so the bound of that pass counts too."""
    how = {"position": POSITION, "answer": ANSWERS[0], "other": ANSWERS[1]}

    def differs(found):
        return found["logits"][POSITION, ANSWERS[0]] - found["logits"][POSITION, ANSWERS[1]]

    both = [each.of(differs) for each in (bounds, Bounds(weights, CONFIG, SOURCE))]
    bound = float(np.hypot(*both))
    maps = {
        "zero head": ablate(model, TOKENS, "heads", "zero", **how),
        "patch head": study.patch(model, TOKENS, SOURCE, "heads", **how),
        "patch residual": study.patch(model, TOKENS, SOURCE, "residual", **how),
    }
    for name, found in maps.items():
        columns = found.logit_difference.shape[1]
        golden = np.array([[difference(f"{name} {layer}.{column}") for column in range(columns)] for layer in range(CONFIG.layers)])
        check(model, found.logit_difference, golden, bound, put_in=True, label=name)
        assert np.abs(golden - difference_before()).max() > 0.05, "what changes nothing shows nothing"
    means = ablate(model, TOKENS, "mlps", "mean", **how).logit_difference[:, 0]
    check(model, means, np.array([difference(f"mean mlp {layer}") for layer in range(CONFIG.layers)]), bound, put_in=True, label="mean mlp")


def difference_before():
    there = GOLDEN["logits"][POSITION]
    return there[ANSWERS[0]] - there[ANSWERS[1]]
