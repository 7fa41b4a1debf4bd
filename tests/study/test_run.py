"""run: reading activations changes nothing, what is read is right, and what is replaced takes effect and nothing else does."""

import numpy as np
import pytest

from posttrainllm import study
from posttrainllm.errors import ConfigError, DataError, ShapeError
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.lora import LoRAConfig
from posttrainllm.model.program import Program, forward
from posttrainllm.study import passes
from tests.helpers.machines import open_once
from tests.study.by_hand import forward as by_hand
from tests.study.by_hand import made, weights_of

CONFIG = GPTConfig(layers=2, channels=24, heads=3, context=20, vocabulary=61, batch=2)
OTHER = GPTConfig(layers=2, channels=24, heads=3, context=20, vocabulary=61, batch=2, tied=False, activation="gelu", hidden=50)
TOKENS = [7, 3, 3, 60, 0, 12, 7, 3, 41, 5, 5]
EPS = 2.0**-23
STORED = [name for name, place in study.places(CONFIG).items() if not place.derived and place.replaceable]
NEAR = 64 * EPS  # of the largest number of an address; measured: 6 eps


@pytest.fixture(scope="module")
def model():
    return made(open_once("cpu"), CONFIG)


@pytest.fixture(scope="module")
def everything(model):
    return study.run(model, TOKENS, taps="*")


def same(one, other):
    return all(one[name].tobytes() == other[name].tobytes() for name in one)


def near(got, expected, times=NEAR):
    finite = np.isfinite(expected)
    assert np.array_equal(finite, np.isfinite(got))
    return np.abs(got[finite] - expected[finite]).max() <= times * np.abs(expected[finite]).max()


@pytest.mark.parametrize("config", [CONFIG, OTHER], ids=["as GPT-2", "a head of its own, exact gelu"])
def test_every_address_holds_what_it_says(any_machine, config):
    model = made(any_machine, config)
    found, expected = study.run(model, TOKENS, taps="*"), by_hand(weights_of(model), config, TOKENS)
    rest = {name for name in found if name.endswith(("mean", "rstd"))}
    assert set(found) - rest == set(expected) and len(rest) == 2 * (2 * config.layers + 1)
    for name, array in expected.items():
        assert found[name].shape == array.shape, name
        assert near(found[name], array, 1e-13 if any_machine.name == "reference" else NEAR), name
    stream = expected["blocks.1.resid_mid"]
    assert near(found["blocks.1.ln_2.mean"], stream.mean(1)) and near(found["blocks.1.ln_2.rstd"], 1 / np.sqrt(stream.var(1) + 1e-5))


def test_reading_everything_changes_no_bit(model, everything):
    """Each row's logits are those the decoder gives, and those of a run that reads nothing else."""
    rows = np.array([list(row) for row in model.logits_of(TOKENS, len(TOKENS))], np.float32)
    assert rows.tobytes() == everything["logits"].tobytes() == study.run(model, TOKENS, taps="logits")["logits"].tobytes()


def test_the_models_tapes_know_nothing_of_it(model, everything):
    """Nothing read, nothing changed: the very tape of a plain forward pass. Looking leaves the program as a fresh one."""
    plain = forward(CONFIG, 1, 16)
    for value in plain.plan.graph.values():
        value.keep = False
    bare = passes.build(model.program, 1, 16, frozenset({"logits"}), frozenset())
    assert bare.each.tape == plain.tape and not bare.changes
    assert [each.tape for each in model.program.passes()] == [each.tape for each in Program(CONFIG, False).passes()]
    looked = passes.build(model.program, 1, 16, frozenset({"logits", "blocks.0.mlp.pre"}), frozenset({"blocks.0.mlp.pre"}))
    assert len(looked.each.tape) == len(bare.each.tape) + 1


@pytest.mark.parametrize("address", STORED)
def test_replacing_an_activation_by_itself_changes_no_bit(model, everything, address):
    assert same(everything, study.run(model, TOKENS, taps="*", replace={address: everything[address]}))


def test_replacing_all_of_them_by_themselves_changes_no_bit(model, everything):
    assert same(everything, study.run(model, TOKENS, taps="*", replace={name: everything[name] for name in STORED}))


