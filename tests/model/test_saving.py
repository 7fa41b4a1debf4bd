"""Saving: the same loss and gradients whatever is saved; what is chosen for a limit; what is refused, and in which words."""

import numpy as np
import pytest

from posttrainllm.backends.reference import ReferenceMachine
from posttrainllm.configs import load
from posttrainllm.data.corpus import Corpus
from posttrainllm.dims import ALIGN_BYTES, PARTIAL_ELEMENTS
from posttrainllm.errors import ConfigError
from posttrainllm.model import choosing
from posttrainllm.model.choosing import RESERVE_BYTES, choices, choose_saving, planned, within
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.live import GPT
from posttrainllm.model.lora import LoRAConfig
from posttrainllm.model.memory import require_fit
from posttrainllm.model.preference import preference_step
from posttrainllm.model.program import Program, evaluation, rows_to_evaluate, training_step
from posttrainllm.model.saving import MOMENTS, PLAIN, Saving
from posttrainllm.model.slots import dloss_of, loss_of, shares, spread, unpack_metrics
from posttrainllm.waiting import now
from tests.helpers.models import Model, batch, recipe
from tests.model.test_parity import CONFIGS, compare, judged, one_step

EIGHT = GPTConfig(layers=3, channels=24, heads=2, context=128, vocabulary=40, batch=8)
"""1,024 rows: with 2 or 4 parts each part's rows are whole blocks of 256, in which the CPU engine adds along a product."""
BLOCK_ROWS = 256


def gradients_of(machine, config, saving, tokens, targets):
    model = Model(machine, config, saving=saving)
    metrics = model.step(tokens, targets, recipe(1, 0.0))
    return metrics, model.gradients()


def counted(config, number=0):
    """A batch whose every target counts: a power of two of them."""
    tokens, targets = batch(config, number)
    return tokens, np.where(targets < 0, 1, targets).astype(np.int32)


@pytest.mark.parametrize("parts", [2, 4])
def test_gradients_of_parts_have_the_bits_of_the_whole_where_the_order_of_sums_allows(machine, parts):
    """Linear layers add whole blocks of rows in order, so parts of whole blocks add the same numbers in the same order. The embeddings'
    and norms' sums are taken part by part, and round otherwise."""
    assert EIGHT.batch // parts * EIGHT.context % BLOCK_ROWS == 0
    data = counted(EIGHT)
    (loss, _), whole = gradients_of(machine, EIGHT, PLAIN, *data)
    (split_loss, _), split = gradients_of(machine, EIGHT, Saving(parts), *data)
    products = [name for name in whole if name.split(".")[-2] in ("qkv", "proj", "fc")] + ["wpe.weight"]
    assert len(products) == 8 * EIGHT.layers + 1
    for name in products:
        assert np.array_equal(whole[name], split[name]), name
    assert any(not np.array_equal(whole[name], split[name]) for name in whole), "the test could not tell parts from the whole"
    assert split_loss == pytest.approx(loss, rel=2e-7)


def test_a_share_that_is_wrong_is_noticed(machine, monkeypatch):
    """Of 2 parts with as many targets each both count half; with the whole's dloss for each gradients are twice as large."""
    data = counted(EIGHT)
    _, whole = gradients_of(machine, EIGHT, PLAIN, *data)
    monkeypatch.setattr("posttrainllm.model.steps.shares", lambda targets, parts: np.ones((len(targets), parts), "<f4"))
    _, wrong = gradients_of(machine, EIGHT, Saving(2), *data)
    assert np.array_equal(2 * whole["wpe.weight"], wrong["wpe.weight"])


@pytest.mark.parametrize("name", ["odd", "tiny", "one token"])
def test_in_parts_a_step_is_as_near_the_judge_as_in_one(machine, name):
    """Targets that do not count lie unevenly over the parts. The bound is the one that the whole batch is held to."""
    expected, allowed = judged(name, one_step)
    config = CONFIGS[name]
    model = Model(machine, config, saving=Saving(config.batch, config.layers))
    rng = np.random.default_rng(99)
    for value in model.program.layout.values().values():
        model.write(value, (model.read(value) + 0.1 * rng.standard_normal(value.shape)).astype(np.float32))
    tokens, targets = batch(config, 0)
    loss, _ = model.step(tokens, targets, recipe(1, 0.0))
    assert loss == pytest.approx(float(expected["loss"][0]), abs=allowed["loss"])
    got = model.gradients()
    compare(got, {key: expected[key] for key in got}, allowed)


