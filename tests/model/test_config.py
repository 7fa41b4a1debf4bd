"""Sizes of a GPT: what is refused, in which words; and the presets with their parameter counts."""

import pytest

from posttrainllm.configs import load
from posttrainllm.errors import ConfigError
from posttrainllm.model.config import LIMITS, GPTConfig
from posttrainllm.model.gpt import parameters

PARAMETERS = {
    "tiny": 70_464,
    "small": 366_432,
    "medium": 842_496,
    "large": 2_743_296,
    "xl": 6_416_896,
    "huge": 9_608_704,
    "massive": 25_039_872,
    "mega": 25_138_176,
    "gpt2": 124_439_808,
    "behemoth": 473_244_160,
}
GOOD = {"layers": 2, "channels": 48, "heads": 3, "context": 32}


def size(shape):
    total = 1
    for extent in shape:
        total *= extent
    return total


def test_every_preset_is_counted():
    assert list(load("presets")) == list(PARAMETERS)


@pytest.mark.parametrize("preset", PARAMETERS)
def test_parameter_counts_are_exact(preset):
    """By the formula, and by adding up the weights themselves."""
    config = GPTConfig.preset(preset)
    assert config.parameter_count() == PARAMETERS[preset]
    assert sum(size(p.shape) for p in parameters(config)) == PARAMETERS[preset]


@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.parametrize("value", [0, -1, 2.0, True, "8", None, 10**9])
def test_a_size_out_of_range_is_named_with_its_value(name, value):
    if (name, value) == ("hidden", None):
        pytest.skip("a width that is not given is 4·C")
    with pytest.raises(ConfigError) as caught:
        GPTConfig(**GOOD | {name: value})
    assert caught.value.code == "E-CONFIG"
    assert f"{name} is a whole number from 1 to {LIMITS[name]:,}" in str(caught.value) and f"{value!r} came" in str(
        caught.value
    )


@pytest.mark.parametrize(("channels", "heads", "advice"), [(50, 3, "use 48 channels"), (4, 6, "use 6 channels")])
def test_heads_must_divide_channels(channels, heads, advice):
    with pytest.raises(ConfigError, match=f"{channels} channels over {heads} heads came.*{advice}"):
        GPTConfig(**GOOD | {"channels": channels, "heads": heads})


@pytest.mark.parametrize("name", LIMITS)
def test_the_limits_themselves_are_allowed(name):
    config = GPTConfig(**GOOD | {"channels": 16384, "heads": 256} | {name: LIMITS[name]})
    assert getattr(config, name) == LIMITS[name]
    assert GPTConfig(1, 1, 1, 1, 1, 1).parameter_count() == 1 + 1 + 12 + 13 + 2


def test_derived_widths():
    config = GPTConfig(**GOOD)
    assert (config.head_width, config.hidden, config.head) == (16, 192, "wte.weight")


UNUSUAL = {"tied": False, "activation": "gelu", "hidden": 100}


@pytest.mark.parametrize("changes", [{name: value} for name, value in UNUSUAL.items()] + [UNUSUAL])
def test_other_shapes_are_counted_and_kept(changes):
    """A head of its own, the exact GELU and an MLP of any width; what GPT-2 has itself is not written down."""
    config = GPTConfig(**GOOD | changes)
    assert sum(size(p.shape) for p in parameters(config)) == config.parameter_count()
    assert GPTConfig.from_dict(config.to_dict()) == config == config.with_batch(16)
    assert config.to_dict() == GPTConfig(**GOOD).to_dict() | changes
    assert GPTConfig(**GOOD, hidden=192) == GPTConfig(**GOOD)
    heads = [p for p in parameters(config) if p.name == "lm_head.weight"]
    assert len(heads) == (0 if config.tied else 1) and all(p.decayed and p.shape == (256, 48) for p in heads)


@pytest.mark.parametrize(("changes", "message"), [({"tied": 1}, "tied is true or false; 1 came"), ({"activation": "relu"}, "gelu_new, gelu; 'relu' came"), ({"activation": []}, "one of gelu_new, gelu; ")])
def test_unusual_settings_that_are_none(changes, message):
    with pytest.raises(ConfigError, match=message.replace("[", r"\[")):
        GPTConfig(**GOOD | changes)


def test_an_unknown_preset_lists_the_known():
    with pytest.raises(ConfigError, match="tiny, small, medium.*'gpt5' came"):
        GPTConfig.preset("gpt5")


def test_preset_with_changes():
    config = GPTConfig.preset("tiny", batch=2, context=8)
    assert (config.batch, config.context, config.channels) == (2, 8, 48)
    assert config.with_batch(5) == GPTConfig.preset("tiny", batch=5, context=8)


def test_plain_json_and_back():
    config = GPTConfig.preset("small")
    assert GPTConfig.from_dict(config.to_dict()) == config
    assert config.to_dict() == load("presets")["small"]
    assert GPTConfig.from_dict(GOOD).vocabulary == 256


@pytest.mark.parametrize("settings", [GOOD | {"depth": 3}, {"layers": 2}, {}])
def test_unknown_and_missing_names(settings):
    with pytest.raises(ConfigError, match="settings are activation, batch, channels, context, heads, hidden, layers, tied, vocabulary"):
        GPTConfig.from_dict(settings)
