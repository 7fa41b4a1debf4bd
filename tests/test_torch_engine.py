"""The torch engine in one process: the same weights to begin with, the same curve, the same saves, and what it refuses."""

import math
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

pytestmark = pytest.mark.native_only(reason="PyTorch is native")

from tests.helpers.peers import peer

torch = peer("torch")

from posttrainllm.cli_memory import Asked
from posttrainllm.data.corpus import Corpus
from posttrainllm.errors import ConfigError, DataError, DeviceOutOfMemoryError, DeviceUnavailableError
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.live import GPT
from posttrainllm.model.saving import Saving
from posttrainllm.ops.adamw import ADAMW
from posttrainllm.ops.normal import NORMAL
from posttrainllm.torch_engine import adamw, initial
from posttrainllm.torch_engine.model import TorchGPT
from posttrainllm.torch_engine.ranks import Ranks
from posttrainllm.torch_engine.running import _going_on
from posttrainllm.train.files import hold_run
from posttrainllm.train.moments import in_full
from posttrainllm.train.schedule import recipe
from posttrainllm.train.settings import training_settings
from posttrainllm.train.trainer import Trainer

from .calling import call, text_file, train  # noqa: F401 - text_file is the fixture `text`

OTHER = GPTConfig(layers=2, channels=24, heads=2, context=16, vocabulary=256, batch=6, tied=False, activation="gelu", hidden=40)
SMALL = GPTConfig.preset("small")
QUICK = {"evaluation_tokens": 512, "evaluate_every_steps": 10}
TINY = ["--preset", "tiny", "--evaluation-tokens", "128", "--evaluate-every-steps", "10", "--threads", "1"]
ONE = Ranks(1, 0, torch.device("cpu"))


def made(config, seed=42, **how):
    model = TorchGPT(config, ONE, threads=1, **how)
    model.initialise(seed)
    return model


