"""The model in plain torch operations. Parameters have the package's addresses and shapes; linear weights are stored (in, out)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ..model.config import GPTConfig
from ..model.gpt import parameters

EPS = 1e-5
IGNORED = -100
_FORMS = {"gelu_new": "tanh", "gelu": "none"}


class Network(nn.Module):
    """tokens [B,T] int64 to logits [B,T,V], or with targets [B,T] (IGNORED where one does not count) to losses [B·T] in nats.

    Of the first `recompute` blocks only the input is kept for the backward. Weights hold nothing yet.
    """

    def __init__(self, config: GPTConfig, recompute: int = 0) -> None:
        super().__init__()
        self.head = config.head
        self.blocks = nn.ModuleList(Block(config, layer < recompute) for layer in range(config.layers))
        for parameter in parameters(config):
            _plant(self, parameter.name, torch.empty(parameter.shape))

    def forward(self, tokens: Tensor, targets: Tensor | None = None) -> Tensor:
        x = (F.embedding(tokens, self.wte.weight) + self.wpe.weight[: tokens.shape[1]]).float()  # the residual stream, in any precision
        for block in self.blocks:
            x = block(x)
        logits = F.linear(_norm(x, self.ln_f), self.get_parameter(self.head))
        if targets is None:
            return logits
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="none")


class Block(nn.Module):
    """Pre-LN attention and MLP. What is computed again is inside of `forward`, so that a wrapper around the block sees one call."""

    def __init__(self, config: GPTConfig, recompute: bool) -> None:
        super().__init__()
        self.heads, self.form, self.recompute = config.heads, _FORMS[config.activation], recompute

    def forward(self, x: Tensor) -> Tensor:
        if self.recompute and torch.is_grad_enabled():
            return checkpoint(self._compute, x, use_reentrant=False, preserve_rng_state=False)
        return self._compute(x)

    def _compute(self, x: Tensor) -> Tensor:
        batch, time, channels = x.shape
        qkv = _linear(_norm(x, self.ln_1), self.attn.qkv).view(batch, time, 3, self.heads, channels // self.heads)
        q, k, v = (part.transpose(1, 2) for part in qkv.unbind(2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, time, channels)
        x = x + _linear(y, self.attn.proj)
        return x + _linear(F.gelu(_linear(_norm(x, self.ln_2), self.mlp.fc), approximate=self.form), self.mlp.proj)


def _linear(x: Tensor, of: nn.Module) -> Tensor:
    return torch.addmm(of.bias, x.flatten(0, 1), of.weight).view(*x.shape[:2], -1)


def _norm(x: Tensor, of: nn.Module) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], of.weight, of.bias, EPS)


def _plant(module: nn.Module, address: str, weight: Tensor) -> None:
    """Put a parameter where its address says, with plain modules on the way."""
    *path, leaf = address.split(".")
    for name in path:
        if name not in module._modules:
            module.add_module(name, nn.Module())
        module = module._modules[name]
    module.register_parameter(leaf, nn.Parameter(weight))
