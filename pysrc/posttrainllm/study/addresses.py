"""Addresses: where one may look inside a model, in words, and what stands there.

    embed                     T C     blocks.0.hook_resid_pre: token plus position
    blocks.i.resid_pre        T C     hook_resid_pre (what the block before left: its resid_post)
    blocks.i.ln_1             T C     ln1.hook_normalized, gain and bias applied
    blocks.i.ln_1.mean        T       (no name there)
    blocks.i.ln_1.rstd        T       1 / ln1.hook_scale
    blocks.i.attn.qkv         T 3C    (q, k and v side by side)
    blocks.i.attn.q, .k, .v   T H D   attn.hook_q, hook_k, hook_v
    blocks.i.attn.scores      H T T   attn.hook_attn_scores, -inf where a key comes after its query
    blocks.i.attn.pattern     H T T   attn.hook_pattern, rows sum to 1
    blocks.i.attn.y           T H D   attn.hook_z: each head's mix of values
    blocks.i.attn.result      T H C   attn.hook_result: what each head adds to the residual stream, without the shared bias
    blocks.i.attn.out         T C     hook_attn_out
    blocks.i.resid_mid        T C     hook_resid_mid
    blocks.i.ln_2 (.mean, .rstd)      ln2.hook_normalized
    blocks.i.mlp.pre, .post   T F     mlp.hook_pre, hook_post
    blocks.i.mlp.out          T C     hook_mlp_out
    blocks.i.resid_post       T C     hook_resid_post
    ln_f (.mean, .rstd)       T C     ln_final.hook_normalized
    logits                    T V     what the model returns

On the right are TransformerLens' names (`hook_…` without a block stands after `blocks.i.`). Letters as in dims.py. `blocks.*.attn.y`
names a place in every block. Engines never store scores, patterns and results: study/ computes them from what they do store.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from ..errors import ConfigError
from ..model.config import GPTConfig

BLOCK = {  # address in a block: where it is read from, and its dimensions
    "resid_pre": ("", "TC"),
    "ln_1": ("ln_1", "TC"),
    "ln_1.mean": ("ln_1.mean", "T"),
    "ln_1.rstd": ("ln_1.rstd", "T"),
    "attn.qkv": ("attn.qkv", "T3"),
    "attn.q": ("attn.qkv", "THD"),
    "attn.k": ("attn.qkv", "THD"),
    "attn.v": ("attn.qkv", "THD"),
    "attn.scores": ("attn.qkv", "HTT"),
    "attn.pattern": ("attn.qkv", "HTT"),
    "attn.y": ("attn.y", "THD"),
    "attn.result": ("attn.y", "THC"),
    "attn.out": ("attn.out", "TC"),
    "resid_mid": ("resid_mid", "TC"),
    "ln_2": ("ln_2", "TC"),
    "ln_2.mean": ("ln_2.mean", "T"),
    "ln_2.rstd": ("ln_2.rstd", "T"),
    "mlp.pre": ("mlp.pre", "TF"),
    "mlp.post": ("mlp.post", "TF"),
    "mlp.out": ("mlp.out", "TC"),
    "resid_post": ("resid_post", "TC"),
}
WHOLE = {"ln_f": "TC", "ln_f.mean": "T", "ln_f.rstd": "T", "logits": "TV"}
READ_ONLY = ("mean", "rstd", "result")
"""Endings of what can be read but not replaced: the engine has used it, or never had it."""


@dataclass(frozen=True)
class Place:
    """An address: the engine's value that holds it (or that it is computed from), and its shape for one sequence."""

    address: str
    value: str
    dims: str
    layer: int | None = None

    @property
    def kind(self) -> str:
        """The address without its block: "attn.q"."""
        return self.address if self.layer is None else self.address.split(".", 2)[2]

    @property
    def derived(self) -> bool:
        """Whether no engine stores it."""
        return self.kind in ("attn.scores", "attn.pattern", "attn.result")

    @property
    def replaceable(self) -> bool:
        """Whether something else can be put there."""
        return not self.kind.endswith(READ_ONLY)

    def shape(self, config: GPTConfig, batch: int, time: int) -> tuple[int, ...]:
        """[B, …]: sizes of `dims` after the batch."""
        sizes = {"T": time, "C": config.channels, "H": config.heads, "D": config.head_width}
        sizes |= {"F": config.hidden, "V": config.vocabulary, "3": 3 * config.channels}
        return (batch, *(sizes[letter] for letter in self.dims))


def places(config: GPTConfig) -> dict[str, Place]:
    """Every address of a model, in the order in which the forward pass comes to them."""
    found = [Place("embed", "embed", "TC")]
    for layer in range(config.layers):
        before = f"blocks.{layer - 1}.resid_post" if layer else "embed"
        for name, (source, dims) in BLOCK.items():
            value = f"blocks.{layer}.{source}" if source else before
            found.append(Place(f"blocks.{layer}.{name}", value, dims, layer))
    found += [Place(name, name, dims) for name, dims in WHOLE.items()]
    return {place.address: place for place in found}


def chosen(config: GPTConfig, asked) -> list[Place]:
    """The places that one address or several name, in running order; `*` stands for any letters.

    Raises ConfigError for one that names nothing.
    """
    known = places(config)
    patterns = [asked] if isinstance(asked, str) or not hasattr(asked, "__iter__") else list(asked)
    for each in patterns:
        if not isinstance(each, str):
            raise ConfigError("study", "an address in words, or several", f"{each!r:.60} came", "see posttrainllm.study.addresses")
    taken: set[str] = set()
    for pattern in patterns:
        matching = [address for address in known if fnmatchcase(address, pattern)]
        if not matching:
            raise ConfigError("study", _rule(config), f"{pattern!r} came", "see posttrainllm.study.addresses")
        taken.update(matching)
    return [place for address, place in known.items() if address in taken]


def place_of(config: GPTConfig, address: str) -> Place:
    """The place of one address that can be replaced. Raises ConfigError where there is none or it cannot."""
    place = chosen(config, address)[0]
    if place.address != address:
        raise ConfigError("study", "one address is replaced at a time", f"{address!r} came", "name each")
    if not place.replaceable:
        raise ConfigError("study", f"{place.kind} can be read only", "a replacement came", "replace what it is computed from")
    return place


def _rule(config: GPTConfig) -> str:
    block = ", ".join(BLOCK)
    last = f"blocks.0 to blocks.{config.layers - 1}" if config.layers > 1 else "blocks.0"
    return f"an address is embed, {', '.join(WHOLE)}, or after {last}: {block}"
