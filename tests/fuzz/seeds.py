"""Where the fuzzers start: tapes as the compiler makes them, and calls of the tokenizer. Made anew from what the package is now."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from posttrainllm.model.config import GPTConfig
from posttrainllm.model.lora import LoRAConfig
from posttrainllm.model.program import decoding, evaluation, initial_weights, merging, training_step
from posttrainllm.model.saving import Saving

from tests.ext.calls import PARAMETERS
from tests.ext.tapes import KERNELS, extent, record
from tests.helpers.packed import packed_words

HEAD_BYTES = 64
REGIONS = ("params", "grads", "m", "v", "arena", "inputs", "slots", "metrics", "cache")
SMALL = {"N": 37, "R": 3, "C": 5, "I": 6, "O": 7, "B": 2, "T": 3, "H": 2, "D": 4, "V": 8, "P": 6, "S": 2, "K": 2, "J": 4, "G": 1}
LIMITS = [  # at a rule's limit, or one past it
    ("layernorm_backward", {"R": 2, "C": 139_264}), ("layernorm_backward", {"R": 2, "C": 139_265}), ("grad_norm", {"N": 16384, "G": 1}),
    ("lora_backward_weight", {"R": 1, "I": 1, "O": 2, "K": 4096, "J": 1}), ("lora_backward_weight", {"R": 1, "I": 1, "O": 2, "K": 280_000, "J": 1}), ("lora_backward_hidden", {"R": 1, "O": 2, "K": 4096, "J": 1}),
    ("lora", {"R": 1, "I": 1, "O": 2, "K": 4096, "J": 1}), ("attention", {"B": 1, "T": 2, "H": 1, "D": 256}),
]  # fmt: skip
MODELS = [
    (GPTConfig(1, 4, 2, 4, 9, 2), None, Saving()),
    (GPTConfig(2, 4, 1, 3, 7, 2, tied=False, activation="gelu"), None, Saving(2, 1, "bf16")),
    (GPTConfig(1, 4, 2, 4, 9, 2), LoRAConfig(2, 4.0, ("attn.q", "mlp.fc")), Saving(1, 0, "8bit")),
]


def packed(build: int, contents: int, regions: dict[str, int], tape: bytes) -> bytes:
    """An input of tape_fuzzer.cpp."""
    head = struct.pack("<BBH9I", build, contents, 0, *(regions.get(name, 0) for name in REGIONS))
    return head.ljust(HEAD_BYTES, b"\0") + tape


def unpacked(data: bytes) -> tuple[list[int], bytes]:
    """(the regions' bytes, the tape) of one."""
    records = (len(data) - HEAD_BYTES) // 256
    return list(struct.unpack_from("<9I", data, 4)), data[HEAD_BYTES : HEAD_BYTES + 256 * records]


def tapes() -> Iterator[tuple[str, bytes]]:
    """(name, input): every kernel alone, each operand in a region of exactly its size, and whole tapes of very small models."""
    for name, kernel in KERNELS.items():
        sizes = {letter: SMALL.get(letter, 0) for letter in kernel.letters}
        if "W" in sizes:
            sizes["W"] = packed_words(name, sizes["N"])
        regions = {REGIONS[at]: 4 * extent(rule, sizes) for at, (_, _, rule) in enumerate(kernel.operands)}
        tape = record(name, sizes, PARAMETERS[kernel.parameters][0], [(at, 0) for at in range(len(kernel.operands))])
        for build, contents in ((0, 1), (1, 4), (2, 2)):
            yield f"{name}-{build}", packed(build, contents, regions, tape)
    for name, sizes in LIMITS:
        parameters = PARAMETERS[KERNELS[name].parameters][0]
        regions = {REGIONS[at]: 4 * extent(rule, sizes) for at, (_, _, rule) in enumerate(KERNELS[name].operands)}
        places = [(at, 0) for at in range(len(KERNELS[name].operands))]
        yield f"{name}-{'-'.join(map(str, sizes.values()))}", packed(1, 2, regions, record(name, sizes, parameters, places))
    for number, (config, lora, saving) in enumerate(MODELS):
        made = {
            "weights": initial_weights(config, True, lora, saving), "step": training_step(config, lora, saving), "losses": evaluation(config, lora),
            "decode": decoding(config, 2, lora),
        }  # fmt: skip
        if lora is not None:
            made["merge"] = merging(config, lora)
        need: dict[str, int] = {}
        for each in made.values():
            need = {name: max(need.get(name, 0), each.plan.region_bytes.get(name, 0)) for name in REGIONS}
        for name, each in made.items():
            yield f"model{number}-{name}", packed(number, 1, need, each.tape.data)


def calls() -> Iterator[tuple[str, bytes]]:
    """(name, input) of bpe_fuzzer.cpp: each kind of call, and the usual order of them."""

    def call(kind: int, argument: bytes) -> bytes:
        return struct.pack("<BH", kind, len(argument)) + argument

    text = "It's  the 1st\u2003of  May\u0301; \u4e2d\u6587 \U0001f600 they'll\t\n we've".encode()
    yield "usual", call(6, text * 3) + call(7, b"\x20\x02") + call(1, b"thhee ") + call(3, text) + call(5, text)
    yield "chained", call(9, b"ththth") + call(3, b"the thing that" * 20) + call(6, text) + call(7, b"\xff\x01")
    yield "broken", call(3, bytes(range(256)) + b"\xe4\xb8\xf0\x9f") + call(5, b"\xff" * 40)
    yield "classes", call(0, struct.pack("<3i", 0x80 << 2 | 1, 0x1000 << 2 | 3, (0x110000 - 0x1080) << 2))
    yield "table", call(26, struct.pack("<BiBi", 65, 66, 66, 65)) + call(3, text) + call(10, struct.pack("<3i", 116, 104, 256)) + call(3, text)
