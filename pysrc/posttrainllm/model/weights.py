"""A live model's weights by address: bytes in and out, and one hash of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from ..compile.graph import REGIONS
from ..compile.tape import REGION_SHIFT
from ..dims import product
from ..errors import FormatError, NumericsError
from ..ops.lazy import np
from .moments import KINDS
from .past import Guest

_PIECE_BYTES = 4 << 20
"""Of a weight that is hashed, so that no copy of a whole one is made: an embedding may have a hundred MB."""


def require_finite(place: str, weights: Iterable[tuple[str, bytes]]) -> None:
    """Raise NumericsError where one of these (float32 bytes by address) holds a NaN or an infinity."""
    for name, data in weights:
        if not np.isfinite(np.frombuffer(data, "<f4")).all():
            raise NumericsError(place, "every weight is a finite number", f"{name} holds one that is not", "choose another save or a smaller strength")


class Weights:
    """What a GPT's weights answer to. An adapter's are among them; of a frozen base there are no gradients and moments."""

    @property
    def closed(self) -> bool:
        """Whether `close` was called: there are no weights any more."""
        return self._past.closed

    def guest(self, other, ready) -> Guest:
        """A cache for `other`, which is this model under changes: `other.program.decoding` makes its passes, `ready` loads one."""
        return Guest(other, ready, self._download, self._past)

    def weight_bytes(self, name: str, region: str = "params") -> bytes:
        """A weight (or its gradient "grads", or AdamW's "m", "v") as little-endian float32 bytes, (in, out) order; of smaller moments
        the region's own bytes (model/moments.py)."""
        return self.machine.download(*self.weight_address(name, region))

    def set_weight_bytes(self, name: str, data, region: str = "params") -> None:
        """Replace a weight. Raises FormatError when the number of bytes is not the weight's."""
        start, nbytes = self.weight_address(name, region)
        if memoryview(data).nbytes != nbytes:
            raise FormatError("weights", f"{name} has {nbytes:,} bytes", f"{memoryview(data).nbytes:,} came", "check the model's sizes")
        self.forget_cache()
        self.machine.upload(start, data)

    def weight_view(self, name: str, region: str = "params"):
        """The same without a copy where the machine can (see Machine.view): valid until the machine's next `allocate`."""
        return self.machine.view(*self.weight_address(name, region))

    def weight_address(self, name: str, region: str = "params") -> tuple[int, int]:
        """(tape address, bytes) of a weight in one of the flat regions. Raises FormatError for an unknown name, or a frozen weight's
        gradient."""
        layout = self.program.layout
        for parameter in layout.parameters:
            if parameter.name == name:
                offset = layout.offsets_bytes[name] - (0 if region == "params" else layout.frozen_bytes)
                if offset < 0:
                    raise FormatError("weights", f"{region} holds what is trained", f"{name} is frozen", "see model.trainable_names()")
                kind = KINDS[self.program.saving.moments if region in ("m", "v") else "f32"]
                return REGIONS.index(region) << REGION_SHIFT | kind.place(offset), kind.nbytes(product(parameter.shape))
        raise FormatError("weights", "a weight of this model", f"{name!r} came", "see model.weight_names()")

    def weight_names(self) -> list[str]:
        """Addresses of all weights, in the flat buffers' order: the model's, then those of its adapter."""
        return [parameter.name for parameter in self.program.layout.parameters]

    def trainable_names(self) -> list[str]:
        """Those that a training step changes: all, or where there is an adapter its own."""
        return [parameter.name for parameter in self.program.layout.trainable]

    def weights_sha256(self, names=None) -> str:
        """sha256 over weights' bytes (all, or those named) in the order of their names, as store.checkpoint.weights_sha256 of a
        saved run."""
        digest = hashlib.sha256()
        for name in sorted(self.weight_names() if names is None else names):
            for piece in self.weight_pieces(name):
                digest.update(piece)
        return digest.hexdigest()

    def weight_pieces(self, name: str) -> Iterable[bytes]:
        """`weight_bytes` in order, a few MB at a time."""
        start, nbytes = self.weight_address(name)
        for offset in range(0, nbytes, _PIECE_BYTES):
            yield self.machine.download(start + offset, min(_PIECE_BYTES, nbytes - offset))
