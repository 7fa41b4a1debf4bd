"""Sparse autoencoders: planted directions are found, files are SAELens', and what stands in for an activation is judged by the loss."""

import json
from pathlib import Path

import numpy as np
import pytest

from posttrainllm import study
from posttrainllm.errors import ConfigError, DataError, FormatError, ShapeError
from posttrainllm.model.config import GPTConfig
from posttrainllm.study.sae import CONFIG as SETTINGS
from posttrainllm.study.sae import WEIGHTS, SparseAutoencoder, sparse, their_name
from posttrainllm.study.sae_engine import Coder, Products
from posttrainllm.study.sae_train import SAESettings, SAETrainer, gradients
from posttrainllm.waiting import now
from tests.study.by_hand import made
from tests.study.golden import small

PLANTED, WIDTH, ACTIVE = 64, 32, 3
GOLDEN = dict(np.load(Path(__file__).resolve().parents[1] / "golden" / "sae.npz"))
CONFIG = GPTConfig(layers=2, channels=24, heads=3, context=20, vocabulary=61, batch=2)
TEXT = np.arange(400) * 7 % 61


def planted(seed=0, rows=20_000):
    """(directions [G,C] of length 1, rows [N,C]): each row the sum of three of them, by 0.5 to 1.5."""
    rng = np.random.default_rng(seed)
    directions = rng.standard_normal((PLANTED, WIDTH))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    chosen = np.argsort(rng.random((rows, PLANTED)), axis=1)[:, :ACTIVE]
    weights = np.zeros((rows, PLANTED))
    np.put_along_axis(weights, chosen, rng.uniform(0.5, 1.5, (rows, ACTIVE)), 1)
    return directions, (weights @ directions).astype(np.float32)


def found(directions, autoencoder):
    """Of each planted direction the largest cosine with a row of the decoder."""
    rows = autoencoder.decoder / np.linalg.norm(autoencoder.decoder, axis=1, keepdims=True)
    return (directions @ rows.T).max(1)


def settings(**changes):
    return SAESettings.of(**{"features": 96, "k": ACTIVE, "steps": 1200, "batch": 512, "learning_rate": 0.003, "resample_every_steps": 150} | changes)


def trained(rows, **changes):
    trainer = SAETrainer(rows, settings(**changes), "blocks.0.resid_post")
    return trainer, list(trainer.run())


@pytest.mark.parametrize(("kind", "l1"), [("topk", 0.0), ("l1", 1.0)])
def test_planted_directions_are_found(kind, l1):
    """Mean max cosine at least 0.95 after training; far below before."""
    directions, rows = planted()
    assert found(directions, SAETrainer(rows, settings()).autoencoder).mean() < 0.6
    trainer, reports = trained(rows, kind=kind, l1=l1)
    cosines = found(directions, trainer.autoencoder)
    assert cosines.mean() >= 0.95, cosines.mean()
    assert (cosines > 0.9).mean() > 0.9
    last = reports[-1]
    assert last.step == last.steps == 1200 and last.explained > 0.85 and "L0" in str(last)
    if kind == "topk":
        assert last.l0 <= ACTIVE + 1e-6


def test_no_directions_are_found_in_noise():
    directions, rows = planted()
    noise = np.random.default_rng(1).standard_normal(rows.shape).astype(np.float32)
    trainer, _ = trained(noise, steps=300)
    assert found(directions, trainer.autoencoder).mean() < 0.75


def test_a_penalty_makes_fewer_features_fire():
    _, rows = planted()
    few, many = (trained(rows, kind="l1", l1=l1, steps=400)[1][-1].l0 for l1 in (2.0, 0.1))
    assert few < 0.6 * many


def test_a_dead_feature_is_made_anew_and_lives():
    _, rows = planted()
    trainer = SAETrainer(rows, settings(steps=400, resample_every_steps=100))
    trainer._weights["encoder_bias"][:40] = -1e3  # never fires, and its gradient is zero
    reports = list(trainer.run())
    assert reports[1].resampled >= 40 and reports[-1].dead < 0.2
    stuck = SAETrainer(rows, settings(steps=400, resample_every_steps=500))
    stuck._weights["encoder_bias"][:40] = -1e3
    list(stuck.run())
    assert not (stuck.autoencoder.encode(rows) > 0).any(0)[:40].any()