@pytest.mark.parametrize("ignored", [0, 7, 24, 36], ids=lambda count: f"{count} ignored")
def test_the_judge_finds_parts_equal_to_the_whole(ignored):
    """In float64, up to the shares, which are float32: also where a part has no target that counts, or none has."""
    config = GPTConfig(layers=2, channels=12, heads=2, context=12, vocabulary=20, batch=3)
    tokens, targets = counted(config)
    targets.reshape(-1)[:ignored] = -100
    (loss, norm), whole = gradients_of(ReferenceMachine(), config, PLAIN, tokens, targets)
    for saving in (Saving(3), Saving(3, 2)):
        (split_loss, split_norm), split = gradients_of(ReferenceMachine(), config, saving, tokens, targets)
        assert split_loss == pytest.approx(loss, rel=1e-7) and split_norm == pytest.approx(norm, rel=1e-7)
        for name, gradient in whole.items():
            assert np.abs(split[name] - gradient).max() <= 1e-7 * max(1e-30, np.abs(gradient).max()), name


def test_shares_are_of_what_counts():
    targets = np.array([[[1, -100, 3, 4], [-100, -100, -100, 2]], [[-100] * 4, [-100] * 4]], np.int32)
    assert shares(targets, 2).tolist() == [[0.75, 0.25], [0.0, 0.0]]


def test_parts_lie_apart_and_their_losses_come_together():
    step = training_step(GPTConfig(1, 8, 1, 6, 20, 4), saving=Saving(2))
    assert (step.parts, step.batch(), step.tokens.shape, step.targets.offset_bytes) == (2, (4, 6), (2, 6), 512)
    rows, image = np.arange(24, dtype=np.int32).reshape(1, 4, 6), np.full((1, 128), -1, np.int32)
    spread(rows, step.tokens, 2, image)
    assert image[0, :12].tolist() == list(range(12)) and image[0, 64:76].tolist() == list(range(12, 24)) and (image[0, 12:64] == -1).all()
    assert len({dloss_of(part, 3).offset_bytes for part in range(3)} | {dloss_of(0, 1).offset_bytes}) == 4
    data = bytearray(1024)
    data[256:260] = np.array([3.0], "<f4").tobytes()
    for part, (loss, count) in enumerate([(2.0, 3), (4.0, 1)]):
        at = loss_of(part).offset_bytes
        data[at : at + 8] = np.array([loss, count], "<f4").tobytes()
    assert unpack_metrics(bytes(data), 2) == (2.5, 3.0)


def test_evaluating_gives_the_same_losses_in_parts(machine):
    """An output row does not depend on how many rows are computed with it."""
    tokens, targets = (np.ascontiguousarray(each, "<i4").tobytes() for each in batch(EIGHT, 3))
    found = []
    for saving in (PLAIN, Saving(4)):
        model = GPT(EIGHT, machine, Program(EIGHT, saving=saving))
        model.initialise(5)
        found.append((bytes(now(model.losses_async(tokens, targets))), model.evaluate(np.arange(4000) % 40, 3000)))
    assert found[0] == found[1]


LONG = GPTConfig(layers=36, channels=16, heads=2, context=16, vocabulary=40, batch=6)
"""Gradients, keys and values of so many blocks lend a recomputed step nearly all it needs: its arena holds 5 of 6 rows' evaluation."""


def test_a_recomputed_step_is_evaluated_in_as_few_rows_as_it_needs_memory_for(machine):
    """In 3 rows, for 5 would not divide the batch and 6 would make the run's memory larger; with the bits of all 6 at once."""
    again = Saving(recompute=LONG.layers)
    need = {rows: evaluation(LONG, rows=rows).plan.region_bytes["arena"] for rows in (3, 5, 6)}
    program = Program(LONG, saving=again)
    most = program.step.plan.region_bytes["arena"]
    assert need[3] < need[5] <= most < need[6], "the test could not tell"
    assert program.evaluation.tokens.shape == (3, LONG.context) and program.region_bytes()["arena"] == most
    assert planned(LONG, None, again).memory == program.memory()
    data, found = batch(LONG, 3), []
    tokens, targets = (np.ascontiguousarray(each, "<i4").tobytes() for each in data)
    for made in (Program(LONG), program):
        model = GPT(LONG, machine, made)
        model.initialise(5)
        losses = bytes(now(model.losses_async(tokens, targets)))
        assert len(losses) == 4 * LONG.batch * LONG.context
        found.append((losses, model.evaluate(np.arange(900) % 40, 700)))
    assert found[0] == found[1]


@pytest.mark.parametrize("fitting, rows", [(12, 12), (11, 6), (5, 4), (1, 1), (0, 1)])
def test_rows_to_evaluate_divide_the_batch(fitting, rows):
    config = GPTConfig.preset("tiny", batch=12)
    assert rows_to_evaluate(config, Saving(recompute=1), lambda each: each <= fitting) == rows
    assert rows_to_evaluate(config, PLAIN, lambda each: each <= fitting) == 12, "a plain step's evaluation is as it was"
    assert rows_to_evaluate(config, Saving(2, 1), lambda each: each <= fitting) == max(each for each in (6, 3, 2, 1) if each <= max(1, fitting))


