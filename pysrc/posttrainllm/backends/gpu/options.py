"""How a tape is lowered: the device's limits, the precision of storage, and which features its shaders may use."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...dims import ELEMENT_BYTES
from ...errors import DeviceError
from .limits import DEFAULT, Limits
from .parts import Cuts

PRECISIONS = ("f32", "f16")

HALF_ARGUMENTS = {
    kernel: frozenset(names.split())
    for kernel, names in {
        "embedding": "x",
        "embedding_backward": "dx",
        "embedding_at": "x",
        "layernorm": "x y",
        "layernorm_backward": "dy x dx",
        "linear": "x weight y",
        "linear_backward_input": "dy weight dx",
        "linear_backward_weight": "x dy",
        "attention": "qkv y",
        "attention_backward": "qkv y dy dqkv",
        "attention_cached": "qkv y",
        "gelu": "x y",
        "gelu_backward": "dy x dx",
        "add": "a b y",
        "unembed": "x wte",
        "unembed_backward_input": "dlogits wte dx",
        "unembed_backward_weight": "x dlogits",
        "cross_entropy_backward": "dlogits",
        "lora": "x y",
        "lora_backward_hidden": "dy",
        "lora_backward_input": "dx",
        "lora_backward_weight": "x dy",
        "layernorm_backward_input": "dy x dx",
        "cross_entropy_backward_rows": "dlogits",
        "blend": "y",
        "gelu_erf": "x y",
        "gelu_erf_backward": "dy x dx",
    }.items()
}
"""Arguments stored in half precision where the precision is f16. All others stay f32, and so does every sum."""
HALF_BYTES = 2


@dataclass(frozen=True)
class Options:
    """What `lower` needs to know of a device and of a run.

    precision: "f16" stores activations, their gradients and a copy of the weights in half precision (HALF_ARGUMENTS).
    subgroup_matrix: shapes (M, N, K) of the device's f16→f32 products; () without. subgroups: shaders may use them.
    tiles: what the probe chose for the device, None before one. guard: a training step whose gradient norm is not finite
    stops all later ones from changing weights (f32; f16 lowers its loss scale instead). fuse: a product and what follows it are one dispatch (see fuse.py). cuts: which regions lie in
    several buffers (see parts.py).
    """

    limits: Limits = DEFAULT
    precision: str = "f32"
    subgroup_matrix: tuple[tuple[int, int, int], ...] = ()
    subgroups: bool = False
    tiles: object = None
    guard: bool = False
    fuse: bool = True
    cuts: Cuts = field(default_factory=Cuts)

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise DeviceError(
                "webgpu", f"a precision is one of {', '.join(PRECISIONS)}", f"{self.precision!r} came", "choose one"
            )

    @classmethod
    def of(cls, given: Limits | Options) -> Options:
        """Options from either."""
        return given if isinstance(given, Options) else cls(given)

    @property
    def half(self) -> bool:
        """Whether activations are stored in half precision."""
        return self.precision == "f16"

    def element_bytes(self, kernel: str, argument: str) -> int:
        """Bytes of an element of a kernel's argument."""
        return HALF_BYTES if self.half and argument in HALF_ARGUMENTS.get(kernel, ()) else ELEMENT_BYTES
