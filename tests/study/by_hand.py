"""A GPT in a page of NumPy, float64, sharing nothing with the package but the weights: what stands at every address."""

import math

import numpy as np

from posttrainllm.model.live import GPT
from posttrainllm.model.program import Program


def made(machine, config, seed=5, lora=None):
    """A model with weights that matter: attention as made from a seed is nearly uniform."""
    model = GPT(config, machine, Program(config, False, lora))
    model.initialise(seed)
    rng = np.random.default_rng(seed + 1)
    for name in model.weight_names():
        shape = next(each.shape for each in model.program.layout.parameters if each.name == name)
        start = 1.0 if ".weight" in name and len(shape) == 1 else 0.0
        weight = start + 0.25 * rng.standard_normal(shape)
        model.set_weight_bytes(name, weight.astype("<f4").tobytes())
    return model


def weights_of(model):
    """float64 arrays by name."""
    return {
        each.name: np.frombuffer(model.weight_bytes(each.name), "<f4").reshape(each.shape).astype(np.float64)
        for each in model.program.layout.parameters
    }


def normalised(x, weight, bias):
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + 1e-5) * weight + bias


def gelu(x, activation):
    """The tanh form, or the exact one."""
    if activation == "gelu":
        return x * np.vectorize(lambda value: 0.5 * math.erfc(-value / math.sqrt(2)))(x)
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def forward(weights, config, tokens, instead=None):
    """Every address of one sequence, [T,…]; `instead` maps an address to a function of what stands there."""
    instead, found = instead or {}, {}
    heads, width, time = config.heads, config.head_width, len(tokens)

    def at(address, value):
        found[address] = instead[address](value.copy()) if address in instead else value
        return found[address]

    def norm(x, name):
        return at(name, normalised(x, weights[f"{name}.weight"], weights[f"{name}.bias"]))

    def linear(x, name):
        return x @ weights[f"{name}.weight"] + weights[f"{name}.bias"]

    x = at("embed", weights["wte.weight"][tokens] + weights["wpe.weight"][:time])
    for layer in range(config.layers):
        block = f"blocks.{layer}"
        x = found["embed" if layer == 0 else f"blocks.{layer - 1}.resid_post"] = at(f"{block}.resid_pre", x)  # one activation
        qkv = at(f"{block}.attn.qkv", linear(norm(x, f"{block}.ln_1"), f"{block}.attn.qkv"))
        q, k, v = (at(f"{block}.attn.{name}", part) for name, part in zip("qkv", qkv.reshape(time, 3, heads, width).swapaxes(0, 1)))
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(width)
        scores = at(f"{block}.attn.scores", np.where(np.tri(time, dtype=bool), scores, -np.inf))
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        pattern = at(f"{block}.attn.pattern", powers / powers.sum(-1, keepdims=True))
        z = at(f"{block}.attn.y", np.einsum("hqk,khd->qhd", pattern, v))
        out = linear(z.reshape(time, -1), f"{block}.attn.proj")
        found[f"{block}.attn.result"] = np.einsum("thd,hdc->thc", z, weights[f"{block}.attn.proj.weight"].reshape(heads, width, -1))
        x = at(f"{block}.resid_mid", x + at(f"{block}.attn.out", out))
        pre = at(f"{block}.mlp.pre", linear(norm(x, f"{block}.ln_2"), f"{block}.mlp.fc"))
        post = at(f"{block}.mlp.post", gelu(pre, config.activation))
        x = at(f"{block}.resid_post", x + at(f"{block}.mlp.out", linear(post, f"{block}.mlp.proj")))
    at("logits", norm(x, "ln_f") @ weights["wte.weight" if config.tied else "lm_head.weight"].T)
    return found
