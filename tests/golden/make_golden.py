"""Makes gpt.npz: what PyTorch says about one small GPT. Run with PyTorch 2.13 (CPU), from the repository's root:

    PYTHONPATH=pysrc python -m tests.golden.make_golden

The model is written here in PyTorch's own parts (nn.Linear, nn.LayerNorm, scaled_dot_product_attention,
cross_entropy with ignore_index, optim.AdamW), shares with the package only the starting weights (float32, seed 42),
and runs once in float64 (the golden values) and once in float32 (how far an honest float32 implementation strays, by
tensor).
Clipping is written out: torch's clip_grad_norm_ adds 1e-6 to the norm.
"""

import hashlib
import json
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from posttrainllm.backends.reference import ReferenceMachine
from posttrainllm.model.config import GPTConfig
from tests.helpers.models import BETA1, BETA2, CLIP, EPS, WEIGHT_DECAY, Model, batch

FILE = Path(__file__).with_name("gpt.npz")
CONFIG = GPTConfig(layers=2, channels=24, heads=3, context=10, vocabulary=61, batch=3)
PEAK, BATCHES = 0.015, 2  # two batches again and again: the loss halves in 20 steps, and the norm falls below the clip
RATES = [PEAK * n / 4 for n in (1, 2, 3)] + [
    PEAK * (0.1 + 0.45 * (1 + float(np.cos(np.pi * n / 16)))) for n in range(17)
]


class Block(nn.Module):
    def __init__(self, c, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(c), nn.LayerNorm(c)
        self.attn = nn.ModuleDict({"qkv": nn.Linear(c, 3 * c), "proj": nn.Linear(c, c)})
        self.mlp = nn.ModuleDict({"fc": nn.Linear(c, 4 * c), "proj": nn.Linear(4 * c, c)})

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (
            each.view(b, t, self.heads, -1).transpose(1, 2) for each in self.attn["qkv"](self.ln_1(x)).split(c, 2)
        )
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn["proj"](y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp["proj"](functional.gelu(self.mlp["fc"](self.ln_2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        c = config.channels
        self.wte, self.wpe = nn.Embedding(config.vocabulary, c), nn.Embedding(config.context, c)
        self.blocks = nn.ModuleList(Block(c, config.heads) for _ in range(config.layers))
        self.ln_f = nn.LayerNorm(c)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.ln_f(x) @ self.wte.weight.T


def transposed(name):
    """Our weights of linears are (in, out), PyTorch's (out, in)."""
    return name.endswith(".weight") and (".attn." in name or ".mlp." in name)


def ours(name, tensor):
    """A parameter or gradient in our orientation, float64."""
    array = tensor.detach().double().numpy()
    return (array.T if transposed(name) else array).copy()


def loss_of(model, tokens, targets):
    """(logits [R,V], mean loss over targets that count)."""
    logits = model(torch.tensor(tokens, dtype=torch.long)).flatten(0, 1)
    return logits, functional.cross_entropy(
        logits, torch.tensor(targets, dtype=torch.long).flatten(), ignore_index=-100
    )


def run(dtype, weights):
    """Logits, loss, gradients of batch 0; then 20 steps, from the starting weights."""
    model = GPT(CONFIG).to(dtype)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.tensor(weights[name].T if transposed(name) else weights[name], dtype=dtype))
    logits, loss = loss_of(model, *batch(CONFIG, 0))
    loss.backward()
    found = {"logits": logits.detach().double().numpy(), "loss": np.array(loss.item())}
    found |= {f"gradient/{name}": ours(name, p.grad) for name, p in model.named_parameters()}
    decayed = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": decayed, "weight_decay": WEIGHT_DECAY}, {"params": rest, "weight_decay": 0.0}]
    optimiser = torch.optim.AdamW(groups, betas=(BETA1, BETA2), eps=EPS)
    losses, norms = [], []
    for number, rate in enumerate(RATES):
        for group in optimiser.param_groups:
            group["lr"] = rate
        optimiser.zero_grad()
        _, loss = loss_of(model, *batch(CONFIG, number % BATCHES))
        loss.backward()
        norm = torch.linalg.vector_norm(torch.cat([p.grad.flatten() for p in model.parameters()])).item()
        if norm > CLIP:
            for parameter in model.parameters():
                parameter.grad.mul_(CLIP / norm)
        optimiser.step()
        losses.append(loss.item())
        norms.append(norm)
    found |= {"curve_losses": np.array(losses), "curve_norms": np.array(norms)}
    return found | {f"trained_norm/{name}": np.linalg.norm(ours(name, p)) for name, p in model.named_parameters()}


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    start = Model(ReferenceMachine(), CONFIG)
    golden, single = run(torch.float64, start.weights()), run(torch.float32, start.weights())
    about = {
        "torch": torch.__version__,
        "config": CONFIG.to_dict(),
        "initial_sha256": hashlib.sha256(start.weights_bytes()).hexdigest(),
        "float32_error": {name: float(np.abs(single[name] - value).max()) for name, value in golden.items()},
    }
    np.savez_compressed(FILE, rates=np.array(RATES), about=np.array(json.dumps(about)), **golden)
    print(
        f"wrote {FILE.name}: {FILE.stat().st_size:,} bytes; losses {golden['curve_losses'].round(3)}, "
        f"norms {golden['curve_norms'].round(2)}"
    )


if __name__ == "__main__":
    main()