def test_the_reports_are_about_the_rows_as_they_came():
    """The scale is folded in: the autoencoder of rows ten times as long explains as much of them."""
    _, rows = planted()
    _, reports = trained(rows, steps=200)
    trainer, again = trained(10 * rows + 0, steps=200)
    assert np.isclose(reports[-1].explained, again[-1].explained, atol=0.02)
    rebuilt = trainer.autoencoder(10 * rows)
    spread = ((10 * rows - 10 * rows.mean(0)) ** 2).sum()
    assert np.isclose(1 - ((rebuilt - 10 * rows) ** 2).sum() / spread, again[-1].explained, atol=0.02)


def test_the_same_seed_gives_the_same_autoencoder():
    _, rows = planted(rows=2000)
    one, two, other = (trained(rows, steps=20, seed=seed)[0].autoencoder for seed in (1, 1, 2))
    assert one.decoder.tobytes() == two.decoder.tobytes() != other.decoder.tobytes()


def test_its_gradients_are_those_of_its_loss():
    """Central differences of the loss in float64 beside what the step uses."""
    rng = np.random.default_rng(0)
    w = {name: rng.standard_normal(shape) for name, shape in {"encoder": (5, 9), "encoder_bias": (9,), "decoder": (9, 5), "bias": (5,)}.items()}
    x, l1 = rng.standard_normal((7, 5)), 0.3

    def loss(w):
        acts = np.maximum((x - w["bias"]) @ w["encoder"] + w["encoder_bias"], 0)
        error = acts @ w["decoder"] + w["bias"] - x
        return (error**2).sum() / len(x) + l1 * acts.sum() / len(x)

    _, _, by = gradients(w, x, "l1", 9, l1)
    for name, gradient in by.items():
        for at in list(np.ndindex(gradient.shape))[::3]:
            moved = [{**w, name: w[name].copy()} for _ in range(2)]
            for each, sign in zip(moved, (1, -1)):
                each[name][at] += sign * 1e-6
            assert np.isclose((loss(moved[0]) - loss(moved[1])) / 2e-6, gradient[at], rtol=1e-5, atol=1e-7), (name, at)


@pytest.mark.parametrize(("kind", "l1"), [("topk", 0.0), ("l1", 0.7)])
def test_an_engines_products_are_numpys(any_machine, kind, l1):
    """Two batches, so that what the first left is seen; the model beside it keeps its logits."""
    model = made(any_machine, CONFIG)
    before = bytes(model.logits([1, 2, 3]))
    rng = np.random.default_rng(0)
    shapes = {"encoder": (24, 40), "encoder_bias": (40,), "decoder": (40, 24), "bias": (24,)}
    products = Products(model, 24, 40, 19)
    for _ in range(2):
        w = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
        x = rng.standard_normal((19, 24)).astype(np.float32)
        acts, error, found = now(products.gradients(w, x, kind, 7, l1))
        double = {name: each.astype(np.float64) for name, each in w.items()}
        expected = gradients(double, x.astype(np.float64), kind, 7, l1)
        pairs = {"acts": (acts, expected[0]), "error": (error, expected[1])} | {name: (found[name], expected[2][name]) for name in shapes}
        for name, (got, golden) in pairs.items():
            assert got.shape == golden.shape and np.abs(got - golden).max() < 2e-6 * np.abs(golden).max() * 40**0.5, name
    assert bytes(model.logits([1, 2, 3])) == before


def test_planted_directions_are_found_with_an_engine(machine):
    directions, rows = planted(rows=8_000)
    model = made(machine, CONFIG)
    trainer = SAETrainer(rows, settings(steps=700, features=80), products=Products(model, WIDTH, 80, 512))
    list(trainer.run())
    assert found(directions, trainer.autoencoder).mean() >= 0.95


def test_features_made_anew_are_all_different():
    _, rows = planted(rows=2_000)
    trainer = SAETrainer(rows, settings(steps=100, features=96, resample_every_steps=20, batch=256))
    trainer._weights["encoder_bias"][8:] = -1e3
    now(trainer.some_async(20))
    assert trainer.resampled == 88
    directions = trainer.autoencoder.decoder
    assert np.triu(directions @ directions.T, 1).max() < 0.9999