@pytest.mark.parametrize("address", [*STORED, "blocks.0.attn.pattern", "blocks.1.attn.scores"])
def test_what_is_put_there_takes_effect(any_machine, address):
    """Half of the rows, other numbers: everything after is what the page of NumPy makes of them."""
    model = made(any_machine, CONFIG)
    shape = study.run(model, TOKENS, taps=address)[address].shape
    rng = np.random.default_rng(1)
    new = rng.standard_normal(shape)
    if "attn.pattern" in address or "scores" in address:
        new = np.where(np.tri(shape[-1], dtype=bool), np.abs(new), 0.0 if "pattern" in address else -np.inf)
    new[::2] = np.nan
    new = new.astype(np.float32)
    found = study.run(model, TOKENS, taps=["*.attn.y", "*.resid_post", "logits"], replace={address: new})
    expected = by_hand(weights_of(model), CONFIG, TOKENS, {address: lambda old: np.where(np.isnan(new), old, new)})
    plain = by_hand(weights_of(model), CONFIG, TOKENS)
    for name in found:
        assert near(found[name], expected[name], 1e-5 if any_machine.name != "reference" else 1e-6), name
    assert np.abs(expected["logits"] - plain["logits"]).max() > 0.01 * np.abs(plain["logits"]).max()
    assert np.array_equal(found["logits"], expected["logits"]) is False


def test_zero_a_number_broadcasts_and_a_function_sees_what_stands_there(model):
    zeroed = study.run(model, TOKENS, taps=["blocks.0.mlp.out", "logits"], replace={"blocks.0.mlp.out": 0})
    assert not zeroed["blocks.0.mlp.out"].any()
    seen = {}

    def double(now_there):
        seen["there"] = now_there
        return 2 * now_there

    twice = study.run(model, TOKENS, taps="logits", replace={"blocks.1.attn.out": double, "blocks.0.mlp.out": 0.0})
    assert seen["there"].shape == (len(TOKENS), CONFIG.channels)
    alone = study.run(model, TOKENS, taps="blocks.1.attn.out", replace={"blocks.0.mlp.out": 0.0})["blocks.1.attn.out"]
    assert seen["there"].tobytes() == alone.tobytes(), "it sees what the replacements before it leave"
    expected = study.run(model, TOKENS, taps="logits", replace={"blocks.0.mlp.out": 0.0, "blocks.1.attn.out": study.Change(2.0)})
    assert twice["logits"].tobytes() == expected["logits"].tobytes()


def test_a_direction_is_added_to_one_position(model, everything):
    direction = np.zeros((len(TOKENS), CONFIG.channels), np.float32)
    direction[4] = np.linspace(-1, 1, CONFIG.channels)
    pushed = study.run(model, TOKENS, taps="*", replace={"blocks.0.resid_post": study.Change(add=direction)})
    assert np.array_equal(pushed["blocks.0.resid_post"], everything["blocks.0.resid_post"] + direction)
    assert pushed["logits"][:4].tobytes() == everything["logits"][:4].tobytes(), "a position sees none after it"
    assert not np.array_equal(pushed["logits"][4:], everything["logits"][4:])


def test_a_replaced_pattern_is_what_is_read_there(any_machine):
    """And scores, with the pattern that they make; what is left (NaN) is what stood there, replaced or not."""
    model = made(any_machine, CONFIG)
    time, pattern, scores = len(TOKENS), "blocks.1.attn.pattern", "blocks.1.attn.scores"
    first = np.zeros((CONFIG.heads, time, time), np.float32)
    first[..., 0] = 1
    found = study.run(model, TOKENS, taps=[pattern, "blocks.1.attn.v", "blocks.1.attn.y"], replace={pattern: first})
    assert np.array_equal(found[pattern], first) and np.allclose(found["blocks.1.attn.y"], found["blocks.1.attn.v"][:1], atol=1e-6)
    even, some = np.where(np.tri(time, dtype=bool), 0.0, -np.inf), np.full(first.shape, np.nan)
    some[0] = first[0]
    found = study.run(model, TOKENS, taps=[pattern, scores], replace={pattern: some, scores: even})
    assert np.array_equal(found[scores][2], even) and np.array_equal(found[pattern][0], first[0])
    assert np.allclose(found[pattern][1:], np.tri(time) / np.arange(1, time + 1)[:, None])


