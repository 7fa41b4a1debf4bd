"""What study calls cannot do with is refused in a sentence of this package: the rule, what came, what to do; never Python's or NumPy's own error."""

import json
import math

import numpy as np
import pytest

from posttrainllm import study
from posttrainllm.data.corpus import Corpus
from posttrainllm.errors import ConfigError, DataError, FormatError, NonFiniteError, ShapeError
from posttrainllm.model.config import GPTConfig
from posttrainllm.study.recovery import Recovered
from posttrainllm.study.sae import CONFIG as SETTINGS
from posttrainllm.study.sae import WEIGHTS, SparseAutoencoder
from posttrainllm.study.sae_train import SAESettings, SAETrainer
from posttrainllm.study.survey import Survey
from posttrainllm.waiting import now
from tests.helpers.float32 import Float32Machine
from tests.helpers.machines import open_once
from tests.study.by_hand import made
from tests.study.golden import small

CONFIG = GPTConfig(layers=2, channels=24, heads=3, context=20, vocabulary=61, batch=2)
TEXT, SHORT = np.arange(400) * 7 % 61, [7, 3, 3, 60]
LETTERS, CORPUS = "to be or not to be " * 9, Corpus("text", b"to be or not to be " * 9)
NAN = float("nan")


@pytest.fixture(scope="module")
def model():
    return made(open_once("cpu"), CONFIG)


def few(**changes):
    return SAESettings.of(**{"features": 16, "k": 4, "steps": 40, "batch": 20, "resample_every_steps": 10} | changes)


TEXTS = {  # whole texts, which are read as tokens
    "sae_trainer": lambda model, text: study.sae_trainer(model, text, "blocks.0.mlp.out"),
    "recovered": lambda model, text: study.recovered(model, text, small()),
    "features": lambda model, text: study.features(model, text, small()),
    "LensTrainer": lambda model, text: study.LensTrainer(model, text),
}


@pytest.mark.parametrize("call", TEXTS)
def test_a_text_comes_as_its_tokens(model, call):
    for text in (LETTERS, CORPUS, TEXT * 1.5, TEXT.reshape(20, 20), [[1, 2], [3]], 5, None):
        with pytest.raises(DataError, match="tokens of one text.*came; give corpus.train"):
            TEXTS[call](model, text)
    with pytest.raises(DataError, match="outside the vocabulary"):
        made_of_it = TEXTS[call](model, TEXT + 100)
        list(made_of_it.run())  # what trains reads while it does
    with pytest.raises(DataError, match="at least 20 tokens"):
        TEXTS[call](model, TEXT[:10])


READERS = {
    "recovered": lambda model, own: study.recovered(model, TEXT, own),
    "features": lambda model, own: study.features(model, TEXT, own),
    "survey": lambda model, own: Survey(model, TEXT, own, 40),
    "steer": lambda model, own: study.steer(model, own, 1, 1.0),
}


@pytest.mark.parametrize("call", READERS)
def test_an_autoencoder_is_one_of_this_model(model, call):
    with pytest.raises(ShapeError, match="has rows of 24 numbers in this model; an autoencoder of 16 came; use the model"):
        READERS[call](model, small(channels=16))
    with pytest.raises(ConfigError, match="its address is empty"):
        READERS[call](model, small(address=""))
    with pytest.raises(ConfigError, match="a SparseAutoencoder; int came; give trainer.autoencoder"):
        READERS[call](model, 5)
    with pytest.raises(ConfigError, match="one row a token"):
        READERS[call](model, small(address="blocks.0.attn.y"))


