"""GPT-2's shape: pre-LN blocks, learned positions, biases, GELU, a 4× MLP, a head tied to the token embedding or of its own.

`parameters` lists the weights; `trace` runs the model once on symbols and gives its Graph.
Addresses: parameters end in .weight or .bias; activations are `embed`, `blocks.i.ln_1`, `blocks.i.attn.qkv`,
`blocks.i.attn.y`, `blocks.i.attn.out`, `blocks.i.resid_mid`, `blocks.i.ln_2`, `blocks.i.mlp.pre`, `blocks.i.mlp.post`,
`blocks.i.mlp.out`, `blocks.i.resid_post`, `ln_f`, `logits`. An adapter's weights (model/lora.py) end in .lora_down or .lora_up.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..compile.graph import Graph, Value
from ..dims import ALIGN_BYTES, ELEMENT_BYTES, product, round_up
from . import lora as adapters
from .config import ACTIVATIONS, GPTConfig
from .lora import LoRAConfig

INIT_STD = 0.02
STRENGTH = Value("strength", (1,), "f32", "slots", 4 * ALIGN_BYTES)
"""Of an adapter, its scaling included; the other slots are in program.py."""


@dataclass(frozen=True)
class Parameter:
    """A weight: its address, shape, how it starts (`std` of a normal, or a constant), and whether AdamW decays it."""

    name: str
    shape: tuple[int, ...]
    std: float
    constant: float
    decayed: bool


def parameters(config: GPTConfig) -> list[Parameter]:
    """Every weight, decayed ones (matrices and embeddings) first, then gains and biases, each in model order.

    Starting values are GPT-2's: normal 0.02; projections into the residual stream 0.02/sqrt(2L); gains 1, biases 0.
    """
    c, f = config.channels, config.hidden
    residual = INIT_STD / (2 * config.layers) ** 0.5
    found: list[Parameter] = []

    def weight(name: str, shape: tuple[int, ...], std: float = INIT_STD) -> None:
        found.append(Parameter(f"{name}.weight", shape, std, 0.0, True))

    def vector(name: str, width: int, constant: float = 0.0) -> None:
        found.append(Parameter(name, (width,), 0.0, constant, False))

    def norm(name: str) -> None:
        vector(f"{name}.weight", c, 1.0)
        vector(f"{name}.bias", c)

    weight("wte", (config.vocabulary, c))
    weight("wpe", (config.context, c))
    for layer in range(config.layers):
        block = f"blocks.{layer}"
        norm(f"{block}.ln_1")
        weight(f"{block}.attn.qkv", (c, 3 * c))
        vector(f"{block}.attn.qkv.bias", 3 * c)
        weight(f"{block}.attn.proj", (c, c), residual)
        vector(f"{block}.attn.proj.bias", c)
        norm(f"{block}.ln_2")
        weight(f"{block}.mlp.fc", (c, f))
        vector(f"{block}.mlp.fc.bias", f)
        weight(f"{block}.mlp.proj", (f, c), residual)
        vector(f"{block}.mlp.proj.bias", c)
    norm("ln_f")
    if not config.tied:
        weight("lm_head", (config.vocabulary, c))
    return [p for p in found if p.decayed] + [p for p in found if not p.decayed]


def adapter_parameters(config: GPTConfig, lora: LoRAConfig) -> list[Parameter]:
    """The weights of an adapter: down normal with the variance that PEFT's start has, up zero, so that it starts as no change."""
    return [
        Parameter(name, shape, (3 * shape[0]) ** -0.5 if name.endswith("_down") else 0.0, 0.0, True)
        for name, shape in adapters.shapes(config, lora).items()
    ]


@dataclass(frozen=True)
class Layout:
    """Where each weight stands in the flat buffers. Offsets are multiples of 256 bytes.

    Params holds them all; grads, m and v only what is trained: all of a plain model, and of one with an adapter the tail after
    frozen_bytes, at its offset less those.
    """

    parameters: tuple[Parameter, ...]
    offsets_bytes: dict[str, int]
    decayed_bytes: int
    total_bytes: int
    frozen_bytes: int = 0

    @classmethod
    def of(cls, config: GPTConfig, lora: LoRAConfig | None = None) -> "Layout":
        """The layout of a model's weights; with an adapter, its weights come after a base that is frozen."""
        offsets, position, decayed = {}, 0, 0

        def lay(found: list[Parameter]) -> None:
            nonlocal position, decayed
            for parameter in found:
                offsets[parameter.name] = position
                position += round_up(product(parameter.shape) * ELEMENT_BYTES, ALIGN_BYTES)
                if parameter.decayed:
                    decayed = position

        base = parameters(config)
        lay(base)
        if lora is None:
            return cls(tuple(base), offsets, decayed, position)
        frozen, tail = position, adapter_parameters(config, lora)
        lay(tail)
        return cls((*base, *tail), offsets, decayed, position, frozen)

    @property
    def trainable(self) -> tuple[Parameter, ...]:
        """What has gradients and moments."""
        return tuple(p for p in self.parameters if self.offsets_bytes[p.name] >= self.frozen_bytes)

    @property
    def frozen(self) -> tuple[Parameter, ...]:
        """The base under an adapter; nothing in a plain model."""
        return tuple(p for p in self.parameters if self.offsets_bytes[p.name] < self.frozen_bytes)

    @property
    def trainable_names(self) -> set[str]:
        """Addresses of what is trained."""
        return {p.name for p in self.trainable}

    def values(self) -> dict[str, Value]:
        """A fresh Value for every weight."""
        return {p.name: Value(p.name, p.shape, "f32", "params", self.offsets_bytes[p.name]) for p in self.parameters}


