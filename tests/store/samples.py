"""Small checkpoints and hand-made safetensors files for the store's tests."""

import json
from array import array

from posttrainllm.store.buffers import Tensor
from posttrainllm.store.checkpoint import Checkpoint


def tensor(*shape, start=0.0):
    """An F32 tensor of start, start + 1, ... in its own Python memory."""
    count = 1
    for size in shape:
        count *= size
    return Tensor("F32", shape, array("f", [start + index for index in range(count)]))


def checkpoint(step=3, name="a run", moments=True):
    """A run of two weights; everything in it depends on `step`, so that two steps never look alike."""
    weights = {"wte.weight": tensor(4, 3, start=step), "ln_f.bias": tensor(3, start=-step)}
    return Checkpoint(
        name=name,
        config={"layers": 1, "channels": 3, "heads": 1, "vocabulary": 4, "context": 8},
        step=step,
        tokenizer={"kind": "bytes"},
        weights=weights,
        m={key: tensor(*value.shape, start=step + 100) for key, value in weights.items()} if moments else {},
        v={key: tensor(*value.shape, start=step + 200) for key, value in weights.items()} if moments else {},
        training={"steps": 100, "learning_rate": 3e-4, "betas": [0.9, 0.95]},
        schedule={"warmup_steps": 10},
        cursor={"epoch": 0, "position": step * 16},
        rng={"seed": 42},
        corpus={"name": "shakespeare", "sha256": "ab" * 32, "nbytes": 1115394},
        history=[
            {"event": "step", "step": step, "loss_nats": 5.545 - step / 16},
            {"event": "eval", "step": step, "validation_loss_nats": 5.5},
        ],
        app_version="0.1.0",
    )


def file_of(header, data=b"", length=None):
    """A safetensors file with `header` (bytes, or an object to write as JSON), which says it has `length` bytes."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(raw) if length is None else length).to_bytes(8, "little") + raw + data


def entry(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


class Source:
    """A file that counts what is read of it, and refuses to be read beyond its end."""

    def __init__(self, data):
        self.data, self.size, self.read_bytes = data, len(data), 0

    def read_at(self, offset, nbytes):
        assert 0 <= offset <= offset + nbytes <= self.size, "read outside the file"
        self.read_bytes += nbytes
        return self.data[offset : offset + nbytes]
