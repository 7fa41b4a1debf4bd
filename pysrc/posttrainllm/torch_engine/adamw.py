"""Clipped AdamW as ops/adamw.py has it, by torch's fused kernel, on any device without a word to the host."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

LATE = 1e12
"""A step count at which the kernel's own bias corrections are 1: ours are in the recipe, and folded into rate and eps."""


@dataclass(frozen=True)
class Group:
    """Weights that AdamW decays, or does not: the parts this process holds, and their moments."""

    decayed: bool
    params: list[Tensor]
    m: list[Tensor]
    v: list[Tensor]
    steps: list[Tensor]

    @classmethod
    def of(cls, decayed: bool, params: list[Tensor], m: list[Tensor], v: list[Tensor]) -> Group:
        """With the counter that the kernel wants for each."""
        steps = torch.full((max(1, len(params)),), LATE, dtype=torch.float32, device=params[0].device if params else None)
        return cls(decayed, params, m, v, list(steps.unbind())[: len(params)])


def squared_norm(grads: list[Tensor]) -> Tensor:
    """Sum of squares of all elements, float64 [], on the gradients' device."""
    return torch.stack(torch._foreach_norm(grads)).double().square().sum()


def update(groups: list[tuple[Group, list[Tensor]]], norm: Tensor, recipe: tuple[float, ...]) -> None:
    """One step: each group with its gradients (which are scaled in place), their global norm (float32 []), and the recipe of
    train/schedule.py. Where the norm is not finite nothing changes.

    m̂·lr/(√v̂ + eps) with m̂ = m·c1, v̂ = v·c2 is m·(lr·c1/√c2)/(√v + eps/√c2): so the corrections need no step count.
    """
    rate, beta1, beta2, eps, decay, clip, correction1, correction2 = recipe
    root = math.sqrt(correction2)
    folded = rate * correction1 / root
    # The kernel divides by this: norm/clip where that is above 1.
    scale = (norm / clip).clamp(min=1.0) if clip > 0 else torch.ones_like(norm)
    found = (~torch.isfinite(norm)).to(torch.float32)
    for group, grads in groups:
        own = decay * rate / folded if group.decayed and folded else 0.0
        torch._fused_adamw_(
            group.params, grads, group.m, group.v, [], group.steps,
            lr=folded, beta1=beta1, beta2=beta2, weight_decay=own, eps=eps / root, amsgrad=False, maximize=False,
            grad_scale=scale, found_inf=found,
        )  # fmt: skip
