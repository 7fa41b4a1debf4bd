"""A GPT of ours as transformers' GPT-2, with an adapter on it through peft. Needs both, and torch."""

import numpy as np
import torch
from peft import PeftModel, get_peft_model  # noqa: F401 - for those who import from here
from transformers import GPT2Config, GPT2LMHeadModel

from posttrainllm.store import peft as files

NAMES = {"ln_1": "ln_1", "ln_2": "ln_2"} | files.MODULES


def gpt2(config, weights, dtype=torch.float64):
    """transformers' model with our weights (arrays by address); it does not sample, so special tokens do not matter."""
    sizes = {"n_layer": config.layers, "n_embd": config.channels, "n_head": config.heads, "n_positions": config.context}
    special = {"bos_token_id": 0, "eos_token_id": 0}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=config.vocabulary, attn_implementation="eager", **sizes, **special))
    model = model.to(dtype).eval()
    state = dict(model.named_parameters())
    with torch.no_grad():
        for name, value in weights.items():
            state[theirs(name)].copy_(torch.tensor(np.asarray(value), dtype=dtype))
    return model


def theirs(name):
    """`blocks.1.attn.qkv.weight` as transformers calls it; both store linears (in, out)."""
    if not name.startswith("blocks."):
        return f"transformer.{name}"
    _, layer, rest = name.split(".", 2)
    module, _, kind = rest.rpartition(".")
    return f"transformer.h.{layer}.{NAMES[module]}.{kind}"


def logits_and_loss(model, tokens, targets):
    """(logits [R,V], mean loss over the targets that count), as tensors."""
    logits = model(torch.tensor(np.asarray(tokens), dtype=torch.long)).logits.flatten(0, 1)
    wanted = torch.tensor(np.asarray(targets), dtype=torch.long).flatten()
    return logits, torch.nn.functional.cross_entropy(logits, wanted, ignore_index=-100)


def gradients(model, adapter):
    """Gradients of an adapter's weights in our orientation, by our addresses: each its part of peft's."""
    from posttrainllm.model.lora import sites

    found, place = {}, {}
    for site in sites(adapter.sizes, adapter.config):
        _, layer, module = site.linear.split(".", 2)
        modules = dict(model.named_modules())
        linear = modules[f"base_model.model.transformer.h.{layer}.{files.MODULES[module]}"]
        number = place[site.linear] = place.get(site.linear, -1) + 1
        part = slice(number * adapter.config.rank, (number + 1) * adapter.config.rank)
        a, b = linear.lora_A["default"].weight.grad, linear.lora_B["default"].weight.grad
        found[site.down()] = a[part].T.double().numpy().copy()
        found[site.up()] = b[site.first : site.first + site.columns, part].T.double().numpy().copy()
    return found
