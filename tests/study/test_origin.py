"""Autoencoders and tuned lenses say which model they are of, and where they are written is told in a sentence; and what has no order is no text."""

import json

import numpy as np
import pytest

from posttrainllm import study
from posttrainllm.errors import ConfigError, DataError, FormatError, ShapeError, StoreError
from posttrainllm.model.config import GPTConfig
from posttrainllm.study.sae import CONFIG as SETTINGS
from posttrainllm.study.sae import WEIGHTS, SparseAutoencoder
from tests.helpers.machines import open_once
from tests.study.by_hand import made
from tests.study.golden import small

CONFIG = GPTConfig(layers=2, channels=24, heads=3, context=20, vocabulary=61, batch=2)
OTHERS = {"vocabulary": {"vocabulary": 83}, "layers": {"layers": 3}, "heads": {"heads": 2}, "hidden": {"hidden": 48}}
SIZES = {"layers": 2, "channels": 24, "heads": 3, "hidden": 96, "vocabulary": 61}
TEXT, SHORT = np.arange(400) * 7 % 61, [7, 3, 3, 60]


def model_of(seed=0, **changes):
    return made(open_once("cpu"), GPTConfig(**CONFIG.to_dict() | {"batch": 2} | changes), seed=seed)


def autoencoder_of(model):
    trainer = study.sae_trainer(model, TEXT, "blocks.0.resid_post", rows=100, features=16, k=4, steps=2, batch=20)
    list(trainer.run())
    return trainer.autoencoder


def test_an_autoencoder_is_refused_by_a_model_of_other_sizes(tmp_path):
    own = autoencoder_of(model_of())
    own.save(tmp_path)
    again = SparseAutoencoder.load(tmp_path)
    assert own.sizes == again.sizes == SIZES
    for each in (own, again):
        study.steer(model_of(seed=9, context=30), each, 1, 1.0).logits(SHORT)  # of the same sizes, as after more training
        for name, change in OTHERS.items():
            other = model_of(**change)
            with pytest.raises(ShapeError, match=f"trained on a model of {name} [0-9]+; one of {name} {change.get(name)} came; use the model it is of"):
                study.steer(other, each, 1, 1.0)
    study.steer(model_of(vocabulary=83), small(address="blocks.0.resid_post"), 1, 1.0)  # which does not say


def test_a_lens_is_refused_by_a_model_of_other_sizes(tmp_path):
    trainer = study.LensTrainer(model_of(), TEXT, steps=1, batch=1)
    list(trainer.run())
    trainer.lens.save(tmp_path / "lens")
    again = study.TunedLens.load(tmp_path / "lens")
    assert trainer.lens.sizes == again.sizes == SIZES
    for each in (trainer.lens, again):
        study.logit_lens(model_of(seed=9, context=30), SHORT, tuned=each)
        for name in ("vocabulary", "heads", "hidden"):
            with pytest.raises(ShapeError, match=f"trained on a model of {name}"):
                study.logit_lens(model_of(**OTHERS[name]), SHORT, tuned=each)
    plain = study.TunedLens(again.names, 24)  # as files were before they said so
    study.logit_lens(model_of(vocabulary=83), SHORT, tuned=plain)


@pytest.mark.parametrize("sizes", [5, [2], {"layers": "2"}, {"layers": 2.0}, {"layers": True}])
def test_sizes_in_a_file_are_numbers_by_name(sizes):
    files = small().to_files()
    said = json.loads(files[SETTINGS])
    assert "posttrainllm_sizes" not in said["metadata"]
    said["metadata"]["posttrainllm_sizes"] = sizes
    with pytest.raises(FormatError, match="whole numbers by name"):
        SparseAutoencoder.from_files(json.dumps(said).encode(), files[WEIGHTS])


def test_where_they_are_written(tmp_path):
    file, lens = tmp_path / "text.txt", study.TunedLens(["embed"], 4)
    file.write_text("a text")
    for place in (file, file / "deeper"):
        with pytest.raises(StoreError, match="a folder can be written there.*choose another place"):
            small().save(place)
    for place in (tmp_path, tmp_path / "none" / "lens"):
        with pytest.raises(StoreError, match="the file can be written.*choose another place"):
            lens.save(place)
    assert file.read_text() == "a text"
    for call in (SparseAutoencoder.load, small().save, study.TunedLens.load, lens.save):
        with pytest.raises(ConfigError, match="the name of a file or a folder; None came"):
            call(None)


def test_what_has_no_order_is_no_text():
    model = model_of()
    for text in ({7, 3, 60}, frozenset([7]), {7: 1, 3: 2}, {7: 1}.keys()):
        for call in (study.run, study.logit_lens, study.next_token):
            with pytest.raises(DataError, match="a text, its tokens, or rows of tokens"):
                call(model, text)


def test_one_token_has_no_loss_to_print():
    found = study.logit_lens(model_of(), [7])
    shown = str(found)
    assert "nan" not in shown and "None came after" in shown and len(shown.splitlines()) == 2 + len(found.layers)
    assert "Loss by layer" in str(study.logit_lens(model_of(), [7, 3]))


def test_scores_as_an_array_are_taken_as_they_are_and_a_change_keeps_the_mask():
    """As `run` says: a finite score lets a query see what comes later; NaN leaves it unseen."""
    model, address = model_of(), "blocks.0.attn.scores"
    masked = np.where(np.tril(np.ones((4, 4), bool)), 0.0, np.nan)
    for what, sees in ((np.zeros((4, 4)), True), (masked, False), (study.Change(0.0), False)):
        found = study.run(model, SHORT, "blocks.0.attn.pattern", {address: what})["blocks.0.attn.pattern"]
        assert (found[0, 0, 1:] > 0).all() == sees and np.isclose(found.sum(-1), 1).all()