def curve(model, steps=20):
    trainer = Trainer(model, Corpus("letters", bytes(97 + (i * i + i // 7) % 26 for i in range(20000))), QUICK)
    list(trainer.run(steps))
    return trainer.history


def far(one, other):
    """The largest difference of two histories in any of their losses and norms."""
    assert [row["step"] for row in one] == [row["step"] for row in other]
    keys = ("loss_nats", "validation_loss_nats", "gradient_norm", "learning_rate")
    assert [[row[key] is None for key in keys] for row in one] == [[row[key] is None for key in keys] for row in other]
    return max(abs(a[key] - b[key]) for a, b in zip(one, other) for key in keys if a[key] is not None)


@pytest.fixture(scope="module")
def native():
    """(first weights, 20 steps' history) of both shapes on the CPU engine."""
    found = {}
    for config in (SMALL, OTHER):
        model = GPT.create(config, seed=42, threads=1)
        first = {name: model.weight_bytes(name) for name in model.weight_names()}
        found[config] = first, curve(model)
        model.close()
    return found


@pytest.mark.parametrize("config", [SMALL, OTHER], ids=["small", "untied"])
def test_first_weights_have_the_same_bits_and_20_steps_the_same_losses(native, config):
    first, history = native[config]
    model = made(config)
    assert {name: model.weight_bytes(name) for name in model.weight_names()} == first
    assert far(curve(model), history) < 1e-4


def test_any_rows_of_a_weight_are_made_by_themselves():
    whole, rows = torch.empty(50, 7), torch.empty(9, 7)
    initial.normal_(whole, 0.02, 3, (1 << 63) - 1)
    initial.normal_(rows, 0.02, 3, (1 << 63) - 1, 41 * 7)
    assert torch.equal(whole[41:], rows)
    judge, seed = np.empty(350, np.float32), np.frombuffer(((1 << 63) - 1).to_bytes(8, "little"), "<i4")
    NORMAL.run({"N": 350}, (0.02, 3), seed, judge)
    assert np.array_equal(whole.numpy().ravel(), judge)


@pytest.mark.parametrize("how", [{"saving": Saving(4, 0)}, {"saving": Saving(2, 3)}], ids=str)
def test_parts_and_recomputing_change_nothing_but_rounding(native, how):
    assert far(curve(made(SMALL, **how)), native[SMALL][1]) < 1e-4


def test_bf16_learns_alike_but_is_not_f32(native):
    model = made(SMALL, precision="bf16")
    history = curve(model)
    assert 1e-4 < far(history, native[SMALL][1]) < 0.2
    assert all(model.held(name, region).dtype == torch.float32 for name in model.weight_names() for region in ("params", "m", "v"))


def test_adamw_is_the_ops_one():
    rng = np.random.default_rng(0)
    values = recipe(3, training_settings({"clip": 0.5, "learning_rate": 0.01}))
    for scale, decayed in ((1e-3, 1), (10.0, 1), (10.0, 0)):
        grad, param, m, v = (rng.standard_normal(1000).astype(np.float32) for _ in range(4))
        grad, v = grad * np.float32(scale), v * v
        theirs = [torch.tensor(each) for each in (param, m, v)]
        norm = np.array([np.linalg.norm(grad)], np.float32)
        group = adamw.Group.of(bool(decayed), *([each] for each in theirs))
        adamw.update([(group, [torch.tensor(grad)])], torch.tensor(norm[0]), values)
        ADAMW.run({"N": 1000}, (decayed,), grad, norm, np.array(values, np.float32), param, m, v)
        for ours, judge in zip(theirs, (param, m, v)):
            np.testing.assert_allclose(ours.numpy(), judge, rtol=2e-6, atol=1e-7)


def rows_of(config, seed=1):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (2, config.batch, config.context)).astype("<i4")


@pytest.mark.parametrize("ignored", ["some", "all"])
def test_targets_that_do_not_count(ignored):
    tokens, targets = rows_of(OTHER)
    targets[:1], targets[3, ::2] = -100, -7
    if ignored == "all":
        targets[:] = -100
    values = recipe(1, training_settings({"warmup_steps": 0, "weight_decay": 0.5}))
    native, ours = GPT.create(OTHER, threads=1), made(OTHER, saving=Saving(3))
    given = tokens.tobytes(), targets.tobytes(), values
    np.testing.assert_allclose(ours.step(*given), native.step(*given), rtol=1e-5)
    evaluated = ours.losses([given[:2]])
    assert evaluated[1] == (targets >= 0).sum() and (evaluated[0] > 0) == (ignored == "some")
    for region in ("params", "m", "v"):
        for name in ours.weight_names():
            both = (np.frombuffer(model.weight_bytes(name, region), "<f4") for model in (ours, native))
            np.testing.assert_allclose(*both, atol=2e-5, err_msg=f"{region} {name}")
    native.close()


def test_a_number_that_is_not_finite_changes_nothing():
    model = made(OTHER)
    model.set_weight_bytes("ln_f.bias", np.full(24, np.nan, "<f4"))
    before = [model.weight_bytes(name, region) for name in model.weight_names() for region in ("params", "m", "v")]
    loss, norm = model.step(*(each.tobytes() for each in rows_of(OTHER)), recipe(1, training_settings()))
    assert math.isnan(loss) and not math.isfinite(norm)
    assert before == [model.weight_bytes(name, region) for name in model.weight_names() for region in ("params", "m", "v")]


def test_a_run_goes_from_engine_to_engine_with_its_moments(text, tmp_path):  # noqa: F811
    straight = tmp_path / "straight"
    train(*text, *TINY, "--steps", 30, "--out", straight)
    out, torch_engine = ["--out", tmp_path / "run"], ["--engine", "torch"]
    resume = [*text, *out, "--resume", "--threads", 1]
    train(*text, *TINY, "--steps", 10, *out)
    before = saved(tmp_path / "run")
    train(*resume, *torch_engine, "--steps", 10)
    after = saved(tmp_path / "run")
    assert after[1:] == before[1:], "taken over and saved again, no bit has changed"
    assert train(*resume, *torch_engine, "--steps", 20)[-1]["step"] == 20
    train(*resume, "--steps", 30)
    history, *_ = saved(tmp_path / "run")
    assert far(history, saved(straight)[0]) < 1e-4


def test_a_run_goes_on_saving_memory_as_it_did(text, tmp_path):  # noqa: F811
    out = [*text, "--out", tmp_path / "run"]
    train(*out, *TINY, "--steps", 2, "--micro-batches", 2, "--recompute", 1)
    how = [train(*out, "--resume", "--threads", 1, *more)[0]["saving"] for more in (
        ["--steps", 3, "--engine", "torch"], ["--steps", 4, "--engine", "torch", "--recompute", 2], ["--steps", 5], ["--steps", 6, "--engine", "torch", "--micro-batches", 1],
    )]  # fmt: skip
    assert [(each["micro_batches"], each["recompute"]) for each in how] == [(2, 1), (1, 2), (1, 2), (1, 0)]


def test_parts_that_several_processes_cannot_have_are_left_out(capsys):
    job, batch = SimpleNamespace(asked=Asked(), saving=Saving()), GPTConfig.preset("tiny", batch=12)
    for world, wanted in ((1, Saving(4, 1)), (3, Saving(4, 1)), (2, Saving(1, 1))):
        assert _going_on(job, Ranks(world, 0, torch.device("cpu")), batch, Saving(4, 1, "bf16")) == wanted
    assert "which 2 processes cannot" in capsys.readouterr().err


def saved(folder):
    """(history, weights and moments by name, cursor) of a run's last save."""
    with hold_run(folder) as run:
        checkpoint = run.load()
        groups = {"params": checkpoint.weights, "m": checkpoint.m, "v": checkpoint.v}
        tensors = {(region, name): bytes(tensor.view()) for region, group in groups.items() for name, tensor in group.items()}
        return checkpoint.history, tensors, checkpoint.cursor, checkpoint.step


def test_a_run_of_its_own_writes_text_and_is_opened_by_the_others(text, tmp_path):  # noqa: F811
    export = tmp_path / "run.safetensors"
    events = train(*text, *TINY, "--engine", "torch", "--precision", "bf16", "--steps", 2, "--sample-every", "0.000001", "--export", export)
    assert [event["event"] for event in events].count("sample") == 2 and "PyTorch" in events[0]["engine"]
    assert call("sample", "--from", export, "--tokens", 5)[0]


def test_what_it_refuses(text, monkeypatch, tmp_path):  # noqa: F811
    torch_engine = [*text, *TINY, "--engine", "torch"]
    for more, wanted in (
        (["--precision", "f16"], "--precision f16"),
        (["--device", "webgpu"], "webgpu came"),
        (["--micro-batches", "3"], "micro_batches divides the batch"),
        ([] if torch.cuda.is_available() else ["--device", "cuda"], "torch finds no CUDA device"),
    ):
        if more:
            assert wanted in call("train", *torch_engine, *more, status=1)[1]
    assert "add --engine torch" in call("train", *text, *TINY, "--precision", "bf16", status=1)[1]
    with pytest.raises(ConfigError, match="moments are f32"):
        made(SMALL, saving=Saving(moments="bf16"))
    with pytest.raises(ConfigError, match=r"3 processes x 2 micro-batches = 6 parts"):
        Ranks(3, 0, torch.device("cpu")).require_fit(SMALL, Saving(2))
    with pytest.raises(DataError, match="vocabulary"):
        made(OTHER).losses([tuple(each.tobytes() for each in rows_of(OTHER) + 256)])
    monkeypatch.setitem(sys.modules, "torch", None)
    assert "posttrainllm[torch]" in call("train", *torch_engine, status=1)[1]


def test_no_memory_is_said_with_what_helps(monkeypatch):
    model = made(OTHER)

    def full(*_):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 …")

    monkeypatch.setattr(model.wrapped, "backward", full)
    with pytest.raises(DeviceOutOfMemoryError, match="CUDA out of memory; use --micro-batches"):
        model.step(*(each.tobytes() for each in rows_of(OTHER)), recipe(1, training_settings()))


def test_a_process_more_than_there_are_devices(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(DeviceUnavailableError, match="process 2 came"):
        Ranks.open("auto")


def test_nothing_else_imports_torch():
    code = "import sys, posttrainllm.cli, posttrainllm.cli_train, posttrainllm.session.core; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize("moments", ["bf16", "8bit"])
def test_a_run_of_smaller_moments_goes_on_with_them_in_full(text, tmp_path, moments):  # noqa: F811
    given = [*text, "--out", tmp_path / "run", "--threads", 1]
    train(*given, *TINY, "--moments", moments, "--steps", 5)
    with hold_run(tmp_path / "run") as run:
        wanted = {name: bytes(tensor.view()) for name, tensor in in_full(run.load())["m"].items()}
    train(*given, "--resume", "--engine", "torch", "--steps", 5)
    with hold_run(tmp_path / "run") as run:
        assert {name: bytes(tensor.view()) for name, tensor in run.load().m.items()} == wanted
