"""How far an engine in single precision may be from float64: derived from what each of its ops may err, carried on by the model itself.

An op's output may differ from what is right for its inputs by k·eps·sqrt(n)·max|output|: k and the n summed numbers are in its record
(ops/), where tests hold every engine to them. Here each output of one forward pass is moved by that much at every element, with signs
drawn at random, and the page of NumPy (by_hand.py) tells how far what comes after it moves. Ops err independently, as the numbers that
an op sums do, so the bound of a quantity is the root of the sum of the squares of its largest moves, over all ops of all layers.
"""

import numpy as np

from posttrainllm.ops import kernel
from tests.study.by_hand import forward, normalised

EPS = 2.0**-23
DRAWS = 3
OPS = {  # the op that writes an address (without its block)
    "embed": "embedding", "ln_1": "layernorm", "attn.q": "linear", "attn.k": "linear", "attn.v": "linear", "attn.y": "attention",
    "attn.out": "linear", "resid_mid": "add", "ln_2": "layernorm", "mlp.pre": "linear", "mlp.post": "gelu", "mlp.out": "linear",
    "resid_post": "add", "ln_f": "layernorm", "logits": "unembed",
}  # fmt: skip


def own(name, value, config):
    """The most that the op which wrote an address may err there."""
    kind = name.split(".", 2)[2] if name.startswith("blocks.") else name
    made_by = kernel(OPS[kind])
    inputs = config.hidden if kind == "mlp.out" else config.channels
    sizes = {"T": len(value), "D": config.head_width, "C": config.channels, "I": inputs, "R": len(value)}
    summed = np.prod([float(sizes[letter]) for letter in made_by.reduces])
    return made_by.tolerance * EPS * summed**0.5 * np.abs(value).max()


class Bounds:
    """Of the quantities of one forward pass of a text, which `instead` may change as in by_hand.forward."""

    def __init__(self, weights, config, tokens, instead=None, seed=0):
        self.weights, self.config = weights, config
        rng, instead = np.random.default_rng(seed), instead or {}
        self.base = forward(weights, config, tokens, instead)
        self.moved = []  # (address, what stands everywhere when it is moved)
        for name in self.base:
            if (name.split(".", 2)[2] if name.startswith("blocks.") else name) not in OPS or name in instead:
                continue
            by = own(name, self.base[name], config)
            for _ in range(DRAWS):
                signs = rng.choice([-1.0, 1.0], self.base[name].shape)
                self.moved.append((name, forward(weights, config, tokens, instead | {name: lambda there, by=by, signs=signs: there + by * signs})))

    def of(self, quantity) -> float:
        """The most that quantity(what stands everywhere), an array, may be off at any element."""
        there, by = quantity(self.base), {}
        with np.errstate(invalid="ignore"):
            for name, found in self.moved:
                move = np.abs(quantity(found) - there)
                by[name] = max(by.get(name, 0.0), float(move[np.isfinite(move)].max()))
        return float(np.sqrt(sum(each**2 for each in by.values())))

    def address(self, name) -> float:
        """Of an address."""
        return self.of(lambda found: found[name])

    def lens(self, name) -> float:
        """Of the logits that the lens gives at an address of the stream: with what its own two ops may err."""
        def through(stream):
            return normalised(stream, self.weights["ln_f.weight"], self.weights["ln_f.bias"])

        head = self.weights[self.config.head]
        normal = through(self.base[name])
        logits = normal @ head.T
        signs = np.random.default_rng(1).choice([-1.0, 1.0], normal.shape)
        of_norm = np.abs((own("ln_f", normal, self.config) * signs) @ head.T).max()
        return float(np.sqrt(self.of(lambda found: through(found[name]) @ head.T) ** 2 + of_norm**2 + own("logits", logits, self.config) ** 2))
