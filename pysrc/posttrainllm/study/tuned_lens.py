"""A tuned lens: for each layer an affine map, trained so that through ln_f and the unembedding it says what the last layer will.

x' = x + x·weight + bias, from zeros, which is the plain logit lens (arXiv 2303.08112). The loss is the KL divergence of the model's
own distribution from the lens's, so nothing is learned but what the model already knows. Products run on the model's engine.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict, dataclass

from ..compile import Graph, Value
from ..errors import ConfigError, FormatError, NonFiniteError, ShapeError, StoreError
from ..ops.lazy import np
from ..store.safetensors import SafeTensors, encode
from ..waiting import each_now
from .beside import Beside
from .checks import number, require_open, whole
from .origin import path_of, require_sizes, sizes_of, sizes_read
from .picture import bars
from .running import Run, softmax
from .sparse import windows

STEPS, RATE, DECAY = 200, 0.002, 0.3
BETA1, BETA2, EPS = 0.9, 0.999, 1e-8
FORMAT, VERSION = "posttrainllm.tuned_lens", "1"


@dataclass(frozen=True)
class LensReport:
    """A step: by layer (the embedding, then each block but the last) the divergence of the batch, in nats a token."""

    step: int
    steps: int
    divergence_nats: list[float]
    seconds: float

    def __str__(self) -> str:
        return f"step {self.step} of {self.steps}: {' '.join(f'{each:.3f}' for each in self.divergence_nats)} nats, {self.seconds:.1f} s"

    def to_dict(self) -> dict:
        """Plain JSON."""
        return asdict(self)


class TunedLens:
    """names: the stream's values that it maps; weights [L,C,C] and biases [L,C] (float32), L of them: x' = x + x·weight + bias.

    Prints how far each map is from the plain lens. Saved as one safetensors file: F32 tensors `weight` [L,C,C] and `bias` [L,C], and
    metadata "format" ("posttrainllm.tuned_lens"), "version" ("1"), "names", a JSON list of L of the stream's values, and "sizes", a JSON object
    of those of the model it was trained on (origin.SIZES; {} or left out where nothing says): a model of others is refused.
    """

    def __init__(self, names: list[str], channels: int, sizes: dict | None = None) -> None:
        self.names, self.sizes = names, dict(sizes or {})
        self.weights = np.zeros((len(names), channels, channels), np.float32)
        self.biases = np.zeros((len(names), channels), np.float32)

    def __call__(self, name: str, x):
        """x [..., C] as the last layer would have it; itself for a value that has no map."""
        if name not in self.names:
            return x
        at = self.names.index(name)
        return x + x @ self.weights[at] + self.biases[at]

    def __str__(self) -> str:
        """A bar a layer: the length of what the map adds, weight and bias together."""
        lengths = [float(np.sqrt((weight**2).sum() + (bias**2).sum())) for weight, bias in zip(self.weights, self.biases)]
        title = f"tuned lens of {len(self.names)} layers, {self.biases.shape[1]} channels: how far each map is from the plain lens"
        return "\n".join([title, *bars([name.removesuffix(".resid_post") for name in self.names], lengths)])

    def require_fit(self, config) -> None:
        """Raise ShapeError where it is not a lens for a model of this config."""
        names = stream_names(config)
        if self.names != names or self.biases.shape[1] != config.channels:
            wanted, came = (f"{layers} layers of {channels} channels" for layers, channels in ((len(names), config.channels), self.biases.shape))
            raise ShapeError("lens", f"a tuned lens for this model, {wanted}", f"one of {came} came", "train one on this model")
        require_sizes("lens", self.sizes, config)

    def save(self, path) -> int:
        """Write it as one file; returns its bytes. Raises ConfigError, StoreError."""
        path = path_of("lens", path)
        tensors = [(name, "F32", each.shape, np.ascontiguousarray(each, "<f4").tobytes()) for name, each in (("weight", self.weights), ("bias", self.biases))]
        metadata = {"format": FORMAT, "version": VERSION, "names": json.dumps(self.names), "sizes": json.dumps(self.sizes)}
        try:
            return path.write_bytes(b"".join(map(bytes, encode(tensors, metadata))))
        except OSError as error:
            raise StoreError(f"writing {path}", "the file can be written", error.strerror or str(error), "choose another place") from error

    @classmethod
    def load(cls, path) -> TunedLens:
        """From a file that `save` wrote. Raises ConfigError, FormatError."""
        path = path_of("lens", path)
        if not path.is_file():
            raise FormatError("lens", "a file that TunedLens.save wrote", f"{str(path)!r} is not there", "choose another")
        file = SafeTensors(path.read_bytes(), path.name)
        if (file.metadata.get("format"), file.metadata.get("version")) != (FORMAT, VERSION):
            raise FormatError("lens", f"metadata says format {FORMAT}, version {VERSION}", f"{file.metadata!r:.80} came", "choose a file that TunedLens.save wrote")
        try:
            names = json.loads(file.metadata["names"])
            sizes = json.loads(file.metadata.get("sizes", "{}"))
        except (ValueError, KeyError) as error:
            raise FormatError("lens", "names is a JSON list", f"{file.metadata.get('names')!r:.60} came", "save it again") from error
        weight, bias = file["weight"], file["bias"]
        right = isinstance(names, list) and all(isinstance(each, str) for each in names) and len(set(names)) == len(names)
        shapes = [tuple(each.shape) for each in (weight, bias)]
        channels = shapes[1][-1] if shapes[1] else 0
        if not right or shapes != [(len(names), channels, channels), (len(names), channels)] or {weight.dtype, bias.dtype} != {"F32"}:
            came = f"{weight.dtype} {list(weight.shape)}, {bias.dtype} {list(bias.shape)} and names {names!r:.40}"
            raise FormatError("lens", "F32 weight [L,C,C] and bias [L,C] for L names", f"{came} came", "save it again")
        found = cls(names, channels, sizes_read("lens", sizes))
        for own, tensor in ((found.weights, weight), (found.biases, bias)):
            own[...] = np.frombuffer(tensor.view(), "<f4").reshape(own.shape)
        if not (np.isfinite(found.weights).all() and np.isfinite(found.biases).all()):
            raise NonFiniteError("lens", "its numbers are finite", "NaN or infinity came", "train it again, at a lower rate")
        return found


def stream_names(config) -> list[str]:
    """What a tuned lens has maps for: the embedding and every block's end but the last."""
    return ["embed", *(f"blocks.{layer}.resid_post" for layer in range(config.layers - 1))]