NUMBERS = {  # what takes a whole number, by name: the call, the words, values that do not fit
    "next_token": (lambda m, x: study.next_token(m, SHORT, x), "position from 0 to 3", (4, -5, 1.5, None, True, "1")),
    "contributions": (lambda m, x: study.contributions(m, SHORT, x), "position from 0 to 3", (4, 1.5, None)),
    "flow": (lambda m, x: study.flow(m, SHORT, x), "position from 0 to 3", (4, 1.5, None)),
    "ablate": (lambda m, x: study.ablate(m, SHORT, position=x), "position from 0 to 3", (4, 1.5, None)),
    "patch": (lambda m, x: study.patch(m, SHORT, SHORT[::-1], position=x), "position from 0 to 3", (4, 1.5, None)),
    "top": (lambda m, x: study.logit_lens(m, SHORT, x), "top is a whole number from 1", (0, 1.5, None, True, "2")),
    "steer": (lambda m, x: study.steer(m, small(), x, 1.0), "a whole number from 0 to 39", (40, -1, 1.5, None, True)),
    "strength": (lambda m, x: study.steer(m, small(), 1, x), "strength is a finite number", (NAN, math.inf, "1", None, [1, 2])),
    "feature": (lambda m, x: study.features(m, TEXT, small(), [x], count=40), "a whole number from 0 to 39", (40, 1.5, None)),
    "shown": (lambda m, x: now(Survey(m, TEXT, small(), 40).feature_async(x)), "a whole number from 0 to 39", (40, 1.5, None)),
    "contexts": (lambda m, x: study.features(m, TEXT, small(), count=40, contexts=x), "contexts is a whole number", (0, 1.5)),
    "count": (lambda m, x: study.recovered(m, TEXT, small(), count=x), "a number of tokens is a whole number from 1", (0, -1, 1.5, None)),
    "rows": (lambda m, x: study.sae_trainer(m, TEXT, "blocks.0.mlp.out", rows=x), "a number of tokens is", (0, 1.5, "9")),
    "steps": (lambda m, x: study.LensTrainer(m, TEXT, steps=x), "steps is a whole number from 1", (0, 1.5, None)),
    "batch": (lambda m, x: study.LensTrainer(m, TEXT, batch=x), "batch is a whole number from 1", (0, 1.5, "2")),
    "rate": (lambda m, x: study.LensTrainer(m, TEXT, learning_rate=x), "learning_rate", (0, 1, NAN, "x", None)),
    "sequences": (lambda m, x: study.head_scores(m, sequences=x), "sequences is a whole number", (0, 1.5)),
    "length": (lambda m, x: study.head_scores(m, length=x), "length is a whole number|a half is 2 to", (4.5, 1, 11)),
    "threshold": (lambda m, x: study.head_scores(m, thresholds={"first": x}), "the threshold for first", ("x", NAN)),
}  # fmt: skip


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_are_such_as_are_asked_for(model, name):
    call, words, values = NUMBERS[name]
    for value in values:
        with pytest.raises((ConfigError, DataError), match=words):
            call(model, value)


def test_numpys_numbers_are_numbers(model):
    assert study.logit_lens(model, SHORT, np.int64(2)).top_tokens.shape[2] == 2
    assert study.next_token(model, SHORT, np.int32(-2)).position == 2
    assert study.contributions(model, SHORT, targets=np.int64(5)).targets.tolist() == [5]
    study.steer(model, small(), np.int64(3), np.float32(2.0))
    assert study.patterns(model, SHORT).picture(np.int64(1), np.int64(2))


def test_a_head_that_is_not_there_has_no_picture(model):
    found = study.patterns(model, SHORT)
    for layer, head in ((2, 0), (0, 3), (-1, 0), (0.5, 0), (None, 0)):
        for ask in (found.picture, found.lines):
            with pytest.raises(ConfigError, match="(layer|head) is a whole number from 0 to [12]; .* came"):
                ask(layer, head)


def test_what_is_read_or_replaced_is_named(model):
    for taps in (5, [5], ["logits", None]):
        with pytest.raises(ConfigError, match="an address in words"):
            study.run(model, SHORT, taps)
    with pytest.raises(ConfigError, match="replacements by address.*list came; give a dict"):
        study.run(model, SHORT, "logits", ["embed"])
    with pytest.raises(ShapeError, match="embed takes what broadcasts"):
        study.run(model, SHORT, "logits", {"embed": {}})
    for what in (np.zeros(5), [[1, 2], [3]], "x", {}, study.Change(add=np.zeros(5)), study.Change([[1, 2], [3]])):
        with pytest.raises(ShapeError, match="embed takes what broadcasts"):
            study.changed(model, {"embed": what}).logits(SHORT)
    with pytest.raises(ConfigError, match="what is one of heads"):
        study.ablate(model, SHORT, [1])
    with pytest.raises(ConfigError, match="a run's folder"):
        study.sharpening(5, "text")
    with pytest.raises(DataError, match="tokens of one text"):
        study.head_scores(model, pool=5)
    with pytest.raises(ConfigError, match="a TunedLens; int came"):
        study.logit_lens(model, SHORT, tuned=5)


