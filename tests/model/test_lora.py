"""A model with an adapter: it starts as no change, leaves the base as it is, and its parts come and go bit for bit."""

import numpy as np
import pytest

from posttrainllm.backends.reference import ReferenceMachine
from posttrainllm.decode.generate import write
from posttrainllm.errors import ConfigError, DeviceOutOfMemoryError, FormatError
from posttrainllm.model.adapted import lora
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.gpt import Layout
from posttrainllm.model.live import GPT
from posttrainllm.model.lora import Adapter, LoRAConfig, shapes, sites, sizes_of
from tests.helpers.machines import open_once
from tests.helpers.models import batch, recipe
from tests.model.test_cache import CONFIGS, logits, made, same, tokens_of, whole

CONFIG = GPTConfig(layers=2, channels=24, heads=3, context=10, vocabulary=61, batch=3)
EVERY = ("attn.qkv", "attn.proj", "mlp.fc", "mlp.proj")
DEFAULT = LoRAConfig.of()
EPS = 2.0**-23


def random_adapter(config, lora=DEFAULT, seed=0, base_sha256="", scale=0.3):
    rng = np.random.default_rng(seed)
    weights = {name: (scale * rng.standard_normal(shape)).astype("<f4").tobytes() for name, shape in shapes(config, lora).items()}
    return Adapter(f"adapter {seed}", lora, sizes_of(config), base_sha256, weights)


def beside(machine):
    """A second engine of the same kind: two models do not share one."""
    return ReferenceMachine() if machine.name == "reference" else open_once("cpu-1")


@pytest.fixture
def base(any_machine):
    return made(any_machine, CONFIG)


def tuned(base, **how):
    return lora(base, machine=beside(base.machine), **how)


def everything(model):
    """Bytes of the base's weights."""
    return [model.weight_bytes(parameter.name) for parameter in Layout.of(model.config).parameters]


def all_logits(model, seed=1):
    return logits(model, tokens_of(model.config, seed), model.config.context).tobytes()


def train(model, steps=3, rate=0.05):
    """A few steps on batch 0; returns the losses."""
    tokens, targets = (data.tobytes() for data in batch(model.config, 0))
    return [model.step(tokens, targets, recipe(step + 1, rate))[0] for step in range(steps)]


@pytest.mark.parametrize("targets", [("attn.q", "attn.v"), EVERY])
def test_a_new_adapter_changes_no_logit(base, targets):
    model = tuned(base, targets=targets)
    assert all_logits(model) == all_logits(base)
    assert any(model.weight_bytes(name).strip(b"\0") for name in model.trainable_names()), "its downs are not zero"


@pytest.mark.parametrize("targets", [("attn.q", "attn.v"), EVERY])
def test_training_changes_the_adapter_alone(base, targets):
    before, plain = everything(base), all_logits(base)
    model = tuned(base, targets=targets)
    start = model.adapter
    losses = train(model)
    assert losses[-1] < losses[0] and everything(model) == before == everything(base)
    assert all(model.adapter.weights[name] != data for name, data in start.weights.items())
    assert all_logits(model) != plain == all_logits(base)
    assert model.base_sha256() == base.base_sha256() == base.weights_sha256()
    model.strength = 0
    assert all_logits(model) == plain, "strength 0 is the base"


def test_strength_is_a_slider(base):
    model = tuned(base, adapter=random_adapter(CONFIG))
    found = {}
    for strength in (1.0, 0.5, 0.0, 0.5, 1.0, -1.0):
        model.strength = strength
        assert model.strength == strength
        found.setdefault(strength, []).append(all_logits(model))
    assert found[1.0][0] == found[1.0][1] and found[0.5][0] == found[0.5][1]
    assert len({each[0] for each in found.values()}) == 4 and found[0.0][0] == all_logits(base)
    for wrong in ("much", float("nan"), True, None):
        with pytest.raises(ConfigError, match="strength is a number"):
            model.strength = wrong


def test_adapters_swap_there_and_back(base):
    one, other = random_adapter(CONFIG, seed=1), random_adapter(CONFIG, seed=2)
    model = tuned(base, adapter=one)
    program, first = model.program, all_logits(model)
    model.swap(other)
    second = all_logits(model)
    assert model.adapter.weights == other.weights and model.adapter.name == "adapter 2"
    model.swap(one)
    assert all_logits(model) == first != second and model.program is program, "the same tapes"
    assert all_logits(tuned(base, adapter=other)) == second


