"""The ops: one file each, forward beside backward, in the order that gives kernels their ids on the tape."""

from . import add, attention, blend, cross_entropy, dpo, embedding, gelu, gelu_erf, layernorm, linear, lora, unembed
from .adamw import ADAMW
from .adamw_8bit import ADAMW_8BIT
from .adamw_bf16 import ADAMW_BF16
from .fill import FILL
from .grad_norm import GRAD_NORM
from .normal import NORMAL
from .spec import Arg, Kernel, Op

OPS: dict[str, Op] = {
    op.forward.name: op
    for op in (
        embedding.OP,
        layernorm.OP,
        linear.OP,
        attention.OP,
        gelu.OP,
        add.OP,
        unembed.OP,
        cross_entropy.OP,
        lora.OP,
        dpo.OP,
        gelu_erf.OP,
    )
}

# Kernels that came later, at the end, so that a kernel keeps its id.
_LATER: tuple[Kernel, ...] = (
    embedding.EMBEDDING_AT,
    attention.ATTENTION_CACHED,
    lora.LORA,
    lora.LORA_BACKWARD_HIDDEN,
    lora.LORA_BACKWARD_INPUT,
    lora.LORA_BACKWARD_WEIGHT,
    layernorm.LAYERNORM_BACKWARD_INPUT,
    dpo.DPO,
    dpo.DPO_BACKWARD,
    cross_entropy.CROSS_ENTROPY_BACKWARD_ROWS,
    blend.BLEND,
    gelu_erf.GELU_ERF,
    gelu_erf.GELU_ERF_BACKWARD,
    ADAMW_BF16,
    ADAMW_8BIT,
)
_FIRST = (FILL, NORMAL, *(kernel for op in OPS.values() for kernel in (op.forward, *op.backward)), GRAD_NORM, ADAMW)
KERNELS: tuple[Kernel, ...] = (*(kernel for kernel in _FIRST if kernel not in _LATER), *_LATER)
KERNEL_IDS: dict[str, int] = {kernel.name: index for index, kernel in enumerate(KERNELS)}


def kernel(name: str) -> Kernel:
    """The kernel of that name (KeyError when there is none)."""
    return KERNELS[KERNEL_IDS[name]]


__all__ = ["Arg", "KERNELS", "KERNEL_IDS", "Kernel", "OPS", "Op", "kernel"]
