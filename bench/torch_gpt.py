"""The peer: the same GPT in PyTorch, eager, as nanoGPT writes it: tied head, biases, tanh GELU, fused attention and AdamW."""

from __future__ import annotations

import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from bench import data


class Block(nn.Module):
    """Pre-LN attention and MLP. Attributes have our names, so that weights can be copied by name."""

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.attn = nn.ModuleDict({"qkv": nn.Linear(channels, 3 * channels), "proj": nn.Linear(channels, channels)})
        self.mlp = nn.ModuleDict({"fc": nn.Linear(channels, 4 * channels), "proj": nn.Linear(4 * channels, channels)})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, time_, channels = x.shape
        parts = self.attn["qkv"](self.ln_1(x)).split(channels, dim=2)
        q, k, v = (part.view(batch, time_, self.heads, channels // self.heads).transpose(1, 2) for part in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn["proj"](y.transpose(1, 2).reshape(batch, time_, channels))
        return x + self.mlp["proj"](F.gelu(self.mlp["fc"](self.ln_2(x)), approximate="tanh"))


class Model(nn.Module):
    """tokens and targets [B,T] to the mean loss in nats. The first `checkpointed` blocks are computed again in the backward."""

    checkpointed = 0

    def __init__(self, config) -> None:
        super().__init__()
        self.wte = nn.Embedding(config.vocabulary, config.channels)
        self.wpe = nn.Embedding(config.context, config.channels)
        self.blocks = nn.ModuleList(Block(config.channels, config.heads) for _ in range(config.layers))
        self.ln_f = nn.LayerNorm(config.channels)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for number, block in enumerate(self.blocks):
            x = checkpoint(block, x, use_reentrant=False) if number < self.checkpointed else block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))


class Contestant:
    """Trains a preset on `threads` threads, from the common weights and batches."""

    def __init__(self, preset: str, threads: int) -> None:
        from posttrainllm.model.config import GPTConfig

        torch.set_num_threads(threads)
        config = GPTConfig.preset(preset)
        self.model, self.recipes, self.position = Model(config), data.recipes(config), 0
        self.batches = [tuple(self._tensor(raw, config) for raw in pair) for pair in data.batches(config)]
        named = dict(self.model.named_parameters())
        groups: tuple[list, list] = ([], [])
        for name, (shape, decays, raw) in data.weights(config).items():
            stored = torch.frombuffer(bytearray(raw), dtype=torch.float32).view(shape)
            linear = len(shape) == 2 and name.startswith("blocks")
            with torch.no_grad():
                named[name].copy_(stored.T if linear else stored)  # nn.Linear keeps (out, in)
            groups[decays].append(named[name])
        first = self.recipes[0]
        self.clip = first[5]
        self.optimizer = torch.optim.AdamW(
            [{"params": groups[1], "weight_decay": first[4]}, {"params": groups[0], "weight_decay": 0.0}],
            lr=first[0], betas=(first[1], first[2]), eps=first[3], fused=True,
        )

    @staticmethod
    def _tensor(raw: bytes, config) -> torch.Tensor:
        return torch.frombuffer(bytearray(raw), dtype=torch.int32).view(config.batch, config.context).long()

    def run(self, count: int) -> list[dict]:
        """Take `count` steps: [{"ms", "loss_nats", "gradient_norm"}]."""
        return [self._step() for _ in range(count)]

    def _step(self) -> dict:
        at = self.position % len(self.recipes)
        self.position += 1
        began = time.perf_counter()
        for group in self.optimizer.param_groups:
            group["lr"] = self.recipes[at][0]
        loss = self.model(*self.batches[at])
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        value = loss.item()
        return {"ms": 1000 * (time.perf_counter() - began), "loss_nats": value, "gradient_norm": norm.item()}

    def memory(self) -> None:
        """Not asked of PyTorch: its allocator's figure is not comparable."""