def test_an_adapter_of_another_shape_swaps_too(base):
    one, other = random_adapter(CONFIG, seed=1), random_adapter(CONFIG, LoRAConfig(2, 3, EVERY, True), seed=2)
    model = tuned(base, adapter=one)
    first = all_logits(model)
    model.strength = 0.5
    model.swap(other)
    assert model.strength == 0.5 and model.lora == other.config
    model.strength = 1.0
    second = all_logits(model)
    model.swap(one)
    assert all_logits(model) == first != second
    losses = train(model)
    assert losses[-1] < losses[0], "and it trains"


def test_scaling_follows_the_adapter(base):
    """The same weights with twice the alpha are the same adapter at twice the strength."""
    one = random_adapter(CONFIG)
    twice = Adapter("twice", LoRAConfig.of(alpha=16), one.model, "", one.weights)
    model = tuned(base, adapter=twice)
    loud = all_logits(model)
    model.swap(one)
    model.strength = 2
    assert all_logits(model) == loud
    assert LoRAConfig(16, 8, ("attn.q",)).scaling == 0.5 and LoRAConfig(16, 8, ("attn.q",), True).scaling == 2.0


def test_what_is_taken_off_leaves_the_base(base):
    before, plain = everything(base), all_logits(base)
    model = tuned(base, adapter=random_adapter(CONFIG))
    adapted, kept = all_logits(model), model.adapter
    taken = model.detach()
    assert taken == kept and model.lora is None is model.adapter and everything(model) == before and all_logits(model) == plain
    model.attach(taken)
    assert all_logits(model) == adapted != plain
    with pytest.raises(ConfigError, match="a model with an adapter"):
        base.strength = 1.0


def test_a_model_takes_an_adapter_in_place(any_machine):
    """Without a second copy of the base: attach, train, detach, and train the base again."""
    model = made(any_machine, CONFIG, training=True)
    before, plain = everything(model), all_logits(model)
    model.attach(LoRAConfig.of(rank=2), seed=7)
    assert all_logits(model) == plain
    losses = train(model)
    assert losses[-1] < losses[0] and everything(model) == before
    model.detach(training=True)
    assert all_logits(model) == plain and model.program.step is not None
    train(model)
    assert everything(model) != before


@pytest.mark.parametrize("lora_settings", [DEFAULT, LoRAConfig(3, 5, EVERY, True), LoRAConfig(2, 8, ("attn.k", "mlp.proj"))], ids=str)
def test_merging_is_the_adapter_within_rounding(base, lora_settings):
    model = tuned(base, adapter=random_adapter(CONFIG, lora_settings))
    model.strength = 0.75
    adapted = np.frombuffer(all_logits(model), "<f4").astype(float)
    plain = np.frombuffer(all_logits(base), "<f4")
    before = everything(model)
    model.merge()
    assert model.lora is None and everything(model) != before
    merged = np.frombuffer(all_logits(model), "<f4")
    assert np.abs(merged - adapted).max() < 64 * EPS * np.abs(adapted).max() < 1e-3 * np.abs(adapted - plain).max()


def test_merging_changes_the_covered_columns_alone(base):
    """W[:, columns] += strength·down·up, to the last digits, and every other weight keeps its bytes."""
    one = random_adapter(CONFIG)
    model = tuned(base, adapter=one)
    model.merge()
    changed = set()
    for site in sites(CONFIG, one.config):
        name = f"{site.linear}.weight"
        old, new = (np.frombuffer(each.weight_bytes(name), "<f4").reshape(site.inputs, site.outputs) for each in (base, model))
        down = np.frombuffer(one.weights[site.down()], "<f4").reshape(site.inputs, 4).astype(float)
        up = np.frombuffer(one.weights[site.up()], "<f4").reshape(4, site.columns).astype(float)
        part = slice(site.first, site.first + site.columns)
        assert np.abs(new[:, part] - (old[:, part] + 2.0 * (down @ up))).max() < 4 * EPS * 4
        middle = slice(CONFIG.channels, 2 * CONFIG.channels)
        assert new[:, middle].tobytes() == old[:, middle].tobytes(), "no adapter covers k"
        changed.add(name)
    assert all(model.weight_bytes(p) == base.weight_bytes(p) for p in base.weight_names() if p not in changed)