def test_an_engine_encodes_and_decodes_as_numpy_does(any_machine):
    model, own = made(any_machine, CONFIG), small("topk")
    x = np.random.default_rng(2).standard_normal((3, 257, 24)).astype(np.float32)
    engine = Coder(model, own)

    async def both():
        acts = await engine.encode(x)
        return acts, await engine.decode(acts)

    acts, y = now(both())
    assert (np.count_nonzero(acts, axis=-1) <= own.k).all() and acts.shape == (3, 257, own.features)
    assert np.abs(acts - own.encode(x)).max() < 1e-5 * acts.max() and np.abs(y - own.decode(acts)).max() < 1e-5 * np.abs(y).max()


def test_topk_keeps_the_largest_and_nothing_below_zero():
    pre = np.array([[3.0, -1.0, 2.0, 5.0], [-1.0, -2.0, -3.0, 0.5]])
    assert sparse(pre, "topk", 2).tolist() == [[3, 0, 0, 5], [0, 0, 0, 0.5]]
    assert sparse(pre, "l1", 2).tolist() == [[3, 0, 2, 5], [0, 0, 0, 0.5]]
    tied = np.array([[2.0, 1.0, 2.0, 3.0, 2.0], [1.0, 1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0, 7.0]])
    assert sparse(tied, "topk", 3).tolist() == [[2, 0, 2, 3, 0], [1, 1, 1, 0, 0], [0, 0, 0, 0, 7]]


@pytest.mark.parametrize("kind", ["topk", "l1"])
def test_it_comes_back_from_its_files(tmp_path, kind):
    made_here = small(kind)
    assert made_here.save(tmp_path / "sae", model_name="tiny") == sum(path.stat().st_size for path in (tmp_path / "sae").iterdir())
    again = SparseAutoencoder.load(tmp_path / "sae")
    x = np.random.default_rng(1).standard_normal((6, 24)).astype(np.float32)
    assert again(x).tobytes() == made_here(x).tobytes() and again.address == made_here.address and again.kind == kind
    said = json.loads((tmp_path / "sae" / SETTINGS).read_text())
    assert said["architecture"] == {"topk": "topk", "l1": "standard"}[kind] and said["metadata"]["hook_name"] == "blocks.1.hook_resid_post"


@pytest.mark.parametrize("kind", ["topk", "l1"])
def test_saelens_says_the_same_of_it(kind):
    """What SAELens computes with our files (tests/golden/sae.npz, made by make_sae.py), and its own files read here."""
    ours, theirs = small(kind), SparseAutoencoder.from_files(GOLDEN[f"{kind} {SETTINGS}"].tobytes(), GOLDEN[f"{kind} {WEIGHTS}"].tobytes())
    for each in (ours, theirs):
        acts = each.encode(GOLDEN["x"])
        assert np.array_equal(acts > 0, GOLDEN[f"{kind} acts"] > 0)
        for got, golden in ((acts, GOLDEN[f"{kind} acts"]), (each.decode(acts), GOLDEN[f"{kind} y"])):
            assert np.abs(got - golden).max() < 1e-6 * np.abs(golden).max() * 24**0.5
    assert theirs.address == ours.address and theirs.kind == kind


def test_names_there():
    for address, name in {
        "blocks.0.resid_pre": "blocks.0.hook_resid_pre", "blocks.1.mlp.out": "blocks.1.hook_mlp_out", "blocks.1.attn.out": "blocks.1.hook_attn_out",
        "blocks.2.mlp.post": "blocks.2.mlp.hook_post", "ln_f": "ln_f",
    }.items():  # fmt: skip
        assert their_name(address) == name


def test_files_of_another_kind_are_refused(tmp_path):
    files = small().to_files()
    for change, words in (({"architecture": "gated"}, "architecture"), ({"normalize_activations": "layer_norm"}, "neither scaled")):
        with pytest.raises(FormatError, match=words):
            SparseAutoencoder.from_files(json.dumps(json.loads(files[SETTINGS]) | change).encode(), files[WEIGHTS])
    with pytest.raises(FormatError, match="is not there"):
        SparseAutoencoder.load(tmp_path)
    with pytest.raises(ShapeError, match="decoder is"):
        SparseAutoencoder(*(small().encoder,) * 1, np.zeros(40, np.float32), np.zeros((39, 24), np.float32), np.zeros(24, np.float32))


