"""However an improvement ends (stopped, closed, a full disk, broken numbers, an error), the version before stays in use and the model is as it was."""

import functools
import math

import pytest

import posttrainllm as pt
from posttrainllm.data.corpus import Corpus
from posttrainllm.errors import ConfigError, DataError, StoreQuotaError
from posttrainllm.model.lora import LoRAConfig
from posttrainllm.store.memory import MemoryVolume
from posttrainllm.store.runs import RunStore, now
from posttrainllm.train.reports import StepReport
from posttrainllm.train.trainer import Live
from posttrainllm.tune.continual.history import adapter_sha256
from posttrainllm.tune.continual.improve import ImprovedReport, improve
from posttrainllm.tune.continual.records import Corrections
from posttrainllm.tune.dpo import PreferenceStepReport
from tests.helpers.machines import open_once
from tests.store.samples import checkpoint

from .making import NATIVE, QUICK, base, corpus, of, run_of


def plain(test):
    """A coroutine as a test; on these engines it never waits."""

    @functools.wraps(test)
    def run(**fixtures):
        now(test(**fixtures))

    return run


def test_reports_come_in_order_and_as_json(records):
    model = base(open_once("cpu-1"))
    reports = list(improve(model, of(records["style"]), corpus(), **QUICK))
    events = [report.event for report in reports if report.event not in ("step", "eval")]
    assert events == ["curated", "phase", "phase", "phase", "phase", "gate", "improved"]
    assert [report.phase for report in reports if report.event == "phase"] == ["measure", "sft", "dpo", "gate"]
    steps = [report for report in reports if isinstance(report, StepReport)]
    assert len(steps) == QUICK["sft_steps"] + QUICK["dpo_steps"] and isinstance(steps[-1], PreferenceStepReport)
    assert isinstance(reports[-1], ImprovedReport) and reports[0].learned == 32 and reports[0].held_out == 8
    assert all(report.to_dict()["event"] == report.event for report in reports)


@pytest.mark.parametrize("phase", ["measure", "sft", "dpo", "gate"])
@pytest.mark.parametrize("way", ["stop", "close"])
def test_an_improvement_that_is_ended_leaves_all_as_it_was(records, phase, way):
    model, kept = base(open_once("cpu-1")), of(records["style"])
    before = model.weights_sha256()
    asked, reached = [], []
    reports = improve(model, kept, corpus(), live=Live(asked=lambda: "stop" if asked else ""), **QUICK | {"sft_steps": 12, "dpo_steps": 4})
    for report in reports:
        if report.event == "phase" and report.phase == phase:
            reached.append(phase)
            asked.append(1)
            if way == "close":
                reports.close()
                break
    assert reached and model.lora is None and model.weights_sha256() == before and len(kept.history) == 0
    if way == "stop":
        assert report.event == "improved" and report.version is None and not report.promoted and report.message.startswith("Stopped, as asked")


@NATIVE
def test_what_was_on_the_model_before_is_put_back(records):
    model = base(open_once("cpu-1"))
    model.attach(LoRAConfig(3, 5.0, ("attn.q",)), seed=9, training=False, name="mine")
    model.strength = 0.5
    before = model.weights_sha256(), adapter_sha256(model.adapter)
    _, last = run_of(model, of(records["poison"]), sft_steps=12, dpo_steps=0)
    assert not last.promoted
    assert (model.weights_sha256(), adapter_sha256(model.adapter)) == before and model.strength == 0.5 and model.adapter.name == "mine"


@NATIVE
def test_a_promotion_that_cannot_be_written_changes_nothing(records):
    model, volume = base(open_once("cpu-1")), MemoryVolume()
    with now(RunStore(volume).create("mine", "mine")) as run:
        run.save(checkpoint(1))
        kept = Corrections(run.journal)
        kept.add_jsonl(records["style"])
        volume.limit_bytes = sum(file.size() for file in volume.runs["mine"].values()) + 1000
        with pytest.raises(StoreQuotaError):
            run_of(model, kept)
        assert model.lora is None and kept.history.in_use is None and len(kept) == 50
        volume.limit_bytes = None
        _, last = run_of(model, kept)
        assert last.promoted
        sha = adapter_sha256(model.adapter)
    with now(RunStore(volume).open("mine")) as run:
        again = Corrections(run.journal).history
        assert again.in_use.number == 1 and adapter_sha256(again.adapter(1)) == sha and again.in_use.to_dict()["figures"]["held_out_rows"] == 8


@NATIVE
def test_numbers_that_are_none_keep_it_aside(records):
    model = base(open_once("cpu-1"))
    kept = of(records["style"])
    _, last = run_of(model, kept, sft_learning_rate=1.0, replay_share=0.0, adapter={"alpha": 900_000.0})
    assert not last.promoted and model.lora is None
    assert "Training broke off" in last.reasons[0] or "the weights are broken" in last.reasons[0] or len(last.reasons) >= 2, last.reasons
    row = kept.history[1]
    assert not row.promoted and all(value is None or not isinstance(value, float) or math.isfinite(value) for value in row.figures.values())


@plain
async def test_the_async_twin_does_the_same_through_another_way_to_attach(records):
    model, kept, put = base(open_once("cpu-1")), of(records["style"]), []

    async def attach(what, **how):
        put.append((type(what).__name__, how["training"]))
        await model.attach_async(what, **how)

    last = None
    async for last in pt.improve_async(model, kept, corpus(), attach=attach, **QUICK):
        pass
    assert last.promoted and put == [("LoRAConfig", True), ("Adapter", False)]
    reports = pt.improve_async(model, of(records["poison"]), corpus(), attach=attach, **QUICK)
    async for report in reports:
        if report.event == "step":
            break
    await reports.aclose()
    assert adapter_sha256(model.adapter) == last.adapter_sha256 and put[2:] == [("LoRAConfig", True), ("Adapter", False)]


@pytest.mark.parametrize(
    ("corpus_of", "settings", "said"),
    [
        (lambda: None, {}, "the text that the model was trained on is there"),
        (lambda: Corpus.from_text("short text " * 5), {}, "holds at least one window"),
        (corpus, {"sft_step": 3}, "'sft_step' came"),
        (corpus, {"start": "nothing"}, "start is base or version"),
        (corpus, {"gate": 3}, "gate holds settings by name"),
        (corpus, {"adapter": {"rank": 0}}, "rank is a whole number"),
    ],
    ids=["no text", "short text", "name", "start", "gate", "rank"],
)
def test_what_cannot_be_is_a_sentence_before_anything_is_changed(records, corpus_of, settings, said):
    model, kept = base(open_once("cpu-1")), of(records["style"])
    with pytest.raises((DataError, ConfigError)) as caught:
        list(improve(model, kept, corpus_of(), **QUICK | settings))
    assert said in str(caught.value) and model.lora is None and len(kept.history) == 0


@NATIVE
def test_a_version_of_another_base_is_said_and_stays(records):
    model, kept = base(open_once("cpu-1")), of(records["style"])
    run_of(model, kept)
    other = base(open_once("cpu-1"))
    name = other.weight_names()[0]
    other.set_weight_bytes(name, bytes(len(other.weight_bytes(name))))
    with pytest.raises(ConfigError, match="it was made on the weights with sha256"):
        run_of(other, kept)
    with pytest.raises(ConfigError, match="it was made on the weights with sha256"):
        kept.history.put_on(other, 1)
    assert other.lora is None and kept.history.in_use.number == 1
