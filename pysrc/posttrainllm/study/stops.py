"""The forward pass on one screen: what stands at every address for one token, from its embedding to the logits."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from ..errors import DataError
from ..ops.lazy import np
from ..waiting import now
from .addresses import chosen
from .checks import position_of
from .picture import label, table
from .running import Run, labels_of, tokens_of

NUMBERS = 8
MADE_OF = {  # how what stands at an address came about, in the ops' names
    "embed": "wte[token] + wpe[position]",
    "ln_1": "layernorm",
    "attn.q": "linear",
    "attn.k": "linear",
    "attn.v": "linear",
    "attn.pattern": "softmax(q·kᵀ/√D)",
    "attn.y": "pattern·v",
    "attn.out": "linear",
    "resid_mid": "+",
    "ln_2": "layernorm",
    "mlp.pre": "linear",
    "mlp.post": "gelu",
    "mlp.out": "linear",
    "resid_post": "+",
    "ln_f": "layernorm",
    "logits": "·wteᵀ",
}


@dataclass(frozen=True)
class Stop:
    """One address: what made it, the shape there for the one token, its first numbers (the largest of logits and patterns, with
    where), its length and its mean."""

    address: str
    made_of: str
    shape: list[int]
    numbers: list[float]
    at: list[str]
    length: float
    mean: float


@dataclass(frozen=True)
class Flow:
    """Every stop of one token's way, in order."""

    position: int
    labels: list[str]
    stops: list[Stop]

    def __str__(self) -> str:
        rows = []
        for stop in self.stops:
            shown = [f"{label(name)} {each:.2f}" for name, each in zip(stop.at, stop.numbers)] if stop.at else [f"{each:+.2f}" for each in stop.numbers]
            rows.append((stop.address, stop.made_of, "×".join(map(str, stop.shape)), f"{stop.length:.2f}", " ".join(shown[:5])))
        return table(("address", "made of", "shape", "length", "numbers"), rows)

    def to_dict(self) -> dict:
        """Plain JSON."""
        return asdict(self)


async def flow_async(model, text, position: int = -1) -> Flow:
    """`flow`, for code that awaits."""
    tokens = tokens_of(model, text)
    if tokens.ndim != 1:
        raise DataError("study", "this is of one text", f"{len(tokens)} came", "ask for one at a time")
    position = position_of(tokens, position)
    labels = labels_of(model, tokens)
    places = [place for place in chosen(model.config, "*") if place.kind in MADE_OF]
    found = await Run(model, tokens[None]).read(places)
    stops, made_of = [], MADE_OF | ({} if model.config.tied else {"logits": "·lm_headᵀ"})
    for place in places:
        array = found[place.address][0]
        there = array[:, position, : position + 1] if place.dims == "HTT" else array[position]
        flat, at = there.reshape(-1).astype(np.float64), []
        numbers = flat[:NUMBERS]
        if place.kind == "attn.pattern":
            best = there.argmax(1)  # of each head where it looks most
            numbers, at = there[np.arange(len(best)), best][:NUMBERS], [labels[each] for each in best[:NUMBERS]]
        elif place.kind == "logits":
            best = np.argsort(-flat, kind="stable")[:NUMBERS]
            numbers, at = flat[best], labels_of(model, best)
        length, mean = float(np.sqrt((flat**2).sum())), float(flat.mean())
        stops.append(Stop(place.address, made_of[place.kind], list(there.shape), [float(each) for each in numbers], at, length, mean))
    return Flow(position, labels, stops)


def flow(model, text, position: int = -1) -> Flow:
    """The way of one token (default the last) through the model: real numbers and shapes at every address. Raises DataError."""
    return now(flow_async(model, text, position))
