"""Low-rank adapters (LoRA, arXiv 2106.09685): which linears they change, their sizes, and the weights of one.

y = x·W + b + s·(x·down)·up on the columns an adapter covers, s = strength·scaling; scaling is alpha/rank, or alpha/sqrt(rank)
(rsLoRA, arXiv 2312.03732). `up` starts as zeros, so an adapter starts as no change at all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace

from ..configs import load
from ..dims import ELEMENT_BYTES, product
from ..errors import ConfigError, FormatError
from .config import GPTConfig

MOST_RANK = 4096
_MODULES = ("attn.qkv", "attn.proj", "mlp.fc", "mlp.proj")
_PARTS = {"attn.q": 0, "attn.k": 1, "attn.v": 2}
TARGETS = (*_PARTS, *_MODULES)
"""Names of what an adapter can change: three parts of one linear (q, k, v), and linears."""


@dataclass(frozen=True)
class LoRAConfig:
    """rank r, alpha, the targets, and whether the scaling is rsLoRA's. Raises ConfigError."""

    rank: int
    alpha: float
    targets: tuple[str, ...]
    rslora: bool = False

    def __post_init__(self) -> None:
        if type(self.rank) is not int or not 1 <= self.rank <= MOST_RANK:
            raise ConfigError("lora", f"rank is a whole number from 1 to {MOST_RANK:,}", f"{repr(self.rank)[:60]} came", "change it")
        if type(self.alpha) not in (int, float) or not 0 < self.alpha < 1e6:
            raise ConfigError("lora", "alpha is a number above 0 and below a million", f"{repr(self.alpha)[:60]} came", "change it")
        targets = (self.targets,) if isinstance(self.targets, str) else tuple(self.targets) if isinstance(self.targets, (list, tuple)) else (self.targets,)
        unknown = [target for target in targets if target not in TARGETS]
        if unknown or not targets or len(set(targets)) != len(targets):
            came = ", ".join(map(str, targets))[:200] or "none"
            raise ConfigError("lora", f"targets are some of {', '.join(TARGETS)}, each once", f"{came} came", "correct the names")
        if "attn.qkv" in targets and _PARTS.keys() & set(targets):
            raise ConfigError("lora", "attn.qkv covers attn.q, attn.k and attn.v", f"{', '.join(targets)} came", "name the one or the others")
        object.__setattr__(self, "targets", tuple(target for target in TARGETS if target in targets))
        object.__setattr__(self, "rslora", bool(self.rslora))

    @classmethod
    def of(cls, **changes) -> LoRAConfig:
        """The defaults of configs/lora.json with changes; one that is None is no change."""
        given = {name: value for name, value in changes.items() if value is not None}
        return cls.from_dict(load("lora")["adapter"] | given)

    @classmethod
    def from_dict(cls, settings: dict) -> LoRAConfig:
        """From JSON; unknown or missing names are a ConfigError."""
        known, needed = set(cls.__dataclass_fields__), {"rank", "alpha", "targets"}
        if not isinstance(settings, dict) or set(settings) - known or needed - set(settings):
            raise ConfigError("lora", f"settings are {', '.join(sorted(known))}", f"{repr(settings)[:200]} came", "correct the names")
        return cls(**settings)

    def to_dict(self) -> dict:
        """Plain JSON."""
        return asdict(self) | {"targets": list(self.targets)}

    @property
    def scaling(self) -> float:
        """What the change is multiplied by at strength 1."""
        return self.alpha / (math.sqrt(self.rank) if self.rslora else self.rank)

    @property
    def shape(self) -> tuple:
        """What decides sizes and tapes: adapters of one shape take each other's place by one upload."""
        return self.rank, self.targets


@dataclass(frozen=True)
class Site:
    """One adapter in the model: its address, the linear it changes, and the columns first … first+columns-1 of it."""

    name: str
    linear: str
    inputs: int
    outputs: int
    first: int
    columns: int

    def down(self) -> str:
        """The address of down [inputs, rank]."""
        return f"{self.name}.lora_down"

    def up(self) -> str:
        """The address of up [rank, columns]."""
        return f"{self.name}.lora_up"


