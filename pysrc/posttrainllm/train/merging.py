"""A base and an adapter as one plain model, tensor by tensor: the live model stays as it is, and is never held twice."""

from __future__ import annotations

import time

from .. import __version__
from ..model.gpt import Layout
from ..model.live import GPT
from ..model.lora import Adapter, sites
from ..model.weights import require_finite
from ..ops.lazy import np
from ..store.buffers import Tensor
from ..store.checkpoint import Checkpoint


def base_checkpoint(model: GPT, name: str) -> Checkpoint:
    """The base under `model`, whatever adapter is on: windows on the live model, so save it before the next step. A browser's GPU is
    fetched before."""
    weights = {each.name: Tensor("F32", each.shape, model.weight_view(each.name)) for each in Layout.of(model.config).parameters}
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return Checkpoint(
        name=name, config=model.config.to_dict(), step=0, tokenizer=model.tokenizer.to_dict(), weights=weights, created=now, updated=now,
        app_version=__version__,
    )  # fmt: skip


def merged_checkpoint(model: GPT, adapter: Adapter, strength: float, name: str) -> Checkpoint:
    """base_checkpoint with `adapter` worked into its weights: w + strength · scaling · down·up, in float64, rounded once. Without moments:
    one can write with it and tune it, not train it further. Raises ConfigError, and NumericsError where not all of its weights are finite."""
    adapter.require_fit(model.config)
    checkpoint = base_checkpoint(model, name)
    scale, rank = strength * adapter.config.scaling, adapter.config.rank
    changed: dict[str, np.ndarray] = {}
    for site in sites(model.config, adapter.config):
        address = f"{site.linear}.weight"
        if address not in changed:
            changed[address] = np.frombuffer(model.weight_bytes(address), "<f4").reshape(site.inputs, site.outputs).astype(np.float64)
        down = np.frombuffer(adapter.weights[site.down()], "<f4").reshape(site.inputs, rank).astype(np.float64)
        up = np.frombuffer(adapter.weights[site.up()], "<f4").reshape(rank, site.columns).astype(np.float64)
        with np.errstate(all="ignore"):  # what is not finite is refused below
            changed[address][:, site.first : site.first + site.columns] += scale * (down @ up)
    for address, weight in changed.items():
        with np.errstate(over="ignore"):
            data = weight.astype("<f4").tobytes()
        require_finite(f"merge {adapter.name}", [(address, data)])
        checkpoint.weights[address] = Tensor("F32", checkpoint.weights[address].shape, data)
    return checkpoint
