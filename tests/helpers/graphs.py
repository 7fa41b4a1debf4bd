"""Random small models as Graphs: blocks wired in ways no preset uses, with a loss, gradients and a plan."""

from dataclasses import dataclass, field

import numpy as np

from posttrainllm.compile import Graph, Value, differentiate
from posttrainllm.dims import product, round_up

B, T, H, D, V = 2, 3, 2, 2, 7
R, C = B * T, H * D
SIZES = {"B": B, "T": T, "R": R, "C": C, "H": H, "D": D, "V": V, "P": T + 1, "I": C, "O": C, "N": R * C}
LOSS = Value("loss", (2,), "f32", "metrics", 0)
DLOSS = Value("dloss", (1,), "f32", "slots", 0)
STEPS = ("layernorm", "gelu", "linear", "attention", "add", "add", "residual")


@dataclass
class Model:
    """A Graph being built, its weights by name, and the activations made so far."""

    graph: Graph = field(default_factory=Graph)
    weights: dict[str, Value] = field(default_factory=dict)
    pool: list[Value] = field(default_factory=list)
    end_bytes: int = 0

    def __post_init__(self):
        self.tokens = Value("tokens", (B, T), "i32", "inputs", 0)
        self.targets = Value("targets", (R,), "i32", "inputs", 256)

    def weight(self, shape) -> Value:
        """A new weight in the flat region."""
        value = Value(f"w{len(self.weights)}", shape, "f32", "params", self.end_bytes)
        self.end_bytes += round_up(product(shape) * 4, 256)
        self.weights[value.name] = value
        return value

    def call(self, name: str, **values: Value) -> Value:
        """Append a kernel; its first output joins the pool."""
        made = self.graph.call(name, SIZES, out=f"{name}{len(self.graph.nodes)}", **values).written()[0]
        self.pool.append(made)
        return made

    def embed(self) -> Value:
        return self.call("embedding", tokens=self.tokens, wte=self.weight((V, C)), wpe=self.weight((T + 1, C)))

    def layernorm(self, x: Value) -> Value:
        return self.call("layernorm", x=x, weight=self.weight((C,)), bias=self.weight((C,)))

    def linear(self, x: Value) -> Value:
        return self.call("linear", x=x, weight=self.weight((C, C)), bias=self.weight((C,)))

    def attention(self, x: Value) -> Value:
        weight, bias = self.weight((C, 3 * C)), self.weight((3 * C,))
        qkv = self.graph.call("linear", SIZES | {"O": 3 * C}, out="qkv", x=x, weight=weight, bias=bias).arg("y")
        return self.call("attention", qkv=qkv)

    def step(self, what: str, first: Value, second: Value) -> Value:
        """One of STEPS on values of the pool."""
        if what == "add":
            return self.call("add", a=first, b=second)
        if what == "gelu":
            return self.call("gelu", x=first)
        if what == "residual":
            return self.call("add", a=first, b=self.linear(self.layernorm(first)))
        return getattr(self, what)(first)

    def finish(self, trainable=None):
        """Logits of the last value, loss, and gradients; returns the Builder."""
        logits = self.graph.call("unembed", SIZES, out="logits", x=self.pool[-1], wte=self.weight((V, C))).arg("logits")
        self.graph.call("cross_entropy", SIZES, out="losses", logits=logits, targets=self.targets, loss=LOSS)
        self.forward_nodes = len(self.graph.nodes)
        return differentiate(self.graph, LOSS, DLOSS, set(self.weights) if trainable is None else trainable)

    def given(self, seed=0) -> dict[Value, np.ndarray]:
        """float32 numbers for weights, tokens, targets and dloss = 1."""
        rng = np.random.default_rng(seed)
        arrays = {value: rng.standard_normal(value.shape).astype(np.float32) for value in self.weights.values()}
        arrays[self.tokens] = rng.integers(0, V, (B, T)).astype(np.int32)
        arrays[self.targets] = np.where(np.arange(R) == 2, -100, rng.integers(0, V, R)).astype(np.int32)
        return arrays | {DLOSS: np.ones(1, np.float32)}

    def loss(self, given) -> float:
        """The forward pass alone, in float64."""
        from .gradients import execute

        forward = Graph()
        forward.nodes = self.graph.nodes[: self.forward_nodes]
        return float(execute(forward, given)[LOSS][0])


def build(steps: list[tuple[str, int, int]]) -> Model:
    """A Model from (what, which, which other) choices; values are counted from the newest, so reuse is common."""
    model = Model()
    model.embed()
    for what, first, second in steps:
        size = len(model.pool)
        model.step(what, model.pool[-1 - first % size], model.pool[-1 - second % size])
    return model
