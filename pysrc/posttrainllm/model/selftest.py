"""The start-up self-test: three steps of a small GPT whose every weight must come out right before an engine may be used.

The CPU engine gives the same bits everywhere, so its test is one hash. Other engines are compared with the weights that
the reference gives, weight by weight.
"""

from __future__ import annotations

import hashlib
import struct

from ..compile.graph import REGIONS
from ..compile.tape import REGION_SHIFT, address
from ..backends.base import Machine
from ..backends.choose import open_engine
from ..errors import DeviceError, SelfTestError
from .config import GPTConfig
from .program import DLOSS, LOSS, NORM, RECIPE, SEED, initial_weights, pack_recipe, regions_of, training_step

CONFIG = GPTConfig(layers=2, channels=20, heads=2, context=9, vocabulary=23, batch=3)
STEPS = 3
CPU_SHA256 = "9b66e6371bd2eafd14e5647a507aa156a92c05432018a58240784aeb74a84a0b"
"""What the CPU engine must give; changes when a kernel's arithmetic is changed on purpose: say when and why in docs/log.md."""


def run(machine) -> bytes:
    """Train CONFIG for STEPS steps on the machine; returns weights, last loss and norm as float32 bytes."""
    initial, step = initial_weights(CONFIG), training_step(CONFIG)
    need = regions_of((initial, step))
    machine.allocate(need)
    machine.upload(address(SEED), struct.pack("<Q", 7))
    machine.upload(address(DLOSS), struct.pack("<f", 1.0))
    machine.replay(machine.load(initial.tape))
    count = CONFIG.batch * CONFIG.context
    loaded = machine.load(step.tape)
    for number in range(1, STEPS + 1):
        tokens = [(i * 7 + number * 5) % CONFIG.vocabulary for i in range(count)]
        targets = [(i * 11 + number) % CONFIG.vocabulary if i % 5 else -100 for i in range(count)]
        machine.upload(address(step.tokens), struct.pack(f"<{count}i", *tokens))
        machine.upload(address(step.targets), struct.pack(f"<{count}i", *targets))
        corrections = (1 / (1 - 0.9**number), 1 / (1 - 0.95**number))
        machine.upload(address(RECIPE), pack_recipe((0.01, 0.9, 0.95, 1e-8, 0.1, 1.0, *corrections)))
        machine.replay(loaded)
    weights = machine.download(REGIONS.index("params") << REGION_SHIFT, need["params"])
    return weights + machine.download(address(LOSS), 4) + machine.download(address(NORM), 4)


def check(machine) -> None:
    """Raise SelfTestError when the machine does not give what it must."""
    got = hashlib.sha256(run(machine)).hexdigest()
    if got != CPU_SHA256:
        raise SelfTestError(
            machine.description,
            "its self-test (three training steps) gives the known weights",
            f"hash {got[:12]} came instead of {CPU_SHA256[:12]}",
            "please report the device; it may not train",
        )


def open_machine(
    device: str = "auto", threads: int | None = None, total_bytes: int = 0, isa: str | None = None, precision: str = "f32"
) -> Machine:
    """A machine that passed its self-test, with room for `total_bytes`. `isa` and `precision` as open_engine has them.

    Raises ConfigError for an unknown device, DeviceUnavailableError, SelfTestError or DeviceOutOfMemoryError.
    """
    machine = open_engine(device, threads, total_bytes, isa, precision)
    if machine.name != "reference":
        try:
            if machine.name == "webgpu":
                from .webgpu_check import check_now

                check_now(machine)
            else:
                check(machine)
        except (SelfTestError, DeviceError):
            machine.close()
            raise
    return machine