# What is chosen


@pytest.mark.parametrize("preset", load("presets"))
def test_the_first_that_fits_is_chosen(preset):
    """No block too many, and no part: fewer blocks fit in no number of parts, nor as many in fewer. Moments are never touched."""
    config = GPTConfig.preset(preset, **({"batch": 2} if preset == "behemoth" else {}))  # with one row it has nothing to save but moments
    plain = planned(config).total_bytes
    least = min(planned(config, None, Saving(parts, config.layers)).total_bytes for parts in choosing.divisors(config.batch))
    assert choose_saving(config, None, plain + RESERVE_BYTES) == PLAIN == choose_saving(config)
    for share in (0.02, 0.4, 0.9):
        limit = int(least + share * (plain - least)) + RESERVE_BYTES
        found, fits = choose_saving(config, None, limit), within(config, None, limit)
        assert fits(found) and found.moments == "f32" and found != PLAIN
        fewer = [parts for parts in choosing.divisors(config.batch) if parts < found.micro_batches]
        assert not any(fits(Saving(parts, found.recompute)) for parts in fewer)
        assert found.recompute == 0 or not any(fits(Saving(parts, found.recompute - 1)) for parts in choosing.divisors(config.batch))
    with pytest.raises(ConfigError, match=f"need {plain + RESERVE_BYTES:,}") as caught:
        choose_saving(config, None, least + RESERVE_BYTES - 1)
    assert caught.value.code == "E-CONFIG-PLAN"


def test_what_costs_no_time_is_chosen_before_what_does():
    medium, behemoth = GPTConfig.preset("medium"), GPTConfig.preset("behemoth", batch=64)
    assert choose_saving(medium, None, 30 << 20) == Saving(8) and choose_saving(behemoth, None, 24 << 30) == Saving(4)
    assert choose_saving(medium, None, 30 << 20, parts=[4]) == Saving(4, 3) and choose_saving(medium, None, 60_000_000, parts=[1]) == Saving(recompute=3)
    assert choose_saving(medium, None, 30 << 20, blocks=1).recompute == 1


@pytest.mark.parametrize("lora", [None, LoRAConfig.of()], ids=["plain", "lora"])
@pytest.mark.parametrize("saving", [PLAIN, Saving(2), Saving(4, 1, "bf16"), Saving(1, 2, "8bit")], ids=str)
def test_a_plan_without_tapes_is_the_programs(saving, lora):
    config = GPTConfig.preset("tiny")
    program = Program(config, True, lora, saving)
    assert planned(config, lora, saving).memory == program.memory()
    assert planned(config, lora, saving).flops == program.step.flops() == program.step.tape.flops()
    writing = Program(config, False, lora)
    assert planned(config, lora, PLAIN, False).memory == writing.memory()


def test_bytes_by_kind_add_up_and_each_choice_saves_its_own():
    config = GPTConfig.preset("medium")
    plain, again, split = (planned(config, None, saving).memory for saving in (PLAIN, Saving(recompute=4), Saving(4)))
    for kinds in (plain, again, split):
        assert sum(nbytes for kind, nbytes in kinds.items() if kind != "total_bytes") == kinds["total_bytes"]
    assert again["activations_bytes"] < 0.25 * plain["activations_bytes"] and split["activations_bytes"] < 0.3 * plain["activations_bytes"]
    assert plain["scratch_bytes"] < 0.1 * plain["activations_bytes"]
    for moments, share in (("bf16", 0.5), ("8bit", 17 / 64)):
        small = planned(config, None, Saving(moments=moments)).memory
        assert 0 <= small["moments_bytes"] - share * plain["moments_bytes"] < 2 * ALIGN_BYTES
        assert {kind: small[kind] for kind in ("weights_bytes", "gradients_bytes", "scratch_bytes")} == {
            kind: plain[kind] for kind in ("weights_bytes", "gradients_bytes", "scratch_bytes")
        }
    assert planned(config).memory["other_bytes"] < PARTIAL_ELEMENTS * 4


def test_choices_come_with_what_they_cost():
    config = GPTConfig.preset("medium")
    found = {each.name: each for each in choices(config)}
    assert list(found) == sorted(found, key=lambda name: found[name].extra_time) and next(iter(found)) == "plain"
    assert set(found) == {"plain", "recompute", "micro_batches", "bf16", "8bit", "smallest"} and all(each.fits for each in found.values())
    assert found["recompute"].saving == Saving(recompute=4) and 0.2 < found["recompute"].extra_time < 1 / 3
    assert found["micro_batches"].extra_time == 0.0 and found["plain"].total_bytes == max(each.total_bytes for each in found.values())
    limit = planned(config, None, Saving(2, 1)).total_bytes + RESERVE_BYTES
    tight = {each.name: each for each in choices(config, None, within(config, None, limit))}
    assert not tight["plain"].fits and tight["micro_batches"].saving == Saving(4) and tight["smallest"].fits
    assert [each.name for each in choices(GPTConfig.preset("behemoth"))] == ["plain", "bf16", "8bit", "smallest"]
    assert found["smallest"].to_dict()["saving"] == {"micro_batches": 16, "recompute": 4, "moments": "8bit"}


