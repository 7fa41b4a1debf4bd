"""A whole GPT on an engine, for tests: weights from a seed, batches, steps, and everything read back by name."""

import struct

import numpy as np

from posttrainllm.compile import Value
from posttrainllm.compile.tape import address
from posttrainllm.model.saving import PLAIN
from posttrainllm.model.slots import metric_bytes, unpack_metrics
from posttrainllm.model.steps import uploads
from posttrainllm.model.program import DLOSS, LOSS, NORM, RECIPE, SEED, STRENGTH, Program, initial_weights, pack_recipe

BETA1, BETA2, EPS, WEIGHT_DECAY, CLIP = 0.9, 0.95, 1e-8, 0.1, 1.0


def recipe(step, learning_rate, clip=CLIP):
    """AdamW's recipe of step 1, 2, … from multiplications alone: no libm, the same doubles on every platform."""
    power1 = power2 = 1.0
    for _ in range(step):
        power1, power2 = power1 * BETA1, power2 * BETA2
    return (learning_rate, BETA1, BETA2, EPS, WEIGHT_DECAY, clip, 1 / (1 - power1), 1 / (1 - power2))


def text(count, vocabulary, seed=0):
    """Tokens with something to learn: each follows from the one before, three times in four."""
    state, token, found = seed * 7919 + 12345, seed % vocabulary, []
    for _ in range(count):
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        token = (5 * token + 3) % vocabulary if (state >> 16) % 4 else (state >> 18) % vocabulary
        found.append(token)
    return np.array(found, np.int32)


def batch(config, number):
    """Tokens and targets [B,T] of batch `number`: targets are the next tokens, a few of them ignored."""
    tokens = text(config.batch * (config.context + 1), config.vocabulary, number).reshape(config.batch, -1)
    targets = tokens[:, 1:].copy()
    targets[0, :: config.context // 2 + 1] = -100
    return tokens[:, :-1].copy(), targets


class Model:
    """A Program on a machine. On the judge everything is float64, the recipe too."""

    def __init__(self, machine, config, seed=42, adapter=None, saving=PLAIN):
        lora = adapter and adapter.config
        self.machine, self.config, self.program = machine, config, Program(config, lora=lora, saving=saving)
        need = self.program.region_bytes()
        machine.allocate(need)
        start = Value(
            "weights", (), "f32", "params", 0
        )  # tests share the engine: the gaps between weights are not empty
        machine.upload(address(start), bytes(need["params"]))
        machine.upload(address(SEED), struct.pack("<Q", seed))
        machine.upload(address(DLOSS), struct.pack("<f", 1.0))
        self._exact = hasattr(machine, "download_f64")
        machine.replay(machine.load(initial_weights(config, training=False).tape))
        machine.replay(machine.load(self.program.initial.tape))
        if adapter:
            values = self.program.layout.values()
            for name, data in adapter.weights.items():
                self.write(values[name], np.frombuffer(data, "<f4"))
            self.strength(1.0)

    def strength(self, strength):
        """How much of the adapter counts."""
        self.write(STRENGTH, np.array([strength * self.program.lora.scaling]))

    def read(self, value):
        """A placed Value as float64."""
        if self._exact:
            return self.machine.download_f64(address(value), value.nbytes).reshape(value.shape)
        return (
            np.frombuffer(self.machine.download(address(value), value.nbytes), "<f4")
            .reshape(value.shape)
            .astype(np.float64)
        )

    def write(self, value, array):
        """Set a Value; on the judge without rounding to float32."""
        if self._exact:
            self.machine._part(address(value), array.size)[...] = array.reshape(-1)
        else:
            self.machine.upload(address(value), np.ascontiguousarray(array, "<f4").tobytes())

    def weights(self):
        """Every weight by name."""
        return {name: self.read(value) for name, value in self.program.layout.values().items()}

    def weights_bytes(self):
        """The flat weights as the engine holds them."""
        first = next(iter(self.program.layout.values().values()))
        return self.machine.download(address(first) - first.offset_bytes, self.program.layout.total_bytes)

    def step(self, tokens, targets, settings):
        """One training step; returns (loss, gradient norm)."""
        step = self.program.step
        self.write(RECIPE, np.array(settings)) if self._exact else self.machine.upload(
            address(RECIPE), pack_recipe(settings)
        )
        for place, data in uploads(step, *(np.ascontiguousarray(each, "<i4").tobytes() for each in (tokens, targets))):
            self.machine.upload(place, data)
        self.machine.replay(self.machine.load(step.tape))
        if step.parts > 1:
            return unpack_metrics(self.machine.download(address(LOSS), metric_bytes(step.parts)), step.parts)
        return float(self.read(LOSS)[0]), float(self.read(NORM)[0])

    def gradients(self):
        """Every gradient of the last step by weight name."""
        return {name: self.read(value) for name, value in self.program.step.outputs.items() if value.region == "grads"}

    def evaluate(self, tokens, targets):
        """(losses [R], loss [2], logits [R,V]) of a batch."""
        each = self.program.evaluation
        self._feed(each, tokens, targets)
        self.machine.replay(self.machine.load(each.tape))
        return tuple(self.read(each.outputs[name]) for name in ("losses", "loss", "logits"))

    def forward(self, each, tokens):
        """Logits of a forward pass made by program.forward."""
        self.machine.upload(address(each.tokens), np.ascontiguousarray(tokens, "<i4").tobytes())
        self.machine.replay(self.machine.load(each.tape))
        return self.read(each.outputs["logits"])

    def _feed(self, each, tokens, targets):
        self.machine.upload(address(each.tokens), np.ascontiguousarray(tokens, "<i4").tobytes())
        self.machine.upload(address(each.targets), np.ascontiguousarray(targets, "<i4").tobytes())
