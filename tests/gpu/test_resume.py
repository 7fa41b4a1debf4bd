"""A run keeps the precision it was trained in, and its loss scale; on a GPU without half precision it goes on in single."""

import pytest
from posttrainllm.backends import webgpu
from posttrainllm.cli_job import Job
from posttrainllm.cli_resume import going_on
from posttrainllm.errors import ConfigError, DeviceUnavailableError, FormatError
from posttrainllm.store.checkpoint import Checkpoint
from posttrainllm.train.state import checkpoint_of, saved_precision, trainer_of

from tests.train.making import text, trainer_on

from .hosts import Lesser

pytestmark = pytest.mark.native_only(reason="wgpu-py drives the GPU here; tests/session and e2e do in the browser")
SCALE = (2.0**13, 40.0)


@pytest.fixture
def saved(open_gpu):
    """A run of three steps in half precision, as it comes back from a file."""
    trainer = trainer_on(open_gpu(precision="f16"), steps=9)
    if trainer.model.machine.precision != "f16":
        pytest.skip("this adapter has no shader-f16")
    trainer.model.machine.set_loss_scale(2.0**13, 37.0)
    for _ in range(3):
        trainer.train_step()
    return Checkpoint.from_safetensors(checkpoint_of(trainer, "a run").to_bytes())


def resumed(checkpoint, monkeypatch, device="webgpu", precision=None):
    """As `train --resume` has it; the text is given."""
    monkeypatch.setattr("posttrainllm.cli_resume.corpus_of", lambda job, checkpoint: text())
    return going_on(Job(device=device, precision=precision), checkpoint)


def test_half_precision_and_its_scale_come_back(saved, monkeypatch, capsys):
    assert saved_precision(saved) == "f16" and (saved.schedule["loss_scale"], saved.schedule["good_steps"]) == SCALE
    trainer = resumed(saved, monkeypatch)
    assert trainer.model.machine.precision == "f16" and trainer.model.machine.loss_scale() == SCALE
    trainer.train_step()
    assert trainer.step == 4 and trainer.model.machine.loss_scale() == (SCALE[0], SCALE[1] + 1)
    assert trainer.model.machine.gradient_scale() == SCALE[0] and not capsys.readouterr().err
    trainer.model.close()


def test_without_half_precision_it_goes_on_in_single_and_says_so(saved, monkeypatch, capsys):
    lesser = Lesser(webgpu.open_adapter(), ("shader-f16",))
    monkeypatch.setattr(webgpu, "open_adapter", lambda: lesser)
    trainer = resumed(saved, monkeypatch)
    assert trainer.model.machine.precision == "f32"
    said = capsys.readouterr().err
    assert "half precision (f16)" in said and "goes on in single precision (f32)" in said
    trainer.train_step()
    assert trainer.step == 4 and saved_precision(checkpoint_of(trainer, "a run")) == "f32"
    trainer.model.close()
    with pytest.raises(DeviceUnavailableError, match="shader-f16"):
        resumed(saved, monkeypatch, precision="f16")


def test_on_the_cpu_engine_it_goes_on_in_single_and_says_so(saved, monkeypatch, capsys):
    trainer = resumed(saved, monkeypatch, "cpu")
    assert trainer.model.machine.name == "cpu" and "half precision (f16)" in capsys.readouterr().err
    trainer.model.close()
    with pytest.raises(ConfigError):
        resumed(saved, monkeypatch, "cpu", "f16")


def test_a_precision_that_is_asked_for_is_taken(saved, monkeypatch, capsys):
    trainer = resumed(saved, monkeypatch, precision="f32")
    assert trainer.model.machine.precision == "f32" and not capsys.readouterr().err
    trainer.model.close()


@pytest.mark.parametrize("scale", [0.0, 3.0, -2.0, 2.0**25, "65536", True, [1.0]])
def test_a_scale_that_none_can_be_is_refused(saved, scale, gpu):
    saved.schedule["loss_scale"] = scale
    with pytest.raises(FormatError, match="loss scale|loss_scale"):
        trainer_of(saved, text(), machine=gpu)