@dataclass(frozen=True)
class Cache:
    """Keys [C,P] and values [P,C] of every layer, in the cache region, and the slot that says where the first new token stands."""

    position: Value
    layers: tuple[tuple[Value, Value], ...] = field(repr=False)

    @staticmethod
    def nbytes(config: GPTConfig) -> int:
        """Bytes of its region."""
        return 2 * config.layers * round_up(config.channels * config.context * ELEMENT_BYTES, ALIGN_BYTES)

    @classmethod
    def of(cls, config: GPTConfig, position: Value) -> "Cache":
        """The cache of a model's whole context."""
        shapes = (config.channels, config.context), (config.context, config.channels)
        step = round_up(product(shapes[0]) * ELEMENT_BYTES, ALIGN_BYTES)

        def part(layer: int, which: int) -> Value:
            name = f"blocks.{layer}.attn.{('keys', 'values')[which]}"
            return Value(name, shapes[which], "f32", "cache", (2 * layer + which) * step)

        return cls(position, tuple((part(layer, 0), part(layer, 1)) for layer in range(config.layers)))


def trace(
    graph: Graph,
    config: GPTConfig,
    weights: dict[str, Value],
    tokens: Value,
    batch: int,
    time: int,
    cache: Cache | None = None,
    lora: LoRAConfig | None = None,
) -> dict[str, Value]:
    """Run the model on symbols: tokens [B,T] i32 to logits [R,V]. Returns every named activation by address.

    With a `cache` (B = 1) the tokens are those after the ones whose keys and values stand there. With `lora` each linear that
    an adapter changes is followed by what changes its output in place.
    """
    c, f = config.channels, config.hidden
    sizes = {"B": batch, "T": time, "R": batch * time, "C": c, "H": config.heads, "D": config.head_width}
    sizes |= {"V": config.vocabulary, "P": config.context}
    named: dict[str, Value] = {}
    adapted: dict[str, list[adapters.Site]] = {}
    for site in adapters.sites(config, lora) if lora else ():
        adapted.setdefault(site.linear, []).append(site)

    def op(name: str, out: str, changes: dict[str, int] | None = None, **values: Value) -> Value:
        node = graph.call(name, sizes | (changes or {}), out=out, **values)
        named[out] = node.written()[0]
        return named[out]

    def layernorm(x: Value, name: str) -> Value:
        return op("layernorm", name, x=x, weight=weights[f"{name}.weight"], bias=weights[f"{name}.bias"])

    def linear(x: Value, name: str, out: str, inputs: int, outputs: int) -> Value:
        weight, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
        y = op("linear", out, {"I": inputs, "O": outputs}, x=x, weight=weight, bias=bias)
        for site in adapted.get(name, ()):
            own = {"R": batch * time, "I": inputs, "O": outputs, "K": lora.rank, "J": site.columns}
            down, up = weights[site.down()], weights[site.up()]
            graph.call("lora", own, (site.first,), out=site.name, x=x, down=down, up=up, strength=STRENGTH, y=y)
        return y

    def add(a: Value, b: Value, out: str) -> Value:
        return op("add", out, {"N": product(a.shape)}, a=a, b=b)

    tables = {"wte": weights["wte.weight"], "wpe": weights["wpe.weight"]}
    if cache:
        x = op("embedding_at", "embed", tokens=tokens, position=cache.position, **tables)
    else:
        x = op("embedding", "embed", tokens=tokens, **tables)
    for layer in range(config.layers):
        block = f"blocks.{layer}"
        h = layernorm(x, f"{block}.ln_1")
        qkv = linear(h, f"{block}.attn.qkv", f"{block}.attn.qkv", c, 3 * c)
        if cache:
            keys, values = cache.layers[layer]
            node = graph.call(
                "attention_cached", sizes, out=f"{block}.attn.y", qkv=qkv, position=cache.position, keys=keys, values=values
            )
            y = named[f"{block}.attn.y"] = node.arg("y")
        else:
            y = op("attention", f"{block}.attn.y", qkv=qkv)
        x = add(x, linear(y, f"{block}.attn.proj", f"{block}.attn.out", c, c), f"{block}.resid_mid")
        h = layernorm(x, f"{block}.ln_2")
        pre = linear(h, f"{block}.mlp.fc", f"{block}.mlp.pre", c, f)
        post = op(ACTIVATIONS[config.activation], f"{block}.mlp.post", {"N": product(pre.shape)}, x=pre)
        x = add(x, linear(post, f"{block}.mlp.proj", f"{block}.mlp.out", f, c), f"{block}.resid_post")
    op("unembed", "logits", x=layernorm(x, "ln_f"), wte=weights[config.head])
    return named
