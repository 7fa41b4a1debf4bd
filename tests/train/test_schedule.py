"""The learning rate and AdamW's recipe: right against math, and made of sums and products only."""

import ast
import inspect
import math
from fractions import Fraction
from itertools import pairwise

import pytest

from posttrainllm.train import schedule
from posttrainllm.train.schedule import cosine, integer_power, learning_rate, recipe

SETTINGS = {
    "learning_rate": 3e-4, "minimum_learning_rate_fraction": 0.1, "warmup_steps": 100, "decay_steps": 2000, "beta1": 0.9,
    "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1, "clip": 1.0,
}  # fmt: skip


def test_cosine_is_the_cosine():
    worst = max(abs(cosine(i / 10_000) - math.cos(math.pi * i / 10_000)) for i in range(10_001))
    assert worst <= 1e-15


def test_nothing_of_libm_is_used():
    """math.cos and ** may differ in the last bit between systems."""
    tree = ast.parse(inspect.getsource(schedule))
    assert not any(isinstance(node, ast.Pow) for node in ast.walk(tree))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert imported == set()


@pytest.mark.parametrize(
    ("step", "bits"),
    [
        (1, "0x1.8eaaa0fa1332cp-19"),
        (101, "0x1.3a92a30553260p-12"),
        (777, "0x1.d5cd890c0c914p-13"),
        (1500, "0x1.34be63da945a0p-14"),
    ],
)
def test_rates_are_these_bits_everywhere(step, bits):
    assert learning_rate(step, SETTINGS).hex() == bits


def test_warm_up_is_linear_to_the_peak_and_the_cosine_ends_on_the_floor():
    settings = SETTINGS | {
        "learning_rate": 1.0,
        "warmup_steps": 9,
        "decay_steps": 110,
        "minimum_learning_rate_fraction": 0.25,
    }
    rates = [learning_rate(step, settings) for step in range(1, 131)]
    assert rates[:10] == pytest.approx([k / 10 for k in range(1, 11)], abs=1e-15)
    assert max(rates) == rates[9] and rates[109:] == [0.25] * 21
    for step in range(10, 111):
        wanted = 0.25 + 0.75 * (1 + math.cos(math.pi * (step - 10) / 100)) / 2
        assert rates[step - 1] == pytest.approx(wanted, abs=1e-15)
    assert all(a > b for a, b in pairwise(rates[9:110]))


def test_without_warm_up_the_first_step_has_the_peak():
    assert learning_rate(1, SETTINGS | {"warmup_steps": 0}) == pytest.approx(SETTINGS["learning_rate"], rel=1e-15)
    assert learning_rate(1, SETTINGS | {"warmup_steps": 0, "decay_steps": 1}) == pytest.approx(3e-5)
    shortest = SETTINGS | {"warmup_steps": 4, "decay_steps": 5}
    assert [learning_rate(step, shortest) for step in (4, 5, 6)] == pytest.approx([2.4e-4, 3e-5, 3e-5])


def test_the_rate_does_not_depend_on_the_steps_asked_for():
    for step in (1, 50, 101, 1000, 5000):
        assert len({learning_rate(step, SETTINGS | {"steps": steps}) for steps in (1, 100, 10_000)}) == 1


@pytest.mark.parametrize("base", [0.9, 0.95, 0.999, 0.0])
def test_powers_are_right_to_the_last_places(base):
    for exponent in (1, 2, 3, 7, 64, 1000, 12345):
        assert integer_power(base, exponent) == pytest.approx(
            float(Fraction(base) ** exponent), rel=exponent * 2.0**-52
        )
    assert integer_power(base, 0) == 1.0


def test_the_recipe_is_what_adamw_reads():
    lr, beta1, beta2, eps, decay, clip, correction1, correction2 = recipe(3, SETTINGS)
    assert (beta1, beta2, eps, decay, clip) == (0.9, 0.95, 1e-8, 0.1, 1.0)
    assert lr == learning_rate(3, SETTINGS)
    assert correction1 == pytest.approx(1 / (1 - 0.9**3), rel=1e-14)
    assert correction2 == pytest.approx(1 / (1 - 0.95**3), rel=1e-14)
    assert recipe(1_000_000, SETTINGS)[6:] == (1.0, 1.0)
    assert recipe(1, SETTINGS | {"beta1": 0.0})[6] == 1.0
