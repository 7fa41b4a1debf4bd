"""A run as a checkpoint and back: exact, and nothing foreign or hostile reaches a live model."""

import math
from dataclasses import replace

import pytest

from posttrainllm.data.corpus import Corpus
from posttrainllm.errors import ConfigError, DataError, FormatError, PostTrainError
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.live import GPT
from posttrainllm.model.program import Program
from posttrainllm.store.buffers import Tensor
from posttrainllm.store.checkpoint import Checkpoint, weights_sha256
from posttrainllm.train.state import checkpoint_of, model_of, trainer_of, weights_checkpoint
from posttrainllm.train.trainer import Trainer

from .making import TINY, model_on, state_bytes, text, trainer_on


def saved(trainer):
    """The run as it comes back from a file."""
    return Checkpoint.from_safetensors(checkpoint_of(trainer, "a run").to_bytes())


def without_seconds(history):
    return [{key: value for key, value in row.items() if key != "seconds"} for row in history]


def test_a_hundred_steps_are_fifty_and_fifty(machine):
    straight = trainer_on(machine, steps=100, evaluate_every_steps=25)
    list(straight.run())
    wanted, history = state_bytes(straight.model), without_seconds(straight.history)
    first = trainer_on(machine, steps=100, evaluate_every_steps=25)
    list(first.run(50))
    checkpoint = saved(first)
    other = model_on(machine, seed=999)
    assert state_bytes(other) != wanted
    resumed = trainer_of(checkpoint, text(), model=other)
    list(resumed.run())
    assert state_bytes(resumed.model) == wanted
    assert without_seconds(resumed.history) == history
    assert resumed.batches.cursor == straight.batches.cursor
    assert resumed.best_loss_nats == straight.best_loss_nats
    assert resumed.validation_loss_nats == straight.validation_loss_nats


def test_cut_at_any_step_it_is_the_same_run(machine):
    """The text is short: the cuts fall in several epochs."""
    straight = trainer_on(machine, steps=12)
    list(straight.run())
    wanted = straight.model.weights_sha256()
    run = trainer_on(machine, steps=12)
    while run.step < 12:
        list(run.run(run.step + 1))
        run = trainer_of(saved(run), text(), machine=machine)
    assert run.model.weights_sha256() == wanted


@pytest.mark.native_only(reason="learns merges through the native engine")
def test_a_run_on_another_tokenizer_s_tokens_goes_on_with_the_text_it_is_given(machine):
    """The text is given as it is; the run's own tokenizer makes it the tokens it was trained on."""
    from posttrainllm.data.bpe import BPETokenizer

    tokenizer = BPETokenizer.train(text().data, 300)

    def made():
        config = replace(TINY, vocabulary=tokenizer.vocabulary)
        model = GPT(config, machine, Program(config))
        model.tokenizer = tokenizer
        model.initialise(5)
        return Trainer(model, text(), {"steps": 8, "evaluate_every_steps": 4, "warmup_steps": 2})

    straight = made()
    assert len(straight.corpus.train) < len(text().train), "merges make fewer tokens than bytes"
    list(straight.run())
    wanted = straight.model.weights_sha256()
    first = made()
    list(first.run(5))
    resumed = trainer_of(saved(first), text(), machine=machine)
    list(resumed.run())
    assert resumed.model.weights_sha256() == wanted and resumed.batches.cursor == straight.batches.cursor


@pytest.mark.native_only(reason="opens engines of other widths and thread counts")
def test_a_run_goes_on_exactly_on_another_number_of_threads():
    from posttrainllm.backends.native import CpuMachine

    def opened(threads):
        return CpuMachine(threads)

    straight = trainer_on(opened(1), steps=20)
    list(straight.run())
    first = trainer_on(opened(2), steps=20)
    list(first.run(10))
    resumed = trainer_of(saved(first), text(), machine=opened(3))
    list(resumed.run())
    assert state_bytes(resumed.model) == state_bytes(straight.model)


