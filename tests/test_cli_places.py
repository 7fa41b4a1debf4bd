"""Where results of the command line go: a bad place is said before the first step, and nothing is replaced unasked."""

import json
import shutil

import pytest

pytest.importorskip("typer", reason="the command line is native")

from posttrainllm.model.lora import Adapter
from posttrainllm.train.trainer import Trainer

from .calling import SIZES, call, saved_run, text_file, train  # noqa: F401 - two are fixtures

pytestmark = pytest.mark.native_only(reason="the command line is native")


@pytest.fixture(name="place")
def place_with_a_run(saved, tmp_path, monkeypatch):
    """The present folder: run/, base.safetensors (the same), fox.txt, pairs.jsonl, and ad/, an adapter."""
    train(*saved[0][2:], *SIZES, "--steps", 1, "--export", tmp_path / "base.safetensors")
    (tmp_path / "pairs.jsonl").write_text(json.dumps({"prompt": "fox", "response": "dog"}))
    monkeypatch.chdir(tmp_path)
    call("lora", "--from", "base.safetensors", "--data", "fox.txt", "--evaluation-tokens", 64, "--steps", 2, "--out", "ad")
    return tmp_path


@pytest.fixture
def no_step(monkeypatch):
    """Fail where a step is trained."""

    def refuse(self, *_):
        raise AssertionError("a step was trained")

    monkeypatch.setattr(Trainer, "run", refuse)
    monkeypatch.setattr(Trainer, "blocks", refuse)


LORA = ["lora", "--data", "fox.txt", "--evaluation-tokens", 64]
SFT = ["sft", "--pairs", "pairs.jsonl"]
BASE, RUN = ["--from", "base.safetensors"], ["--from", "run"]
REFUSED = [
    (LORA, BASE, ["--out", "fox.txt"], "fox.txt is a file"),
    (LORA, BASE, ["--out", "fox.txt/ad"], "the folder can be written"),
    (LORA, BASE, ["--out", "/proc/nowhere"], "the folder can be written"),
    (LORA, BASE, ["--out", "new", "--merge", "none/m.safetensors"], "writing none/m.safetensors"),
    (LORA, BASE, ["--out", "new", "--export", "none/m.safetensors"], "writing none/m.safetensors"),
    (LORA, BASE, ["--out", "new", "--merge", "run"], "run is a folder"),
    (LORA, BASE, ["--merge", "./base.safetensors"], "what --from names is only read"),
    (LORA, BASE, ["--export", "link.safetensors"], "what --from names is only read"),
    (LORA, BASE, ["--adapter", "ad", "--merge", "ad/adapter_model.safetensors"], "what --adapter names is only read"),
    (LORA, BASE, ["--merge", "m.safetensors", "--export", "m.safetensors"], "each result has a place of its own"),
    (LORA, RUN, ["--out", "run"], "a run is saved in run"),
    (LORA, RUN, ["--merge", "run/merged.safetensors"], "a run is saved in run"),
    (LORA, BASE, ["--out", "ad"], "an adapter is in ad; choose another, or add --overwrite"),
    (["lora"], BASE, ["--adapter", "ad", "--merge", "base.safetensors"], "what --from names is only read"),
    (SFT, BASE, ["--out", "ad"], "an adapter is in ad"),
    (SFT, RUN, ["--out", "run"], "a run is saved in run"),
    (SFT, BASE, ["--out", "/proc/nowhere"], "the folder can be written"),
    (SFT, BASE, ["--full", "--out", "/none/f.safetensors"], "writing /none/f.safetensors"),
    (SFT, BASE, ["--full", "--out", "base.safetensors", "--overwrite"], "what --from names is only read"),
    (SFT, BASE, ["--full", "--out", "other.safetensors"], "other.safetensors is there already"),
    (["train", "--data", "fox.txt", *SIZES], [], ["--export", "none/r.safetensors"], "writing none/r.safetensors"),
]