def spoken(model):
    """Windows of what the model itself holds likeliest, one after the other: a text it knows, so that zeros inside lose something."""
    rows = []
    for first in range(0, 60, 3):
        rows.append([first])
        while len(rows[-1]) < CONFIG.context:
            rows[-1].append(int(np.argmax(model.logits(rows[-1]))))
    return np.concatenate(rows)


def test_what_is_recovered(any_machine):
    """All of it by an autoencoder that changes nothing; none by one that gives zeros; and by hand in between."""
    model = made(any_machine, CONFIG)
    text = spoken(model)
    identity = np.concatenate([np.eye(24), -np.eye(24)]).astype(np.float32)
    zeros = np.zeros(24, np.float32)
    perfect = SparseAutoencoder(identity.T.copy(), np.zeros(48, np.float32), identity, zeros, "l1", 0, "blocks.0.resid_post")
    whole = study.recovered(model, text, perfect, count=100)
    assert abs(whole.recovered - 1) < 1e-4 and whole.explained > 1 - 1e-9 and whole.l0 == 24 and whole.tokens == 100
    nothing = SparseAutoencoder(identity.T.copy(), np.full(48, -1e3, np.float32), identity, zeros, "l1", 0, "blocks.0.resid_post")
    none = study.recovered(model, text, nothing, count=100)
    assert none.recovered == 0 and none.dead == 1 and none.l0 == 0
    assert "recovered" in str(whole) and whole.to_dict()["recovered"] == whole.recovered


def test_training_on_a_models_activations_and_looking_at_features(any_machine):
    model = made(any_machine, CONFIG)
    trainer = study.sae_trainer(model, TEXT, "blocks.0.resid_post", rows=300, features=32, k=4, steps=120, batch=64)
    last = list(trainer.run())[-1]
    assert last.explained > 0.5 and trainer.autoencoder.address == "blocks.0.resid_post"
    judged = study.recovered(model, spoken(model), trainer.autoencoder, count=100)
    assert judged.l0 <= 4 and np.isfinite(judged.recovered)
    shown = study.features(model, TEXT, trainer.autoencoder, count=200, contexts=2)
    best = shown[0]
    assert 0 < best.density < 1 and best.contexts[0].activations[best.contexts[0].at] == best.most and len(best.promotes) == 8
    assert str(best).startswith(f"feature {best.index}") and json.dumps(best.to_dict())


def test_what_does_not_fit_is_refused(any_machine):
    model = made(any_machine, CONFIG)
    for address in ("blocks.0.attn.pattern", "blocks.0.attn.y"):
        with pytest.raises(ConfigError, match="one row a token"):
            study.sae_trainer(model, TEXT, address)
    with pytest.raises(DataError, match="at least 20 tokens"):
        study.sae_trainer(model, TEXT[:10], "blocks.0.mlp.out")
    for wrong, words in (({"kind": "gated"}, "kind is one of"), ({"k": 0}, "k is a whole number"), ({"width": 3}, "settings are"), ({"l1": -1}, "l1 is a number")):
        with pytest.raises(ConfigError, match=words):
            SAESettings.of(**wrong)


def test_it_prints_as_a_small_picture():
    """How alike its features are, and what they explained on the way."""
    own = small()
    own.decoder[1], own.decoder[2] = own.decoder[0], -own.decoder[0]
    lines = str(own).splitlines()
    assert lines[0] == "sparse autoencoder at blocks.1.resid_post: 40 features of 24 numbers, the 5 largest of a row" and len(lines) == 6
    unit = own.decoder / np.linalg.norm(own.decoder, axis=1, keepdims=True)
    nearest = (unit @ unit.T - 3 * np.eye(40)).max(1)
    counted = [int(line.split("features")[0].split()[-1]) for line in lines[1:]]
    assert sum(counted) == 40 and counted[-1] == (nearest >= 0.8).sum() == 2
    _, rows = planted(rows=2_000)
    trainer, reports = trained(rows, steps=120, features=64)
    shown = str(trainer).splitlines()
    assert shown[0] == "64 features of 32 numbers at blocks.0.resid_post, step 120 of 120" and [line.split()[1] for line in shown[1:]] == ["50", "100", "120"]
    assert f"explains {100 * reports[-1].explained:.1f} %" in shown[-1]
    assert len(str(SAETrainer(rows, settings())).splitlines()) == 1
