"""What a Piece tells of the likeliest tokens: judged by numpy's own softmax, and never at the cost of the text."""

import math

import numpy as np
import pytest
from posttrainllm.decode.choices import choice_of, token_text
from posttrainllm.decode.generate import write
from posttrainllm.errors import ConfigError
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.live import GPT
from posttrainllm.model.program import Program


CONFIG = GPTConfig.preset("tiny")


@pytest.fixture
def model(any_machine):
    made = GPT(CONFIG, any_machine, Program(CONFIG, training=False))
    made.initialise(1)
    return made


def test_log_probabilities_are_the_softmax_of_all_logits():
    logits = np.random.default_rng(1).normal(0, 5, 300).astype(np.float32)
    exact = logits.astype(np.float64)
    exact -= np.log(np.exp(exact - exact.max()).sum()) + exact.max()
    order = np.argsort(-exact, kind="stable")
    for token in (int(order[0]), int(order[7]), int(order[-1])):
        found = choice_of(memoryview(logits), token, 10)
        assert found.logprob_nats == pytest.approx(exact[token], abs=1e-6)
        assert order[found.rank] == token
        assert [each for each, _ in found.top] == order[:10].tolist()
        assert [value for _, value in found.top] == pytest.approx(exact[order[:10]], abs=1e-6)


def test_a_token_that_may_not_come_has_no_probability_and_huge_logits_overflow_nothing():
    found = choice_of([-math.inf, 900.0, 899.0], 0, 5)
    assert found.logprob_nats == -math.inf and found.rank == 2
    assert sum(math.exp(value) for _, value in found.top) == pytest.approx(1)


def test_each_piece_tells_of_its_own_token_and_the_text_stays_the_same(model):
    plain = list(write(model, "To be", 40, temperature=1.5, seed=3))
    told = list(write(model, "To be", 40, temperature=1.5, seed=3, choices=5))
    assert [piece.text for piece in told] == [piece.text for piece in plain] and plain[0].choice is None
    seen = list(b"To be")
    for piece in told:
        logits = np.array(model.logits(seen[-model.config.context :]), dtype=np.float64) if len(seen) <= model.config.context else None
        if logits is not None:
            exact = logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())
            assert piece.choice.logprob_nats == pytest.approx(exact[piece.choice.token], abs=1e-5)
        assert len(piece.choice.top) == 5
        seen.append(piece.choice.token)
    assert bytes(seen[5:]).decode("utf-8", "replace") == "".join(piece.text for piece in told)


def test_greedy_takes_the_first_of_the_top(model):
    assert all(piece.choice.top[0][0] == piece.choice.token and piece.choice.rank == 0 for piece in write(model, "x", 20, temperature=0, choices=1))


@pytest.mark.parametrize("count", [-1, 1.5, True])
def test_how_many_is_a_whole_number(model, count):
    with pytest.raises(ConfigError, match="choices"):
        write(model, "x", 5, choices=count)


def test_a_token_as_people_read_it(model):
    assert (token_text(model.tokenizer, 65), token_text(model.tokenizer, 0xC3)) == ("A", "\\xc3")
