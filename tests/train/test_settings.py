"""Training settings: one table of defaults, every value checked."""

import math

import pytest

from posttrainllm.configs import load
from posttrainllm.errors import ConfigError
from posttrainllm.train.settings import _RANGES, training_settings


def test_the_defaults_are_the_table_and_pass_their_own_check():
    assert training_settings() == load("training")
    assert set(load("training")) == {*_RANGES, "on_trouble"}


def test_the_recipe_of_the_reference():
    """The figures that hold everywhere; the rate and beta2 are the search's (docs/log.md, Recipe), the rest the reference's."""
    settings = training_settings()
    assert [settings[name] for name in ("beta1", "beta2", "weight_decay", "clip", "seed")] == [0.9, 0.99, 0.1, 1.0, 42]
    assert settings["learning_rate"] == 0.0045


def test_wider_models_get_a_lower_rate():
    rates = [training_settings(channels=channels)["learning_rate"] for channels in (48, 128, 256, 768)]
    assert rates == pytest.approx([0.0045, 0.0045, 0.00225, 0.00075])
    assert training_settings({"learning_rate": 0.1}, channels=768)["learning_rate"] == 0.1


@pytest.mark.parametrize("name", _RANGES)
def test_each_setting_has_its_range_and_kind(name):
    kind, low, high = _RANGES[name]
    beyond = 1 if kind is int else 1e-3
    for value in (low - beyond, high + max(beyond, high * 1e-6), math.nan, math.inf, "3", None, True, [1]):
        if name == "seed" and value == high + max(beyond, high * 1e-6):
            value = high + 1
        with pytest.raises(ConfigError, match=f"training: {name} is a (whole )?number from .* came") as caught:
            training_settings({name: value})
        assert caught.value.code == "E-CONFIG"
    if kind is int:
        with pytest.raises(ConfigError, match="whole number"):
            training_settings({name: low + 0.5})
    else:
        assert training_settings({name: int(high) if high >= 1 else low})[name] in (int(high), low)


def test_what_to_do_in_trouble_is_one_of_two():
    assert training_settings({"on_trouble": "stop"})["on_trouble"] == "stop"
    for value in ("go on", None, 3):
        with pytest.raises(ConfigError, match="on_trouble is one of roll_back, stop"):
            training_settings({"on_trouble": value})


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ConfigError, match=r"learning_rate.*'lr' came"):
        training_settings({"lr": 1e-3})


def test_warm_up_must_end_before_the_decay_does():
    with pytest.raises(ConfigError, match="warmup_steps is smaller than decay_steps; 50 and 50 came"):
        training_settings({"warmup_steps": 50, "decay_steps": 50})


def test_a_change_does_not_touch_the_table():
    training_settings({"steps": 3})["clip"] = 99
    assert training_settings()["clip"] == 1.0 and training_settings()["steps"] == load("training")["steps"]


def test_bounds_are_in_plain_digits():
    with pytest.raises(ConfigError, match="from 1 to 10,000,000; 20000000 came"):
        training_settings({"steps": 20_000_000})