@pytest.mark.parametrize(("wrong", "words"), [
    ({"k": 20}, "k is at most the number of features, 16; 20 came"), ({"learning_rate": 0}, "learning_rate is above 0"), ({"seed": -1}, "seed is"),
    ({"learning_rate": NAN}, "learning_rate is a number"), ({"k": np.float64(3)}, "k is a whole number"),
])  # fmt: skip
def test_settings_that_cannot_be_trained_with(wrong, words):
    with pytest.raises(ConfigError, match=words):
        few(**wrong)
    few(kind="l1", k=32)  # which counts for topk alone


@pytest.mark.parametrize("k", [0, -1, 41, "x", 1.5, True, None])
def test_a_file_says_how_many_features_a_row_keeps(k):
    files = small().to_files()
    with pytest.raises(FormatError, match="k is a whole number from 1 to 40"):
        SparseAutoencoder.from_files(json.dumps(json.loads(files[SETTINGS]) | {"k": k}).encode(), files[WEIGHTS])


def test_rows_and_weights_that_are_no_numbers():
    rows = np.random.default_rng(0).standard_normal((100, 24)).astype(np.float32)
    rows[3, 5] = NAN
    with pytest.raises(DataError, match="rows of activations are numbers"):
        SAETrainer(rows, few())
    rows[3, 5] = 0
    trainer = SAETrainer(rows, few(learning_rate=1e5, k=8))
    trainer._weights["encoder"][0, 0] = math.inf
    with np.errstate(invalid="ignore"), pytest.raises(NonFiniteError, match="the error is a number; at step 0 NaN or infinity came; lower"):
        list(trainer.run())
    own = small()
    broken = own.decoder.copy()
    broken[1, 1] = NAN
    with pytest.raises(NonFiniteError, match="decoder holds NaN"):
        SparseAutoencoder(own.encoder, own.encoder_bias, broken, own.bias, k=5)
    with pytest.raises(ShapeError, match="encoder is an array"):
        SparseAutoencoder(5, own.encoder_bias, own.decoder, own.bias)


BROKEN = {
    "run": lambda model: study.run(model, SHORT, "*"),
    "patterns": lambda model: study.patterns(model, SHORT),
    "logit_lens": lambda model: study.logit_lens(model, SHORT),
    "next_token": lambda model: study.next_token(model, SHORT),
    "contributions": lambda model: study.contributions(model, SHORT),
    "flow": lambda model: study.flow(model, SHORT),
    "ablate": lambda model: study.ablate(model, SHORT),
    "patch": lambda model: study.patch(model, SHORT, SHORT[::-1]),
    "head_scores": lambda model: study.head_scores(model),
    "sae_trainer": lambda model: study.sae_trainer(model, TEXT, "blocks.0.mlp.out"),
    "recovered": lambda model: study.recovered(model, TEXT, small()),
    "features": lambda model: study.features(model, TEXT, small()),
    "LensTrainer": lambda model: list(study.LensTrainer(model, TEXT, steps=2).run()),
    "steer": lambda model: study.steer(model, small(), 1, 1.0).logits(SHORT),
}


@pytest.mark.parametrize("call", BROKEN)
def test_a_model_of_broken_weights_says_where(call):
    """The first of what was read that is no number."""
    model = made(Float32Machine(), CONFIG)
    model.set_weight_bytes("blocks.0.attn.qkv.bias", np.full(72, NAN, "<f4").tobytes())
    with np.errstate(all="ignore"), pytest.raises(NonFiniteError, match=r"study: activations are numbers; [\w.]+ holds NaN or infinity; the weights"):
        BROKEN[call](model)
    with np.errstate(all="ignore"), pytest.raises(NonFiniteError, match=r"blocks.0.attn.qkv holds"):
        study.run(model, SHORT, "*")


@pytest.mark.parametrize("call", BROKEN)
def test_a_closed_model_is_not_looked_into(call):
    model = made(Float32Machine(), CONFIG)
    assert not model.closed
    model.close()
    with pytest.raises(ConfigError, match="a model that is open; this one was closed"):
        BROKEN[call](model)


def recovered(loss, replaced, zeroed):
    return Recovered(loss, replaced, zeroed, 3.0, 0.5, 0.0, 100)


def test_where_zeros_lose_nothing_there_is_no_share():
    """And no division by zero, nor a good share for making it worse: a model that knows nothing loses less with zeros there."""
    assert recovered(2.0, 2.5, 4.0).recovered == 0.75 and recovered(2.0, 5.0, 4.0).recovered == -0.5
    for found in (recovered(2.0, 2.5, 2.0), recovered(5.0, 5.1, 4.9)):
        assert math.isnan(found.recovered) and "zeros lose nothing" in str(found) and "nan" not in str(found)
        assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["recovered"] is None
