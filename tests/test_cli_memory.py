"""--memory, --micro-batches, --recompute and --moments: the run is the same, a resumed one too; what cannot be is said in a sentence."""

import json
import re

import pytest

pytest.importorskip("typer", reason="the command line is native")

from posttrainllm.cli_memory import Asked, nbytes_of
from posttrainllm.errors import ConfigError
from posttrainllm.model.choosing import RESERVE_BYTES, planned
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.lora import Adapter
from posttrainllm.model.saving import Saving

from .calling import QUICK, SIZES, call, saved_run, text_file, train  # noqa: F401 - two are fixtures

pytestmark = pytest.mark.native_only(reason="the command line is native")
HOW = [*SIZES, *QUICK, "--device", "cpu", "--threads", 1]


def ended(events):
    return events[-1]["weights_sha256"], events[-1]["train_loss_nats"]


def test_recomputed_blocks_leave_a_run_as_it_is_also_where_it_goes_on(text, tmp_path):
    straight = train(*text, *HOW, "--steps", 8)
    saved = train(*text, *HOW, "--steps", 8, "--recompute", 1)
    assert ended(straight) == ended(saved)
    assert straight[0]["saving"] == {"micro_batches": 1, "recompute": 0, "moments": "f32"} and saved[0]["saving"]["recompute"] == 1
    assert saved[0]["memory"]["total_bytes"] < straight[0]["memory"]["total_bytes"]
    train(*text, *HOW, "--steps", 4, "--recompute", "1", "--out", tmp_path / "run")
    went_on = train(*text, "--steps", 8, "--out", tmp_path / "run", "--resume", "--device", "cpu", "--threads", 1)
    assert ended(went_on) == ended(straight) and went_on[0]["saving"]["recompute"] == 1


def test_parts_and_smaller_moments_go_on_bit_for_bit(text, tmp_path):
    how = ["--micro-batches", 2, "--moments", "bf16"]
    straight = train(*text, *HOW, "--steps", 6, *how)
    train(*text, *HOW, "--steps", 3, *how, "--out", tmp_path / "run")
    more = ["--steps", 6, "--out", tmp_path / "run", "--resume", "--device", "cpu", "--threads", 1]
    went_on = train(*text, *more)
    assert ended(went_on) == ended(straight) and went_on[0]["saving"] == {"micro_batches": 2, "recompute": 0, "moments": "bf16"}


def test_for_a_limit_the_cheapest_is_chosen():
    config = GPTConfig.preset("medium")
    limit = planned(config, None, Saving(recompute=2)).total_bytes + RESERVE_BYTES
    assert Asked(memory_bytes=limit).saving(config) == Saving(2) and Asked(memory_bytes=limit, micro_batches=1).saving(config) == Saving(recompute=2)
    assert Asked(memory_bytes=limit, micro_batches=4).saving(config) == Saving(4)
    assert Asked(memory_bytes=limit, recompute=0).saving(config) == Saving(2)
    assert Asked(recompute="auto").saving(config) == Saving() == Asked().saving(config)
    assert Asked(moments="8bit").saving(config, moments="bf16") == Saving(moments="8bit")
    assert Asked().saving(config, moments="bf16") == Saving(moments="bf16")
    assert Asked(memory_bytes=limit).saving(config, parts=False).micro_batches == 1
    with pytest.raises(ConfigError, match="divides the batch of 16; 3 came; use 4"):
        Asked(micro_batches=3).saving(config)
    with pytest.raises(ConfigError, match="in 2 parts"):
        Asked(memory_bytes=limit, recompute=1, micro_batches=1).saving(config)
    with pytest.raises(ConfigError, match="native engine"):
        Asked(memory_bytes=limit).plainly()


def test_explain_shows_bytes_by_kind_and_what_choices_cost():
    out, _ = call("explain", "--preset", "tiny", "--stage", "memory", "--recompute", 1)
    for word in ("weights", "gradients", "moments", "activations", "scratch", "1 block computed again", "micro_batches", "extra time"):
        assert word in out
    kinds, choices = (json.loads(line) for line in call("explain", "--preset", "tiny", "--stage", "memory", "--json", "--memory", "12M")[0].splitlines())
    rows = {row[0]: row[1] for row in kinds["rows"]}
    assert rows["total"] == sum(nbytes for kind, nbytes in rows.items() if kind != "total") <= 12 << 20
    assert [row[0] for row in choices["rows"]][0] == "plain" and {row[3] for row in choices["rows"]} <= {"yes", "no"}
    assert "again(blocks.0.ln_1)" in call("explain", "--preset", "tiny", "--stage", "plan", "--recompute", 1)[0]


@pytest.mark.parametrize("text_, nbytes", [("3G", 3 << 30), ("512M", 512 << 20), ("1.5 GiB", 3 << 29), ("4000000000", 4_000_000_000), ("64kb", 64 << 10)])
def test_sizes_as_people_type_them(text_, nbytes):
    assert nbytes_of(text_) == nbytes


