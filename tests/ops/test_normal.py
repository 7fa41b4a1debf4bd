"""normal: the same bits everywhere, and a distribution near enough to a normal one."""

import numpy as np
import pytest

from posttrainllm.ops.normal import GOLDEN, MASK, mix
from tests.helpers.cases import over_cases
from tests.helpers.kernels import call, check_parity

N = 200_000


def draw(machine, seed=(42, 0), n=N, std=1.0, stream=0):
    return call(machine, "normal", {"N": n}, (std, stream), seed=np.array(seed))["x"]


@over_cases("normal")
def test_parity(machine, case):
    check_parity(machine, case)


def test_splitmix64_gives_its_published_sequence():
    """The first five outputs of Vigna's splitmix64.c from state 1234567."""
    expected = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    assert [mix(1234567 + GOLDEN * (i + 1)) for i in range(5)] == expected


def test_elements_by_hand(any_machine):
    """The formula again, one element at a time on Python's integers."""
    seed, stream = 0xDEADBEEF12345678, 3
    halves = np.array([seed & 0xFFFFFFFF, seed >> 32], np.uint32).view(np.int32)
    key = mix(seed + GOLDEN * (stream + 1))
    expected = []
    for i in range(50):
        words = [mix((key + GOLDEN * (3 * i + j + 1)) & MASK) for j in range(3)]
        total = sum(word >> shift & 0xFFFF for word in words for shift in (0, 16, 32, 48))
        expected.append((total - 6 * 65535) / 65536)
    assert draw(any_machine, halves, 50, 1.0, stream).tolist() == expected


def test_moments(any_machine):
    """Mean 0, variance 1, no skew, Irwin-Hall's kurtosis 3 - 6/(5·12), within five standard errors; support ±6."""
    z = draw(any_machine).astype(np.float64)
    assert abs(z.mean()) < 5 / N**0.5
    assert abs(z.var() - 1) < 5 * (1.9 / N) ** 0.5
    assert abs((z**3).mean()) < 5 * (15 / N) ** 0.5
    assert abs((z**4).mean() - 2.9) < 5 * (96 / N) ** 0.5
    assert 4 < np.abs(z).max() <= 6


def test_neighbours_streams_and_seeds_do_not_resemble_each_other(any_machine):
    base = draw(any_machine).astype(np.float64)
    others = [
        base[1:],
        base[2:],
        draw(any_machine, stream=1),
        draw(any_machine, (43, 0)),
        draw(any_machine, (42, 1)),
        draw(any_machine, (0, 42)),
    ]
    for other in others:
        n = min(N, other.size)
        assert abs((base[:n] * other[:n]).mean()) < 5 / n**0.5


def test_an_element_depends_only_on_seed_stream_and_place(any_machine):
    long = draw(any_machine, n=20_011)
    for n in (1, 17, 8192, 8193):
        assert np.array_equal(draw(any_machine, n=n), long[:n])


@pytest.mark.parametrize("std", [0.5, 0.02, 0.02 / 8**0.5])
def test_std_is_one_rounded_product(any_machine, std):
    assert np.array_equal(draw(any_machine, n=999, std=std), np.float32(std) * draw(any_machine, n=999))