@pytest.mark.native_only(reason="opens engines by name")
def test_merged_is_a_model_of_its_own():
    base = GPT.create(CONFIG, device="cpu", threads=1, training=False)
    model = lora(base, adapter=random_adapter(CONFIG))
    kept = all_logits(model)
    merged = model.merged()
    assert merged.lora is None and merged.machine is not model.machine is not base.machine
    assert all_logits(model) == kept and np.abs(np.frombuffer(all_logits(merged), "<f4") - np.frombuffer(kept, "<f4")).max() < 1e-5
    for each in (merged, model, base):
        each.close()


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("targets", [("attn.q", "attn.v"), EVERY])
def test_a_cached_token_has_the_whole_texts_bits(any_machine, name, targets):
    """Prefixes, chunks and single tokens, with an adapter, against a pass that knows no cache."""
    config = CONFIGS[name]
    model = made(any_machine, config)
    model.attach(random_adapter(config, LoRAConfig.of(targets=targets)), training=False)
    tokens = tokens_of(config)
    model.strength = 0
    plain = whole(model, tokens)
    model.strength = 1
    expected = whole(model, tokens)
    assert not np.array_equal(expected, plain), "the adapter says something"
    for first in (1, 2, 9, len(tokens) - 1):
        model.forget_cache()
        assert same(model, logits(model, tokens[:first])[-1], expected[first - 1])
        assert same(model, logits(model, tokens, len(tokens) - first), expected[first:])


def test_a_draft_writes_the_same_text_with_an_adapter(machine):
    """The base drafts for the model that was tuned on it: greedy text is the same, token by token."""
    base = made(machine, CONFIGS["many heads"])
    model = tuned(base, adapter=random_adapter(CONFIGS["many heads"], scale=0.1))
    how = {"prompt": "a", "tokens": 60, "temperature": 0}
    plain = [piece.text for piece in write(model, **how)]
    drafted = list(write(model, draft=base, ahead=4, **how))
    assert "".join(piece.text for piece in drafted) == "".join(plain)
    assert 0 < drafted[-1].acceptance.accepted < drafted[-1].acceptance.proposed


def test_a_change_of_adapter_or_strength_empties_the_cache(base):
    model, tokens = tuned(base, adapter=random_adapter(CONFIG, seed=1)), tokens_of(CONFIG)
    for change in (
        lambda: setattr(model, "strength", 0.5),
        lambda: model.swap(random_adapter(CONFIG, seed=2)),
        lambda: model.swap(random_adapter(CONFIG, LoRAConfig.of(rank=2), seed=3)),
        lambda: model.detach(),
        lambda: model.attach(random_adapter(CONFIG, seed=1)),
        lambda: model.merge(),
    ):
        model.logits(tokens)
        assert model.cached_tokens == tokens
        change()
        assert model.cached_tokens == []


def test_another_base_or_another_size_is_refused(base):
    one = random_adapter(CONFIG, base_sha256="ab" * 32)
    with pytest.raises(ConfigError, match="made on the weights with sha256 abababab"):
        tuned(base, adapter=one)
    assert tuned(base, adapter=one, any_base=True).adapter.weights == one.weights
    with pytest.raises(ConfigError, match="1 layers and 24 channels"):
        tuned(base, adapter=random_adapter(GPTConfig(1, 24, 3, 10)))
    model = tuned(base)
    with pytest.raises(ConfigError, match="made on the weights"):
        model.swap(one)
    assert model.adapter.base_sha256 == base.weights_sha256()


def test_a_frozen_weight_has_no_gradient_to_read(base):
    model = tuned(base)
    with pytest.raises(FormatError, match="wte.weight is frozen"):
        model.weight_bytes("wte.weight", "grads")
    assert len(model.weight_bytes("blocks.0.attn.q.lora_down", "m")) == 4 * 24 * 4
    with pytest.raises(ConfigError, match="one with an adapter came"):
        model.save("model.safetensors")


@pytest.mark.native_only(reason="asks for more memory than an address holds")
def test_an_engine_that_is_refused_memory_keeps_what_it_has(machine):
    model = made(machine, CONFIG)
    before = everything(model)
    with pytest.raises(DeviceOutOfMemoryError, match="region params"):
        machine.allocate({"params": 1 << 60})
    assert everything(model) == before and len(model.logits(tokens_of(CONFIG))) == CONFIG.vocabulary
