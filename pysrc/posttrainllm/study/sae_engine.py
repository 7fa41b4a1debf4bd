"""The products of a sparse autoencoder, training and trained, on a model's engine; what is done number by number stays in NumPy.

In a tab NumPy multiplies matrices some forty times slower than the engine. Three tapes of kernels there are: encode; decode, error
and gradients of the decoder; gradients of the encoder.
"""

from __future__ import annotations

from ..compile import Graph
from ..dims import ELEMENT_BYTES
from ..model.memory import RESERVE_BYTES
from ..ops.lazy import np
from .beside import Beside
from .sae import SparseAutoencoder, sparse


class Products(Beside):
    """Gradients of batches of `rows` rows, for an autoencoder of C channels and F features."""

    def __init__(self, model, channels: int, features: int, rows: int, machine=None) -> None:
        super().__init__(model, machine)
        c, f = channels, features
        self.add_values({
            "centred": (rows, c), "negative": (rows, c), "acts": (rows, f), "dpre": (rows, f),
            "encoder": (c, f), "encoder_bias": (f,), "decoder": (f, c), "bias": (c,),
            "dencoder": (c, f), "dencoder_bias": (f,), "ddecoder": (f, c), "dbias": (c,),
        })  # fmt: skip
        v, into, out = self.values, {"R": rows, "I": c, "O": f}, {"R": rows, "I": f, "O": c}
        encode, decode, back = Graph(), Graph(), Graph()
        self._pre = encode.call("linear", into, out="pre", x=v["centred"], weight=v["encoder"], bias=v["encoder_bias"]).arg("y")
        self.zero(decode, "ddecoder", "dbias")
        y = decode.call("linear", out, out="y", x=v["acts"], weight=v["decoder"], bias=v["bias"]).arg("y")
        self._error = decode.call("add", {"N": rows * c}, out="error", a=y, b=v["negative"]).arg("y")
        self._dacts = decode.call("linear_backward_input", out, out="dacts", dy=self._error, weight=v["decoder"]).arg("dx")
        decode.call("linear_backward_weight", out, x=v["acts"], dy=self._error, dweight=v["ddecoder"], dbias=v["dbias"])
        self.zero(back, "dencoder", "dencoder_bias")
        back.call("linear_backward_weight", into, x=v["centred"], dy=v["dpre"], dweight=v["dencoder"], dbias=v["dencoder_bias"])
        for value in (self._pre, self._error, self._dacts):
            value.keep = True
        self.add_graphs(encode, decode, back)

    async def gradients(self, w: dict, x, kind: str, k: int, l1: float):
        """As sae_train.gradients, which is its judge: (activations, error, gradients by weight) of x [rows,C]."""
        await self.ready()
        scale = np.float32(2 / len(x))
        self.upload(centred=x - w["bias"], negative=-x, **w)
        self.replay(0)
        (pre,) = await self.fetch(self._pre)
        acts = sparse(pre, kind, k)
        self.upload(acts=acts)
        self.replay(1)
        error, dacts, decoder, bias = await self.fetch(self._error, self._dacts, "ddecoder", "dbias")
        dpre = np.where(acts > 0, dacts * scale + np.float32(l1 / len(x) if kind == "l1" else 0), np.float32(0))
        self.upload(dpre=dpre)
        self.replay(2)
        encoder, encoder_bias = await self.fetch("dencoder", "dencoder_bias")
        found = {"encoder": encoder, "encoder_bias": encoder_bias, "decoder": decoder * scale, "bias": bias * scale - w["encoder"] @ encoder_bias}
        return acts, error, found


CODED_ROWS = 512


class Coder(Beside):
    """A trained autoencoder that encodes and decodes on the model's engine, CODED_ROWS rows at a time."""

    def __init__(self, model, autoencoder: SparseAutoencoder, machine=None) -> None:
        super().__init__(model, machine)
        self._own = autoencoder
        c, f = autoencoder.channels, autoencoder.features
        self.add_values({"x": (CODED_ROWS, c), "acts": (CODED_ROWS, f), "encoder": (c, f), "encoder_bias": (f,), "decoder": (f, c), "bias": (c,)})
        v, encode, decode = self.values, Graph(), Graph()
        into, out = {"R": CODED_ROWS, "I": c, "O": f}, {"R": CODED_ROWS, "I": f, "O": c}
        self._pre = encode.call("linear", into, out="pre", x=v["x"], weight=v["encoder"], bias=v["encoder_bias"]).arg("y")
        self._y = decode.call("linear", out, out="y", x=v["acts"], weight=v["decoder"], bias=v["bias"]).arg("y")
        self._pre.keep = self._y.keep = True
        self.add_graphs(encode, decode)

    async def encode(self, x):
        """As SparseAutoencoder.encode, to rounding: feature activations [..., F] of x [..., C]."""
        own = self._own
        pre = await self._through(0, "x", np.asarray(x, np.float32).reshape(-1, own.channels) - own.bias, self._pre, "encoder", "encoder_bias")
        return sparse(pre, own.kind, own.k).reshape(*np.shape(x)[:-1], own.features)

    async def decode(self, acts):
        """As SparseAutoencoder.decode, to rounding: x' [..., C] of feature activations [..., F]."""
        own = self._own
        y = await self._through(1, "acts", acts.reshape(-1, own.features), self._y, "decoder", "bias")
        return y.reshape(*acts.shape[:-1], own.channels)

    async def _through(self, which: int, name: str, rows, output, *weights: str):
        await self.ready()
        self.upload(**{each: getattr(self._own, each) for each in weights})  # other passes use the same room in between
        found = []
        for first in range(0, len(rows), CODED_ROWS):
            part = rows[first : first + CODED_ROWS]
            room = np.zeros((CODED_ROWS, rows.shape[1]), np.float32)
            room[: len(part)] = part
            self.upload(**{name: room})
            self.replay(which)
            found.append((await self.fetch(output))[0][: len(part)])
        return np.concatenate(found)


def need_bytes(channels: int, features: int, rows: int) -> int:
    """Of a machine for Products of `rows` rows and a Coder: their values and, at most, their arena."""
    rows = max(rows, CODED_ROWS)
    return ELEMENT_BYTES * (rows * (5 * channels + 5 * features) + 4 * channels * features + 4 * (channels + features)) + RESERVE_BYTES