class _Step(Beside):
    """Logits and gradients of one layer's map, for R rows."""

    def __init__(self, model, rows: int) -> None:
        super().__init__(model)
        c, v, theirs = model.config.channels, model.config.vocabulary, model.program.layout.values()
        self.add_values({
            "x": (rows, c), "weight": (c, c), "bias": (c,), "y": (rows, c), "mean": (rows,), "rstd": (rows,),
            "dlogits": (rows, v), "dweight": (c, c), "dbias": (c,),
        })  # fmt: skip
        o, gain, shift, wte = self.values, theirs["ln_f.weight"], theirs["ln_f.bias"], theirs[model.config.head]
        square, head = {"R": rows, "I": c, "O": c}, {"R": rows, "C": c, "V": v}
        say, back = Graph(), Graph()
        moved = say.call("linear", square, out="moved", x=o["x"], weight=o["weight"], bias=o["bias"]).arg("y")
        moved.keep = True  # else a GPU does the add as the product's last step, and x may not be bound twice where y is written
        say.call("add", {"N": rows * c}, a=moved, b=o["x"], y=o["y"])
        normal = say.call("layernorm", head, out="normal", x=o["y"], weight=gain, bias=shift, mean=o["mean"], rstd=o["rstd"]).arg("y")
        self.logits: Value = say.call("unembed", head, out="logits", x=normal, wte=wte).arg("logits")
        self.logits.keep = True
        self.zero(back, "dweight", "dbias")
        dnormal = back.call("unembed_backward_input", head, out="dnormal", dlogits=o["dlogits"], wte=wte).arg("dx")
        dy = Value("dy", (rows, c))
        back.call("layernorm_backward_input", head, (0,), dy=dnormal, x=o["y"], weight=gain, mean=o["mean"], rstd=o["rstd"], dx=dy)
        back.call("linear_backward_weight", square, x=o["x"], dy=dy, dweight=o["dweight"], dbias=o["dbias"])
        self.add_graphs(say, back)

    async def gradients(self, x, weight, bias, shares):
        """(divergence in nats a row, dweight, dbias) for x [R,C] where the model's own probabilities are `shares` [R,V]."""
        await self.ready()
        self.upload(x=x, weight=weight, bias=bias)
        self.replay(0)
        (logits,) = await self.fetch(self.logits)
        said = softmax(logits.astype(np.float64))
        divergence = float((shares * (np.log(shares + 1e-30) - np.log(said + 1e-30))).sum(1).mean())
        self.upload(dlogits=(said - shares) / len(x))
        self.replay(1)
        return (divergence, *await self.fetch("dweight", "dbias"))