@pytest.mark.parametrize(("command", "source", "options", "said"), REFUSED)
def test_a_bad_place_is_said_before_the_first_step(place, no_step, command, source, options, said):
    (place / "link.safetensors").symlink_to(place / "base.safetensors")
    shutil.copy(place / "base.safetensors", place / "other.safetensors")
    kept = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    _, error = call(*command, *source, *options, "--steps" if command != ["lora"] else "--strength", 2, status=1)
    assert said in error
    assert {path: path.read_bytes() for path in place.rglob("*") if path.is_file()} == kept
    assert not (place / "new").exists(), "what was made for nothing goes again"


def test_an_adapter_is_replaced_where_that_is_asked(place):
    before = Adapter.load("ad").weights
    call(*SFT, *BASE, "--out", "ad", "--steps", 2, "--between", ">", "--overwrite")
    tuned = Adapter.load("ad").weights
    assert tuned != before and (place / "ad" / "tuning.json").exists()
    call(*LORA, *BASE, "--out", "ad", "--steps", 2, "--overwrite", "--export", "half.safetensors")
    assert Adapter.load("ad").weights == before and not (place / "ad" / "tuning.json").exists(), "its template went with it"
    call("lora", *BASE, "--data", "fox.txt", "--resume", "half.safetensors", "--steps", 4, "--out", "ad", "--export", "half.safetensors")
    assert Adapter.load("ad").weights != before, "a run that goes on keeps its place"
    call(*SFT, *BASE, "--full", "--out", "f.safetensors", "--steps", 1)
    call(*SFT, *BASE, "--full", "--out", "f.safetensors", "--steps", 1, "--overwrite")


def test_an_adapters_folder_is_made_with_those_above_it(place):
    call(*LORA, *BASE, "--out", "deep/down/ad", "--steps", 1)
    assert Adapter.load("deep/down/ad").name == "ad"


def test_every_command_takes_an_adapter_in_all_its_forms(place):
    call(*LORA, *BASE, "--steps", 2, "--export", "half.safetensors")
    for number, form in enumerate(("half.safetensors", "ad", "ad/adapter_model.safetensors")):
        how = [*BASE, "--adapter", form]
        call("sample", *how, "--tokens", 2)
        call("lora", *how, "--merge", "m.safetensors")
        call(*SFT, *how, "--steps", 1, "--out", f"s{number}")
        out, _ = call("memorise", *how, "--data", "fox.txt", "--prefixes", 8, "--prefix-tokens", 2, "--continuation-tokens", 2, "--json",
                      "--validation-fraction", 0.5, status=1)  # fmt: skip
        assert "passages" in json.loads(out.splitlines()[-1])["message"], "the adapter was taken; the text repeats itself"
    for command in (["sample"], ["lora", "--merge", "m.safetensors"], [*SFT, "--out", "s9"], ["memorise", "--data", "fox.txt"]):
        _, error = call(*command, *BASE, "--adapter", "run", status=1)
        assert "run is a whole model's run" in error, command


@pytest.mark.parametrize("before", [(), ("runs",), ("runs/new", "runs/new/mine.txt")], ids=["nothing", "runs", "the folder"])
def test_a_run_that_cannot_begin_leaves_no_folder(place, before):
    for name in before:
        (place / name).write_text("mine") if name.endswith(".txt") else (place / name).mkdir(parents=True)
    there = sorted(place.rglob("*"))
    train("--data", place / "fox.txt", *SIZES, "--out", "runs/new", "--isa", "none", status=1)
    assert sorted(place.rglob("*")) == there
    train("--data", place / "fox.txt", *SIZES, "--out", "runs/new", "--steps", 1)
    assert (place / "runs" / "new" / "slot-A.bin").stat().st_size


def test_a_run_that_was_saved_stays_where_it_then_fails(place, monkeypatch):
    monkeypatch.setattr(Trainer, "run", lambda *_: (_ for _ in ()).throw(ArithmeticError("of the test")))
    with pytest.raises(ArithmeticError):
        train("--data", place / "fox.txt", *SIZES, "--out", "runs/new", "--steps", 3)
    assert (place / "runs" / "new" / "slot-A.bin").stat().st_size
