"""How the lens sharpens over a run's snapshots: each row is the lens of the model as it was."""

import numpy as np
import pytest

from posttrainllm import study
from posttrainllm.errors import ConfigError, DataError, FormatError
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.live import GPT
from posttrainllm.model.program import Program
from posttrainllm.store.disk import DiskVolume
from posttrainllm.store.runs import RunStore, now
from posttrainllm.store.volume import SNAPSHOTS_FILE
from posttrainllm.study.sharpen import need_bytes
from posttrainllm.train.snapshots import Kept
from posttrainllm.train.state import checkpoint_of, set_weights
from posttrainllm.train.trainer import Live
from tests.train.making import TINY, model_on, trainer_on

pytestmark = pytest.mark.native_only(reason="opens engines of its own, which a tab gives only to code that awaits")
TEXT = "A cat s"


@pytest.fixture
def trained(machine, tmp_path):
    """(run, lens by step) of a short run with snapshots."""
    trainer, seen = trainer_on(machine, steps=40), {}
    with now(RunStore(DiskVolume(tmp_path)).create("a run", "a")) as run:
        for report in trainer.run(live=Live(snapshots=Kept(run.snapshots))):
            if report.event == "snapshot":
                seen[report.step] = study.logit_lens(trainer.model, TEXT)
        run.save(checkpoint_of(trainer, "a run"))
        seen[40] = study.logit_lens(trainer.model, TEXT)
        yield run, seen


def test_each_row_is_the_lens_of_that_step(trained):
    run, seen = trained
    found = study.sharpening(run, TEXT, device="cpu")
    assert found.steps == [0, 16, 32, 40] == list(seen) and found.layers == ["embed", "blocks.0"] and found.damaged == []
    for at, step in enumerate(found.steps):
        assert np.allclose(found.loss_nats[at], seen[step].loss_nats, atol=1e-4)
        assert np.allclose(found.probability[at], seen[step].probability[:, :-1].mean(1), atol=1e-5)
    assert found.loss_nats[-1, -1] < found.loss_nats[0, -1] - 1, "it has learned something"
    assert "step 16" in str(found) and f"{found.loss_nats[1, 0]:.2f}" in str(found)
    assert found.to_dict()["arrays"]["loss_nats"].shape == (4, 2)


def test_from_its_folder_and_past_a_damaged_snapshot(trained, tmp_path):
    run, seen = trained
    run.close()
    file = tmp_path / "a" / SNAPSHOTS_FILE
    data = bytearray(file.read_bytes())
    data[len(data) // 3 + 5000] ^= 1  # in the second of three
    file.write_bytes(data)
    found = study.sharpening(tmp_path / "a", TEXT, device="cpu")
    assert (found.steps, found.damaged) == ([0, 32, 40], [16])


def test_what_it_refuses(trained, machine):
    with pytest.raises(DataError, match="two tokens or more"):
        study.sharpening(trained[0], "A", device="cpu")
    with pytest.raises(ConfigError):
        study.sharpening("no/such run", TEXT)
    other = model_on(machine, GPTConfig(layers=2, channels=16, heads=2, context=8, batch=4))
    before = other.weights_sha256()
    with pytest.raises(FormatError, match="names and shapes"):
        set_weights(other, trained[0].snapshots.load(16))
    assert other.weights_sha256() == before


def test_what_a_machine_for_it_holds_is_enough(trained):
    """Measured on the engine: no region grows beyond what is said."""
    model = GPT.on(Program(TINY, False), "cpu", 1)
    sizes = {}
    allocate = model.machine.allocate

    def seen(regions):
        sizes.update({region: max(size, sizes.get(region, 0)) for region, size in regions.items()})
        allocate(regions)

    model.machine.allocate = seen
    study.logit_lens(model, TEXT)
    assert sizes and sum(sizes.values()) <= need_bytes(TINY, len(TEXT)) - (8 << 20)
    model.close()