class LensTrainer:
    """Trains a TunedLens on windows of a text's tokens. `run` gives a LensReport a step; `lens` is what there is so far.

        trainer = LensTrainer(model, corpus.train)
        for report in trainer.run(): print(report)
        print(study.logit_lens(model, text, tuned=trainer.lens)); trainer.lens.save("lens.safetensors")

    Raises ConfigError, DataError, DeviceError.
    """

    def __init__(self, model, tokens, steps: int = STEPS, learning_rate: float = RATE, batch: int | None = None, seed: int = 42) -> None:
        require_open(model)
        steps, config = whole("lens", "steps", steps, 1), model.config
        if not 0 < number("lens", "learning_rate", learning_rate) < 1:
            raise ConfigError("lens", "learning_rate lies between 0 and 1", f"{learning_rate!r} came", "change it")
        self.model, self.steps, self.step, self._rate = model, steps, 0, learning_rate
        self._batch = min(8, config.batch) if batch is None else whole("lens", "batch", batch, 1)
        self._windows = windows(tokens, config.context, steps * self._batch * config.context, seed)
        self.lens = TunedLens(stream_names(config), config.channels, sizes_of(config))
        self._first = self._last = None
        self._moments = [[np.zeros_like(each), np.zeros_like(each)] for each in (self.lens.weights, self.lens.biases)]
        self._on = _Step(model, self._batch * config.context)

    def __str__(self) -> str:
        """A bar a layer: how far what it says is from the model's own word, at the first step and now."""
        if self._last is None:
            return f"tuned lens, {self.steps} steps to take"
        notes = [f"{now:.3f} nats from the model's word, {then:.3f} at first" for now, then in zip(self._last, self._first)]
        names = [name.removesuffix(".resid_post") for name in self.lens.names]
        return "\n".join([f"tuned lens, step {self.step} of {self.steps}", *bars(names, self._last, notes)])

    def run(self) -> Iterator[LensReport]:
        """Train to the end."""
        return each_now(self.run_async())

    async def run_async(self) -> AsyncIterator[LensReport]:
        """`run`, for code that awaits."""
        started = time.perf_counter()
        while self.step < self.steps:
            chosen = np.arange(self.step * self._batch, (self.step + 1) * self._batch) % len(self._windows)
            divergences = await self._one(self._windows[chosen])
            self.step += 1
            self._first, self._last = self._first or divergences, divergences
            yield LensReport(self.step, self.steps, divergences, time.perf_counter() - started)

    async def _one(self, rows) -> list[float]:
        there = await Run(self.model, rows).values(frozenset([*self.lens.names, "logits"]))
        flat = {name: each.reshape(-1, each.shape[-1]) for name, each in there.items()}
        shares = softmax(flat["logits"].astype(np.float64))
        found = [
            await self._on.gradients(flat[name], self.lens.weights[at], self.lens.biases[at], shares) for at, name in enumerate(self.lens.names)
        ]
        number, done = self.step + 1, self.step / self.steps
        rate = self._rate * min(1.0, (1 - done) / DECAY)
        for which, weights in enumerate((self.lens.weights, self.lens.biases)):
            gradient, (m, v) = np.stack([each[1 + which] for each in found]), self._moments[which]
            m += np.float32(1 - BETA1) * (gradient - m)
            v += np.float32(1 - BETA2) * (gradient * gradient - v)
            weights -= np.float32(rate / (1 - BETA1**number)) * m / (np.sqrt(v / np.float32(1 - BETA2**number)) + np.float32(EPS))
        return [each[0] for each in found]