def test_a_change_is_of_what_the_replacements_before_it_leave(any_machine):
    """Two names of one activation, a pattern and what it mixes, and a change of what no engine stores."""
    model = made(any_machine, CONFIG)
    time, pattern = len(TOKENS), "blocks.0.attn.pattern"
    found = study.run(model, TOKENS, "blocks.0.resid_post", {"blocks.0.resid_post": 2.0, "blocks.1.resid_pre": study.Change(3.0, 1.0)})
    assert (found["blocks.0.resid_post"] == 7).all()
    first = np.zeros((CONFIG.heads, time, time), np.float32)
    first[..., 0] = 1
    once = study.run(model, TOKENS, "*.attn.y", {pattern: first})["blocks.0.attn.y"]
    twice = study.run(model, TOKENS, "*.attn.y", {pattern: first, "blocks.0.attn.y": study.Change(2.0)})["blocks.0.attn.y"]
    assert np.array_equal(twice, 2 * once)
    plain = study.run(model, TOKENS, ["*.attn.pattern", "*.attn.scores", "*.attn.y"])
    half = study.run(model, TOKENS, ["*.attn.pattern", "*.attn.y"], {pattern: study.Change(0.5)})
    assert near(half["blocks.0.attn.y"], 0.5 * plain["blocks.0.attn.y"]) and np.array_equal(half[pattern], 0.5 * plain[pattern])
    sharp = study.run(model, TOKENS, "*.attn.pattern", {"blocks.0.attn.scores": study.Change(-2.0, 1.0)})[pattern]
    powers = np.where(np.tri(time, dtype=bool), plain[pattern], np.inf) ** -2.0  # softmax(1 - 2s)
    assert np.allclose(sharp, powers / powers.sum(-1, keepdims=True))


def test_a_function_may_change_what_it_sees_in_place_and_has_to_return_it(any_machine):
    model = made(any_machine, CONFIG)

    def without_the_first(there):
        there[0] = 0
        return there

    found = study.run(model, TOKENS, "blocks.0.mlp.out", {"blocks.0.mlp.out": without_the_first})["blocks.0.mlp.out"]
    assert not found[0].any() and found[1].any()
    for nothing in (None, lambda there: None):
        with pytest.raises(ConfigError, match="None came"):
            study.run(model, TOKENS, replace={"blocks.0.mlp.out": nothing})


def test_rows_of_a_batch_are_runs_of_their_own(model, everything):
    both = study.run(model, [TOKENS, TOKENS[::-1]], taps="*")
    assert both["logits"].shape == (2, len(TOKENS), CONFIG.vocabulary) and both.tokens.shape == (2, len(TOKENS))
    assert same(everything, {name: np.ascontiguousarray(each[0]) for name, each in both.items()})
    one = study.run(model, [TOKENS, TOKENS], taps="logits", replace={"blocks.0.attn.y": np.array([0.0, np.nan]).reshape(2, 1, 1, 1)})["logits"]
    assert one[1].tobytes() == everything["logits"].tobytes() != one[0].tobytes()


def test_nothing_is_left_for_the_next_run(model, everything):
    study.run(model, TOKENS, replace={"embed": 0.0})
    assert same(everything, study.run(model, TOKENS, taps="*"))


def test_an_adapter_counts(any_machine):
    """At strength 0 nothing changes; at 1 each head's result, with the bias, still adds up to what attention adds."""
    lora = LoRAConfig(rank=2, alpha=4, targets=("attn.q", "attn.proj", "mlp.fc"))
    model = made(any_machine, CONFIG, lora=lora)
    taps = ["blocks.*.attn.result", "blocks.*.attn.out", "logits"]
    on = study.run(model, TOKENS, taps=taps)
    for layer in range(CONFIG.layers):
        bias = weights_of(model)[f"blocks.{layer}.attn.proj.bias"]
        assert near(on[f"blocks.{layer}.attn.result"].sum(1) + bias, on[f"blocks.{layer}.attn.out"])
    rows = np.array([list(row) for row in model.logits_of(TOKENS, 3)])
    assert near(on["logits"][-3:], rows, 4 * EPS)
    model.strength = 0.0
    off = study.run(model, TOKENS, taps=taps)
    assert np.abs(off["logits"] - on["logits"]).max() > 0.01
    base = made(any_machine, CONFIG)
    assert study.run(base, TOKENS, taps="logits")["logits"].shape == off["logits"].shape


