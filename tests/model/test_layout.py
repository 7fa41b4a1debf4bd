"""Where weights stand, how they start, and which of them AdamW decays."""

import numpy as np
import pytest

from posttrainllm.compile import Graph, Value
from posttrainllm.dims import ALIGN_BYTES, product
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.gpt import Layout, parameters, trace
from posttrainllm.model.program import Program
from tests.helpers.models import Model, batch, recipe

CONFIG = GPTConfig(layers=3, channels=20, heads=5, context=9, vocabulary=31, batch=2)


@pytest.mark.parametrize("preset", ["tiny", "medium", "gpt2"])
def test_weights_stand_one_after_another(preset):
    layout = Layout.of(GPTConfig.preset(preset))
    end = 0
    for parameter in layout.parameters:
        start = layout.offsets_bytes[parameter.name]
        assert start % ALIGN_BYTES == 0 and 0 <= start - end < ALIGN_BYTES
        end = start + 4 * product(parameter.shape)
    assert end <= layout.total_bytes < end + ALIGN_BYTES


def test_decayed_weights_come_first_and_are_the_matrices():
    layout = Layout.of(CONFIG)
    for parameter in layout.parameters:
        assert parameter.decayed == (len(parameter.shape) == 2)
        assert parameter.decayed == (layout.offsets_bytes[parameter.name] < layout.decayed_bytes)


def test_addresses_are_the_documented_ones():
    names = [p.name for p in parameters(CONFIG)]
    block = ("ln_1", "attn.qkv", "attn.proj", "ln_2", "mlp.fc", "mlp.proj")
    expected = {f"blocks.{i}.{part}.{kind}" for i in range(3) for part in block for kind in ("weight", "bias")}
    assert len(set(names)) == len(names)
    assert set(names) == expected | {"wte.weight", "wpe.weight", "ln_f.weight", "ln_f.bias"}


def test_activations_have_the_documented_addresses_and_shapes():
    graph, tokens = Graph(), Value("tokens", (2, 7), "i32", "inputs", 0)
    named = trace(graph, CONFIG, Layout.of(CONFIG).values(), tokens, 2, 7)
    parts = {
        "ln_1": 20,
        "attn.qkv": 60,
        "attn.y": 20,
        "attn.out": 20,
        "resid_mid": 20,
        "ln_2": 20,
        "mlp.pre": 80,
        "mlp.post": 80,
        "mlp.out": 20,
        "resid_post": 20,
    }
    expected = {f"blocks.{i}.{part}": (14, width) for i in range(3) for part, width in parts.items()}
    assert {name: value.shape for name, value in named.items()} == expected | {
        "embed": (14, 20),
        "ln_f": (14, 20),
        "logits": (14, 31),
    }
    assert all(value.name == name for name, value in named.items())


def test_weights_start_as_gpt2s(any_machine):
    """Normals of 0.02, into the residual stream of 0.02/sqrt(2L); gains 1, biases 0; no two weights alike."""
    config = GPTConfig(layers=3, channels=64, heads=4, context=64, vocabulary=256, batch=1)
    model = Model(any_machine, config)
    weights = model.weights()
    for parameter in parameters(config):
        value = weights[parameter.name]
        if parameter.decayed:
            into_residual = parameter.name.endswith("proj.weight")
            std = 0.02 / 6**0.5 if into_residual else 0.02
            assert abs(value.std() / std - 1) < 5 / (2 * value.size) ** 0.5
            assert abs(value.mean()) < 5 * std / value.size**0.5
        else:
            assert np.array_equal(
                value, np.full(value.shape, float("ln" in parameter.name and parameter.name.endswith("weight")))
            )
    matrices = [weights[p.name].reshape(-1)[:1000] for p in parameters(config) if p.decayed]
    for i, one in enumerate(matrices):
        for other in matrices[:i]:
            assert abs(np.corrcoef(one, other)[0, 1]) < 5 / 1000**0.5


def test_seeds_give_other_weights_and_the_same_seed_the_same(any_machine):
    first, again, other = (Model(any_machine, CONFIG, seed).weights_bytes() for seed in (1, 1, 2))
    assert first == again != other


def test_a_step_changes_every_weight_and_no_padding(machine):
    """What the batch cannot reach (embeddings of absent tokens) has no gradient, but decay moves it, too."""
    model = Model(machine, CONFIG)
    before = np.frombuffer(model.weights_bytes(), "<f4")
    named = model.weights()
    for number in (1, 2):
        model.step(*batch(CONFIG, number), recipe(number, 0.01))
    after = np.frombuffer(model.weights_bytes(), "<f4")
    layout = model.program.layout
    padding = np.ones(before.size, bool)
    for parameter in layout.parameters:
        start = layout.offsets_bytes[parameter.name] // 4
        padding[start : start + product(parameter.shape)] = False
        assert (model.weights()[parameter.name] != named[parameter.name]).all(), parameter.name
    assert not before[padding].any() and not after[padding].any() and padding.any()


def test_regions_hold_all_passes():
    program = Program(CONFIG)
    need = program.region_bytes()
    for each in program.passes():
        for region, nbytes in each.plan.region_bytes.items():
            assert nbytes <= need[region]
    assert need["params"] == need["grads"] == need["m"] == need["v"] == program.layout.total_bytes
    assert program.memory()["total_bytes"] == sum(need.values())
    writing = Program(CONFIG, training=False).region_bytes()
    assert not any(writing.get(region) for region in ("grads", "m", "v"))
    assert writing["arena"] < need["arena"]


@pytest.mark.parametrize("preset", ["tiny", "medium", "mega"])
def test_shorter_decoding_passes_fit_where_the_longest_does(preset):
    config = GPTConfig.preset(preset)
    program = Program(config, training=False)
    longest = program.decoding(config.context).plan.region_bytes
    for time in (*range(1, 18), *(1 << n for n in range(5, config.context.bit_length())), config.context - 1):
        for region, nbytes in program.decoding(time).plan.region_bytes.items():
            assert nbytes <= longest[region], f"{region} at {time} tokens"
    assert longest["cache"] == config.layers * 2 * config.context * config.channels * 4
    assert program.decoding(3) is program.decoding(3)


def test_a_training_step_costs_six_flops_a_weight_and_token():
    """Two forward, four backward; embeddings are looked up, not multiplied, and attention comes on top."""
    config = GPTConfig.preset("medium")
    tokens = config.batch * config.context
    matrices = sum(product(p.shape) for p in parameters(config) if p.decayed and p.name != "wpe.weight")
    attention = 7 * config.layers * config.batch * config.context * (config.context + 1) * config.channels
    flops = Program(config).step.plan.graph.flops()
    assert 1 < flops / (6 * matrices * tokens + attention) < 1.05


@pytest.mark.native_only(reason="the engine of this process")
def test_a_hash_copies_no_whole_weight(monkeypatch):
    """The pieces are those of the weights in the order of their names, none larger than asked for."""
    import hashlib

    from posttrainllm.model import weights
    from posttrainllm.model.live import GPT

    model, asked = GPT.create("tiny", device="cpu", threads=1), []
    download = model.machine.download
    whole = hashlib.sha256(b"".join(bytes(model.weight_bytes(name)) for name in sorted(model.weight_names()))).hexdigest()
    monkeypatch.setattr(weights, "_PIECE_BYTES", 1000)
    monkeypatch.setattr(model.machine, "download", lambda start, nbytes: asked.append(nbytes) or download(start, nbytes))
    assert model.weights_sha256() == whole and max(asked) == 1000
    model.close()