def sites(config: GPTConfig, lora: LoRAConfig) -> Iterator[Site]:
    """Every adapter of a model, in its order."""
    c, f = config.channels, config.hidden
    sizes = {"attn.qkv": (c, 3 * c), "attn.proj": (c, c), "mlp.fc": (c, f), "mlp.proj": (f, c)}
    for layer in range(config.layers):
        for target in lora.targets:
            part = _PARTS.get(target)
            linear = target if part is None else "attn.qkv"
            inputs, outputs = sizes[linear]
            first, columns = (0, outputs) if part is None else (part * c, c)
            yield Site(f"blocks.{layer}.{target}", f"blocks.{layer}.{linear}", inputs, outputs, first, columns)


def sizes_of(config: GPTConfig) -> dict[str, int]:
    """What an Adapter keeps of the model it fits: layers, channels, and hidden where that is not 4·C."""
    own = {"layers": config.layers, "channels": config.channels}
    return own if config.hidden == 4 * config.channels else own | {"hidden": config.hidden}


def shapes(config: GPTConfig, lora: LoRAConfig) -> dict[str, tuple[int, int]]:
    """Shape of every weight of an adapter by its address, in the flat buffers' order."""
    found = {}
    for site in sites(config, lora):
        found[site.down()] = site.inputs, lora.rank
        found[site.up()] = lora.rank, site.columns
    return found


@dataclass(frozen=True)
class Adapter:
    """The weights of one adapter on the host: little-endian float32 bytes by address, shapes as `shapes` says.

    model holds the sizes of the models it fits (at least layers and channels); base_sha256 is the hash of the weights it was
    made on, "" where nobody knows (an adapter from elsewhere).
    """

    name: str
    config: LoRAConfig
    model: dict
    base_sha256: str
    weights: dict[str, bytes] = field(repr=False)

    def __post_init__(self) -> None:
        expected = shapes(self.sizes, self.config)
        if self.weights.keys() != expected.keys():
            odd = sorted(self.weights.keys() ^ expected.keys())[0]
            raise FormatError(f"adapter {self.name}", f"it holds {len(expected)} weights", f"{odd} is missing or too many", "save it again")
        for name, shape in expected.items():
            if len(self.weights[name]) != product(shape) * ELEMENT_BYTES:
                raise FormatError(
                    f"adapter {self.name}", f"{name} is {list(shape)}", f"{len(self.weights[name]):,} bytes came", "save it again"
                )

    @property
    def sizes(self) -> GPTConfig:
        """A model's config of the sizes that it fits."""
        layers, channels = self.model["layers"], self.model["channels"]
        return GPTConfig(layers, channels, heads=1, context=1, hidden=self.model.get("hidden"))

    @property
    def parameter_count(self) -> int:
        """How many numbers it holds."""
        return sum(map(product, shapes(self.sizes, self.config).values()))

    def renamed(self, name: str) -> Adapter:
        """The same under another name."""
        return replace(self, name=name)

    def require_fit(self, config: GPTConfig, base_sha256: str = "") -> None:
        """Raise ConfigError where it was made for other sizes, or for another base of the same sizes."""
        place, own = f"adapter {self.name}", self.sizes
        if (own.layers, own.channels) != (config.layers, config.channels):
            raise ConfigError(
                place,
                f"it changes a model of {own.layers} layers and {own.channels} channels",
                f"one of {config.layers} layers and {config.channels} channels came",
                "choose the model it was made on",
            )
        inner = {"mlp.fc", "mlp.proj"} & set(self.config.targets)
        if inner and own.hidden != config.hidden:
            raise ConfigError(
                place,
                f"it changes an MLP {own.hidden:,} wide",
                f"one {config.hidden:,} wide came",
                "choose the model it was made on",
            )
        if self.base_sha256 and base_sha256 and self.base_sha256 != base_sha256:
            raise ConfigError(
                place,
                f"it was made on the weights with sha256 {self.base_sha256[:16]}…",
                f"the model's are {base_sha256[:16]}…",
                "choose that model, or take any base (any_base=True; --any-base on the command line)",
            )

    def save(self, folder) -> int:
        """Write PEFT's two files into a folder (made where there is none); returns their bytes. Raises StoreError."""
        from ..store.peft import save  # a layer above: a convenience of the public API

        return save(self, folder)

    @classmethod
    def load(cls, path) -> Adapter:
        """From a folder of PEFT's, or one .safetensors file (with adapter_config.json beside it, or saved here).

        Raises DataError, FormatError.
        """
        from ..store.peft import load as read

        return read(path)