def test_what_does_not_fit_is_refused_in_a_sentence(model):
    for taps, words in (("blocks.2.ln_1", "blocks.0 to blocks.1"), ("attn.q", "an address is")):
        with pytest.raises(ConfigError, match=words):
            study.run(model, TOKENS, taps=taps)
    for address in ("blocks.0.ln_1.rstd", "blocks.1.attn.result"):
        with pytest.raises(ConfigError, match="can be read only"):
            study.run(model, TOKENS, replace={address: 0.0})
    with pytest.raises(ConfigError, match="one address is replaced at a time"):
        study.run(model, TOKENS, replace={"blocks.*.mlp.out": 0.0})
    with pytest.raises(ShapeError, match=r"blocks.0.attn.y takes what broadcasts to \[1, 11, 3, 8\]; \[5\] came"):
        study.run(model, TOKENS, replace={"blocks.0.attn.y": np.zeros(5)})
    for tokens in ([], "", list(range(21)), [61], [-1], [0.5], [[[1]]], None, 5, [[1, 2], [3]], ["ab", "cd"]):
        with pytest.raises(DataError, match="study"):
            study.run(model, tokens)


def test_what_came_prints_and_travels(model, everything):
    text = str(everything)
    assert "blocks.1.attn.scores" in text and "3×11×11" in text and "nan" not in text
    sent = everything.to_dict()
    assert sent["tokens"] == TOKENS and len(sent["labels"]) == len(TOKENS)
    assert all(each.dtype == np.float32 and each.flags.c_contiguous for each in sent["arrays"].values())


def test_few_passes_stay_loaded(model):
    for time in range(1, CONFIG.context + 1):
        for name in ("embed", "ln_f"):
            study.run(model, [1] * time, taps=name)
    held = passes._LOOKS[model]
    assert len(held) <= passes.MOST_KEPT + 2 * CONFIG.layers
    assert {key[2] for key in held} == {16, 20}, "a few lengths serve every text"


def test_one_pass_a_layer_is_made_once_in_a_deep_model(monkeypatch):
    """As the page's flow view reads it: layer by layer, the embedding and the end; the second time nothing is made."""
    config = GPTConfig(layers=30, channels=8, heads=1, context=16, vocabulary=31, batch=1)
    deep, built = made(open_once("cpu"), config), []
    build = passes.build
    monkeypatch.setattr(passes, "build", lambda *key: built.append(key) or build(*key))
    for _ in range(2):
        for taps in ("embed", *(f"blocks.{layer}.*" for layer in range(config.layers)), ["ln_f", "logits"]):
            study.run(deep, [1, 2, 3], taps)
    assert len(built) == config.layers + 2


@pytest.mark.native_only(reason="a tab's engine has memory of one size")
def test_a_big_runs_memory_is_given_back():
    """And the model goes on as before: its logits, its strength, its training."""
    from posttrainllm.backends.native import CpuMachine
    from posttrainllm.model.live import GPT

    lora = LoRAConfig(rank=2, alpha=4, targets=("attn.q",))
    batch, recipe = (np.arange(40) % 61).astype("<i4").tobytes(), (1e-3, 0.9, 0.99, 1e-8, 0.0, 1.0, 10.0, 100.0)
    found = []
    for released in (False, True):
        machine = CpuMachine(1)
        model = GPT(CONFIG, machine, Program(CONFIG, True, lora))
        model.initialise(3)
        model.strength = 0.25
        model.step(batch, batch, recipe)
        model.logits([1, 2, 3])
        held = sum(machine._bytes.values())
        study.run(model, [TOKENS] * 40, taps="*", replace={"blocks.0.mlp.pre": 0.0})
        grown = sum(machine._bytes.values())
        assert grown > 3 * held
        if released:
            study.release(model)
            assert sum(machine._bytes.values()) == held
        found.append((bytes(model.logits([1, 2, 3, 4])), model.step(batch, batch, recipe), model.weights_sha256()))
        assert same(study.run(model, TOKENS, taps="*"), study.run(model, TOKENS, taps="*"))
        machine.close()
    assert found[0] == found[1]