def test_everything_of_a_run_comes_back(any_machine):
    trainer = trainer_on(any_machine, steps=30, clip=0.5)
    list(trainer.run(7))
    checkpoint = saved(trainer)
    assert checkpoint.resumable and checkpoint.step == 7 and checkpoint.config == TINY.to_dict()
    assert checkpoint.corpus == {
        "name": "rhymes", "sha256": text().sha256, "bytes": len(text().data), "bytes_per_token": 1, "evaluated_bytes_per_token": 1,
    }  # fmt: skip
    assert checkpoint.created and checkpoint.app_version and checkpoint.rng == {"seed": 1}
    assert checkpoint.last("validation_loss_nats") == trainer.validation_loss_nats
    wanted, before = trainer.model.weights_sha256(), state_bytes(trainer.model)
    assert weights_sha256(checkpoint.weights) == wanted, "one hash, from a file or from a live model"
    again = trainer_of(checkpoint, text(), machine=any_machine)
    for name in ("step", "settings", "seconds", "history", "best_loss_nats", "validation_loss_nats", "tokens_per_step"):
        assert getattr(again, name) == getattr(trainer, name), name
    assert again.batches.cursor == trainer.batches.cursor and again.model.tokenizer.name == "bytes"
    assert state_bytes(again.model) == before


def test_a_run_without_an_evaluation_keeps_its_infinite_best(any_machine):
    again = trainer_of(saved(trainer_on(any_machine)), text(), machine=any_machine)
    assert again.best_loss_nats == math.inf and again.validation_loss_nats is None and again.step == 0


def test_a_checkpoint_copies_nothing(machine):
    trainer = trainer_on(machine)
    before = weights_sha256(checkpoint_of(trainer, "x").weights)
    live = checkpoint_of(trainer, "x")
    trainer.train_step()
    assert weights_sha256(live.weights) == trainer.model.weights_sha256() != before


def test_a_model_without_its_run_writes_but_does_not_go_on(any_machine):
    made = model_on(any_machine)
    wanted = made.weights_sha256()
    checkpoint = Checkpoint.from_safetensors(weights_checkpoint(made, "x").to_bytes())
    assert not checkpoint.resumable
    assert model_of(checkpoint, machine=any_machine).weights_sha256() == wanted
    for asked in (
        lambda: model_of(checkpoint, True, machine=any_machine),
        lambda: trainer_of(checkpoint, text(), machine=any_machine),
    ):
        with pytest.raises(FormatError, match="weights only"):
            asked()


def test_another_text_is_refused_by_name_and_hash(any_machine):
    checkpoint, other = saved(trainer_on(any_machine)), Corpus.from_text(text().data.decode() + "!", "rhymes, longer")
    with pytest.raises(DataError) as caught:
        trainer_of(checkpoint, other, machine=any_machine)
    for word in ("rhymes", "rhymes, longer", text().sha256, other.sha256, "start a new run"):
        assert word in str(caught.value)


def set_field(name, value):
    return lambda checkpoint: setattr(checkpoint, name, value)


def set_item(name, key, value):
    return lambda checkpoint: getattr(checkpoint, name).update({key: value})


def drop(name, key):
    return lambda checkpoint: getattr(checkpoint, name).pop(key)


def f32(*shape):
    return Tensor("F32", shape, bytes(4 * math.prod(shape)))