def test_a_refusal_names_what_fits():
    config = GPTConfig.preset("medium")
    for limit, says in ((60_000_000, "in 2 parts"), (30_000_000, "in 16 parts"), (20_500_000, "moments in (bf16|8bit)")):
        with pytest.raises(ConfigError, match=says):
            require_fit(Program(config), limit)
    with pytest.raises(ConfigError, match="no batch fits"):
        require_fit(Program(config), 9_000_000)


def test_a_model_is_made_for_the_memory_there_is(machine):
    del machine
    model = GPT.create("tiny", device="cpu", threads=1, memory_bytes=RESERVE_BYTES + 1_700_000, saving=Saving(moments="bf16"))
    try:
        assert model.program.saving != Saving(moments="bf16") and model.program.saving.moments == "bf16"
        assert model.program.memory()["total_bytes"] <= 1_700_000
    finally:
        model.close()
    with pytest.raises(ConfigError, match="E-CONFIG-PLAN|computed again|batch|fits"):
        GPT.create("tiny", device="cpu", memory_bytes=1000)


@pytest.mark.native_only(reason="reads a run's file")
def test_a_saved_run_is_loaded_for_the_memory_there_is(machine, tmp_path):
    """Without a word as the run did; within a limit in the cheapest way, with the moments that the run has."""
    from posttrainllm.train.files import write_checkpoint
    from posttrainllm.train.state import checkpoint_of
    from posttrainllm.train.trainer import Trainer

    del machine
    model = GPT.create("tiny", device="cpu", threads=1, saving=Saving(2, 1, "bf16"))
    trainer = Trainer(model, Corpus("hamlet", b"To be, or not to be, that is the question. " * 600), {"steps": 2, "warmup_steps": 1, "evaluation_tokens": 64})
    trainer.train_step()
    write_checkpoint(checkpoint_of(trainer, "a run"), tmp_path / "run.safetensors")
    model.close()
    limit = RESERVE_BYTES + 1_700_000
    for given, wanted in (
        ({"training": True}, Saving(2, 1, "bf16")), ({"training": True, "saving": Saving(recompute=2)}, Saving(recompute=2)), ({}, Saving()),
        ({"training": True, "memory_bytes": limit}, None), ({"training": True, "memory_bytes": limit, "saving": Saving(moments="8bit")}, None),
    ):  # fmt: skip
        loaded = GPT.load(tmp_path / "run.safetensors", device="cpu", threads=1, **given)
        got = loaded.program.saving
        assert got == (wanted or got) and (wanted or loaded.program.memory()["total_bytes"] <= 1_700_000)
        assert wanted or got.moments == given.get("saving", Saving(moments="bf16")).moments
        loaded.close()
    for wrong in ({"memory_bytes": "1G"}, {"saving": {"recompute": 1}}, {"training": True, "memory_bytes": 1000}):
        with pytest.raises(ConfigError):
            GPT.load(tmp_path / "run.safetensors", device="cpu", **wrong)


# What is refused


@pytest.mark.parametrize("settings", [
    {"micro_batches": 0}, {"micro_batches": 1.0}, {"micro_batches": True}, {"recompute": -1}, {"recompute": "auto"}, {"moments": "f16"},
    {"moments": None}, {"blocks": 1},
])  # fmt: skip
def test_what_is_no_saving_is_refused(settings):
    with pytest.raises(ConfigError, match="saving"):
        Saving.from_dict(settings)


def test_what_does_not_suit_a_model_is_refused_with_what_does():
    config = GPTConfig.preset("tiny", batch=12)
    with pytest.raises(ConfigError, match="divides the batch of 12; 5 came; use 6"):
        Program(config, saving=Saving(5))
    with pytest.raises(ConfigError, match="at most the model's 2 blocks; 3 came; use 2"):
        Program(config, saving=Saving(recompute=3))
    with pytest.raises(ConfigError, match="pairs go through in one part"):
        preference_step(config, 2, saving=Saving(2))
    assert Saving.from_dict(Saving(2, 1, "8bit").to_dict()) == Saving(2, 1, "8bit") and Saving.from_dict({}) == PLAIN
    assert MOMENTS[0] == PLAIN.moments
