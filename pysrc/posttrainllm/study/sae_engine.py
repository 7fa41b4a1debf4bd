"""The products of a sparse autoencoder's step on a model's engine; what is done number by number stays in NumPy.

In a tab NumPy multiplies matrices some fifty times slower than the engine. Three tapes of kernels there are: encode; decode, error
and gradients of the decoder; gradients of the encoder. Their values stand behind the KV cache, in a region no other pass looks at.
"""

from __future__ import annotations

from ..compile import Graph, Value, place, record
from ..compile.tape import address
from ..dims import ALIGN_BYTES, round_up
from ..errors import DeviceError
from ..ops.lazy import np
from ..waiting import begun
from .sae import sparse
from .weights import fetched


class Products:
    """Gradients of batches of `rows` rows, for an autoencoder of C channels and F features. Raises DeviceError in half precision."""

    def __init__(self, model, channels: int, features: int, rows: int) -> None:
        self._machine = model.machine
        if getattr(self._machine, "precision", "f32") != "f32":
            raise DeviceError("sae", "an engine in single precision", "one in half precision came", 'open it with precision "f32"')
        self._rows, c, f = rows, channels, features
        self._end = round_up(model.program.region_bytes()["cache"], ALIGN_BYTES)
        shapes = {
            "centred": (rows, c), "negative": (rows, c), "acts": (rows, f), "dpre": (rows, f),
            "encoder": (c, f), "encoder_bias": (f,), "decoder": (f, c), "bias": (c,),
            "dencoder": (c, f), "dencoder_bias": (f,), "ddecoder": (f, c), "dbias": (c,),
        }  # fmt: skip
        v = self._values = {name: self._value(name, shape) for name, shape in shapes.items()}
        into, out = {"R": rows, "I": c, "O": f}, {"R": rows, "I": f, "O": c}
        encode, decode, back = Graph(), Graph(), Graph()
        self._pre = encode.call("linear", into, out="pre", x=v["centred"], weight=v["encoder"], bias=v["encoder_bias"]).arg("y")
        self._zero(decode, "ddecoder", "dbias")
        y = decode.call("linear", out, out="y", x=v["acts"], weight=v["decoder"], bias=v["bias"]).arg("y")
        self._error = decode.call("add", {"N": rows * c}, out="error", a=y, b=v["negative"]).arg("y")
        self._dacts = decode.call("linear_backward_input", out, out="dacts", dy=self._error, weight=v["decoder"]).arg("dx")
        decode.call("linear_backward_weight", out, x=v["acts"], dy=self._error, dweight=v["ddecoder"], dbias=v["dbias"])
        self._zero(back, "dencoder", "dencoder_bias")
        back.call("linear_backward_weight", into, x=v["centred"], dy=v["dpre"], dweight=v["dencoder"], dbias=v["dencoder_bias"])
        for value in (self._pre, self._error, self._dacts):
            value.keep = True
        self._plans = [place(graph) for graph in (encode, decode, back)]
        self._tapes = [record(plan) for plan in self._plans]
        self._loaded: list = []

    def _value(self, name: str, shape: tuple[int, ...]) -> Value:
        made = Value(name, shape, "f32", "cache", self._end)
        self._end = round_up(self._end + made.nbytes, ALIGN_BYTES)
        return made

    def _zero(self, graph: Graph, *names: str) -> None:
        for name in names:
            graph.call("fill", {"N": self._values[name].nbytes // 4}, (0.0,), x=self._values[name])

    async def _ready(self) -> None:
        machine = self._machine
        machine.allocate({"cache": self._end, "arena": max(plan.region_bytes["arena"] for plan in self._plans)})
        if not self._loaded:
            asynchronous = hasattr(machine, "load_all_async")
            self._loaded = await machine.load_all_async(self._tapes) if asynchronous else [machine.load(tape) for tape in self._tapes]
        elif hasattr(machine, "ready_async"):
            for each in self._loaded:
                await machine.ready_async(each)

    def _upload(self, **arrays) -> None:
        for name, array in arrays.items():
            self._machine.upload(address(self._values[name]), np.ascontiguousarray(array, "<f4").tobytes())

    async def _fetch(self, *values: Value) -> list:
        asked = [begun(fetched(self._machine, address(value), value.nbytes, value.shape)) for value in values]
        return [np.asarray(await answer, np.float32) for answer in asked]

    async def gradients(self, w: dict, x, kind: str, k: int, l1: float):
        """As sae_train.gradients, which is its judge: (activations, error, gradients by weight) of x [rows,C]."""
        await self._ready()
        scale = np.float32(2 / len(x))
        self._upload(centred=x - w["bias"], negative=-x, **w)
        self._machine.replay(self._loaded[0])
        (pre,) = await self._fetch(self._pre)
        acts = sparse(pre, kind, k)
        self._upload(acts=acts)
        self._machine.replay(self._loaded[1])
        error, dacts, decoder, bias = await self._fetch(self._error, self._dacts, *(self._values[name] for name in ("ddecoder", "dbias")))
        dpre = np.where(acts > 0, dacts * scale + np.float32(l1 / len(x) if kind == "l1" else 0), np.float32(0))
        self._upload(dpre=dpre)
        self._machine.replay(self._loaded[2])
        encoder, encoder_bias = await self._fetch(*(self._values[name] for name in ("dencoder", "dencoder_bias")))
        found = {"encoder": encoder, "encoder_bias": encoder_bias, "decoder": decoder * scale, "bias": bias * scale - w["encoder"] @ encoder_bias}
        return acts, error, found