HOSTILE = {
    "a weight is missing": drop("weights", "ln_f.bias"),
    "a weight too many": set_item("weights", "extra.weight", f32(3)),
    "a weight of another shape": set_item("weights", "ln_f.bias", f32(17)),
    "a weight turned over": set_item("weights", "blocks.0.mlp.fc.weight", f32(64, 16)),
    "a weight of another dtype": set_item("weights", "ln_f.bias", Tensor("F16", (16,), bytes(32))),
    "a weight whose data is short": set_item("weights", "ln_f.bias", Tensor("F32", (16,), bytes(60))),
    "a moment is missing": drop("v", "wte.weight"),
    "a moment of another shape": set_item("m", "ln_f.bias", f32(1, 16)),
    "no moments": set_field("m", {}),
    "sizes of another model": set_item("config", "layers", 2),
    "absurd sizes": set_item("config", "channels", 0),
    "sizes that are text": set_item("config", "heads", "2"),
    "no sizes": set_field("config", {}),
    "a vocabulary below the tokenizer's": set_item("config", "vocabulary", 100),
    "another tokenizer": set_field("tokenizer", {"name": "bpe"}),
    "a setting out of range": set_item("training", "clip", -1.0),
    "an unknown setting": set_item("training", "momentum", 0.9),
    "a setting is missing": drop("training", "beta2"),
    "a cursor below zero": set_item("cursor", "window", -1),
    "a cursor of text": set_item("cursor", "epoch", "0"),
    "a cursor beyond counting": set_item("cursor", "epoch", 1 << 60),
    "no cursor": set_field("cursor", {}),
    "a loss that is text": set_item("schedule", "best_loss_nats", "low"),
    "a history beyond the step": set_field("history", [{"step": 99}]),
    "a history without steps": set_field("history", [{"loss_nats": 1.0}]),
    "a history of text": set_field("history", [{"step": 1, "loss_nats": "low"}]),
    "no text": set_field("corpus", {}),
    "another text": set_item("corpus", "sha256", "ab" * 32),
}


@pytest.mark.parametrize("harm", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_checkpoint_is_a_sentence_and_changes_nothing(any_machine, harm):
    trainer = trainer_on(any_machine)
    trainer.train_step()
    checkpoint = saved(trainer)
    trainer.train_step()
    before, live = state_bytes(trainer.model), trainer.model
    harm(checkpoint)
    with pytest.raises(PostTrainError) as caught:
        trainer_of(checkpoint, text(), model=live)
    assert caught.value.kind == "user" and caught.value.code in (
        "E-FORMAT-TENSOR",
        "E-FORMAT-METADATA",
        "E-DATA",
        "E-CONFIG",
    )
    assert state_bytes(live) == before
    trainer.train_step()


def test_a_live_model_of_other_sizes_is_refused(any_machine):
    checkpoint = saved(trainer_on(any_machine))
    for other in (model_on(any_machine, GPTConfig(2, 16, 2, 8, 256, 4)), model_on(any_machine, training=False)):
        with pytest.raises(ConfigError, match="sizes"):
            trainer_of(checkpoint, text(), model=other)


def test_opening_alone_frees_the_engine_when_the_file_is_wrong(any_machine, monkeypatch):
    """model_of closes a machine it opened, and leaves one it was given."""
    checkpoint, closed = saved(trainer_on(any_machine)), []
    monkeypatch.setattr("posttrainllm.model.live.open_machine", lambda *_: any_machine)
    monkeypatch.setattr(any_machine, "close", lambda: closed.append(True), raising=False)
    checkpoint.weights["ln_f.bias"] = Tensor("F32", (16,), _Unreadable())
    with pytest.raises(FormatError, match="ends"):
        model_of(checkpoint, device="reference", machine=any_machine)
    assert closed == []
    with pytest.raises(FormatError, match="ends"):
        model_of(checkpoint, device="reference")
    assert closed == [True]


class _Unreadable:
    """64 bytes that cannot be read, as in a file that was cut after its header was read."""

    subarray = None
    BYTES_PER_ELEMENT = 1
    byteLength = 64

    def __init__(self):
        self.subarray = self._fail

    def _fail(self, begin, end):
        raise FormatError("the file", "its tensor is there", "it ends before")


def test_trainers_settings_keep_the_split_of_the_text(any_machine):
    trainer = trainer_on(any_machine, validation_fraction=0.3)
    again = trainer_of(saved(trainer), text(), machine=any_machine)
    assert again.corpus.split == trainer.corpus.split != text().split
    assert isinstance(again, Trainer)
