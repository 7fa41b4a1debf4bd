"""Losses as bits per byte: exact where a token is a byte and for evaluations, by the text's average for the steps of other tokenizers."""

import csv
import math
from dataclasses import replace

import numpy as np
import pytest

from posttrainllm.data.bpe import BPETokenizer
from posttrainllm.model.live import GPT
from posttrainllm.model.program import Program
from posttrainllm.store.checkpoint import Checkpoint, history_text
from posttrainllm.store.listing import summary_of
from posttrainllm.train.reports import EvalReport, StepReport
from posttrainllm.train.state import checkpoint_of, trainer_of
from posttrainllm.train.trainer import Trainer

from .making import QUICK, TINY, text, trainer_on


def trained(machine, tokenizer, steps=11):
    """(trainer, reports) of a short run with a tokenizer."""
    config = replace(TINY, vocabulary=tokenizer.vocabulary)
    model = GPT(config, machine, Program(config))
    model.tokenizer = tokenizer
    model.initialise(1)
    trainer = Trainer(model, text(), QUICK | {"steps": steps, "evaluation_tokens": 48})
    return trainer, list(trainer.run())


def nats_after(model, tokens, position):
    """-log p of the token at a position given those of its window before it."""
    logits = np.asarray(model.logits(tokens[:position]), np.float64)
    return math.log(np.exp(logits - logits.max()).sum()) + logits.max() - logits[tokens[position]]


def test_with_bytes_it_is_the_loss_over_ln_2(any_machine):
    trainer = trainer_on(any_machine, steps=4)
    for report in trainer.run():
        if isinstance(report, StepReport):
            assert report.bits_per_byte == pytest.approx(report.loss_nats / math.log(2), rel=1e-12)
        elif isinstance(report, EvalReport):
            assert report.bits_per_byte == pytest.approx(report.validation_loss_nats / math.log(2), rel=1e-12)
    assert (trainer.bytes_per_token, trainer.evaluated_bytes_per_token) == (1, 1)


def test_an_evaluation_is_exact_for_the_tokens_it_measured(any_machine):
    tokenizer = BPETokenizer.train(text().data, 280)
    trainer, reports = trained(any_machine, tokenizer)
    last = [report for report in reports if isinstance(report, EvalReport)][-1]
    ids, context = list(trainer.corpus.validation), TINY.context
    windows = (len(ids) - 1) // context
    starts = [windows * i // 6 * context for i in range(6)]  # 48 tokens are six windows of eight
    assert windows > 6, "some are left out"
    nats = nbytes = 0
    for start in starts:
        window = ids[start : start + context + 1]
        for position in range(1, context + 1):
            nats += nats_after(trainer.model, window, position)
            nbytes += len(tokenizer.tokens[window[position]])
    assert last.bits_per_byte == pytest.approx(nats / nbytes / math.log(2), rel=1e-5)
    average = trainer.corpus.bits_per_byte(last.validation_loss_nats)
    assert abs(average / last.bits_per_byte - 1) > 1e-3, "the part's average is another number: this test can tell them apart"


def test_a_step_goes_by_the_training_texts_average(any_machine):
    tokenizer = BPETokenizer.train(text().data, 300)
    trainer, reports = trained(any_machine, tokenizer, steps=3)
    each = trainer.corpus.split / len(trainer.corpus.train)
    assert each > 1.5
    steps = [report for report in reports if isinstance(report, StepReport)]
    assert [report.bits_per_byte for report in steps] == pytest.approx([report.loss_nats / each / math.log(2) for report in steps])


def test_a_saved_run_keeps_its_tokenizer_and_tells_its_bits(any_machine):
    tokenizer = BPETokenizer.train(text().data, 290)
    trainer, reports = trained(any_machine, tokenizer)
    last = [report for report in reports if isinstance(report, EvalReport)][-1]
    checkpoint = Checkpoint.from_safetensors(checkpoint_of(trainer, "rhymes").to_bytes())
    summary = summary_of(checkpoint)
    assert summary["bits_per_byte"] == pytest.approx(last.bits_per_byte)
    assert (summary["tokenizer"], summary["vocabulary"]) == ("bpe", tokenizer.vocabulary)
    lines = [line for line in history_text(checkpoint).splitlines() if not line.startswith("#")]
    rows = list(csv.DictReader(lines))
    assert float(rows[-1]["validation_bits_per_byte"]) == pytest.approx(last.bits_per_byte)
    assert rows[0]["validation_bits_per_byte"] == ""
    steps = [report for report in reports if isinstance(report, StepReport)]
    assert [float(row["bits_per_byte"]) for row in rows] == pytest.approx([report.bits_per_byte for report in steps])
    again = trainer_of(checkpoint, text(), machine=any_machine)
    assert again.model.tokenizer.merges == tokenizer.merges
    assert again.evaluated_bytes_per_token == trainer.evaluated_bytes_per_token


def test_a_run_of_before_is_read_as_bytes_and_nonsense_as_nothing(any_machine):
    trainer = trainer_on(any_machine, steps=2)
    list(trainer.run())
    checkpoint = checkpoint_of(trainer, "rhymes")
    loss = checkpoint.last("validation_loss_nats")
    del checkpoint.corpus["evaluated_bytes_per_token"]
    assert summary_of(checkpoint)["bits_per_byte"] == pytest.approx(loss / math.log(2))
    checkpoint.tokenizer["name"] = "bpe"
    assert summary_of(checkpoint)["bits_per_byte"] is None, "nobody knows how many bytes a token had"
    for nonsense in ("2", True, 0, -1.5, None, [1]):
        checkpoint.corpus["evaluated_bytes_per_token"] = nonsense
        assert summary_of(checkpoint)["bits_per_byte"] is None