@pytest.mark.parametrize("arguments, says", [
    (["--memory", "much"], "3G, 512M"), (["--memory", "0"], "3G, 512M"), (["--recompute", "some"], "a number of blocks, or auto"),
    (["--recompute", "9"], "at most the model's"), (["--micro-batches", "3"], "divides the batch"), (["--memory", "1M"], "no batch fits"),
])  # fmt: skip
def test_what_cannot_be_is_said_in_a_sentence(text, arguments, says):
    _, said = call("train", *text, *HOW, *arguments, status=1)
    assert re.search(says, said) and "Traceback" not in said


def test_a_bench_says_what_it_saved():
    line, _ = call("bench", "--preset", "tiny", "--batch", 4, "--steps", 2, "--warmup-steps", 1, "--recompute", 2, "--micro-batches", 2, "--json")
    found = json.loads(line)
    assert found["saving"] == {"micro_batches": 2, "recompute": 2, "moments": "f32"}
    assert found["flops_per_step"] == planned(GPTConfig.preset("tiny", batch=4), None, Saving(2, 2)).flops


def test_adapters_and_tuning_save_memory_too(saved, tmp_path):
    base = ["--from", tmp_path / "run", "--device", "cpu", "--json"]
    common = ["--data", tmp_path / "fox.txt", "--steps", 4, "--evaluation-tokens", 64]
    plain = [json.loads(line) for line in call("lora", *base, *common, "--out", tmp_path / "a")[0].splitlines()]
    less = [json.loads(line) for line in call("lora", *base, *common, "--out", tmp_path / "b", "--recompute", 1)[0].splitlines()]
    assert Adapter.load(tmp_path / "a").weights == Adapter.load(tmp_path / "b").weights
    assert plain[0]["saving"] != less[0]["saving"] and less[0]["memory"]["total_bytes"] < plain[0]["memory"]["total_bytes"]
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"prompt": f"{n}", "response": "x" * (n % 4 + 1)}) + "\n" for n in range(20)))
    call("sft", *base, "--pairs", rows, "--out", tmp_path / "c", "--steps", 2, "--micro-batches", 2, "--memory", "12M")
    likes = tmp_path / "likes.jsonl"
    likes.write_text("".join(json.dumps({"prompt": f"{n}", "chosen": "x", "rejected": "y"}) + "\n" for n in range(20)))
    call("dpo", *base, "--preferences", likes, "--out", tmp_path / "d", "--steps", 2, "--recompute", 1)
    kinds = {"lora": common, "sft": ["--pairs", rows, "--steps", 2], "dpo": ["--preferences", likes, "--steps", 2]}
    for kind, more in kinds.items():
        small = json.loads(call(kind, *base, *more, "--out", tmp_path / f"small-{kind}", "--moments", "8bit", "--memory", "12M")[0].splitlines()[0])
        assert small["saving"] == {"micro_batches": 1, "recompute": 0, "moments": "8bit"}, kind
        Adapter.load(tmp_path / f"small-{kind}")
    _, said = call("dpo", *base, "--preferences", likes, "--out", tmp_path / "e", "--memory", "2M", status=1)
    assert "2,097,152" in said and not (tmp_path / "e").exists()


def test_without_a_limit_the_machines_memory_is_chosen_for_and_told(text, monkeypatch):
    config = GPTConfig.preset("medium")
    monkeypatch.setattr("posttrainllm.cli_memory.available_bytes", lambda: planned(config, None, Saving(4)).total_bytes + RESERVE_BYTES)
    assert Asked().saving(config) == Saving(4) and Asked(recompute=1).saving(config) == Saving(recompute=1)
    assert Asked().saving(config, was=Saving(2)) == Saving(2)
    monkeypatch.setattr("posttrainllm.cli_memory.available_bytes", lambda: 2 * (planned(config, None, Saving(4)).total_bytes + RESERVE_BYTES))
    assert Asked().saving(config) == Saving(2) and Asked().saving(config, how={"device": "reference"}) == Saving(4)
    out, _ = call("train", *text, *HOW, "--steps", 1, "--micro-batches", 2, "--recompute", 1)
    assert "the batch in 2 parts (micro_batches=2) with 1 block computed again" in out


def test_a_gpus_memory_is_what_it_will_hold(monkeypatch):
    from posttrainllm import cli_memory
    from posttrainllm.model.held import predicted
    from posttrainllm.model.program import Program

    from .gpu.fake import fake_machine

    config = GPTConfig.preset("medium")
    monkeypatch.setattr(cli_memory, "open_machine", lambda *_: fake_machine(monkeypatch))
    need = predicted(Program(config), fake_machine(monkeypatch).predictor)["total_bytes"]
    assert need > planned(config).total_bytes + RESERVE_BYTES
    how = {"device": "webgpu"}
    assert Asked(memory_bytes=need).saving(config, how=how) == Saving() == Asked().saving(config, how=how)
    assert Asked(memory_bytes=need - 1).saving(config, how=how) == Saving(2) and Asked(memory_bytes=need - 1).saving(config) == Saving()


def test_explain_informs_where_nothing_fits():
    out, _ = call("explain", "--preset", "medium", "--stage", "memory", "--memory", "12M")
    assert "It does not fit" in out and re.search(r"The least is [\d,]+ bytes", out) and "8,388,608" in out and "Choices" in out
