"""Makes study.npz: what TransformerLens says about one small GPT. Run with TransformerLens 4.3 (PyTorch 2.13, CPU), from the
repository's root:

    PYTHONPATH=pysrc python -m tests.golden.make_study

The weights are ours (the judge's, float32, made by tests/study/by_hand.py), put into transformers' GPT2LMHeadModel; TransformerLens
reads and patches it in float64. Kept: every activation it names, the accumulated residual stream through ln_final and the
unembedding (logit lens), the decomposed stream's logit attribution by layer and by head, and logits after each ablation and patch.
"""

import hashlib
import json
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from transformer_lens.model_bridge.sources._bridge_builder import build_bridge_from_module
from transformers import GPT2Config, GPT2LMHeadModel

from posttrainllm.backends.reference import ReferenceMachine
from tests.study.by_hand import weights_of
from tests.study.golden import ANSWERS, CONFIG, NAMES, POSITION, SOURCE, TOKENS, made_here

FILE = Path(__file__).with_name("study.npz")


def bridged(weights):
    """TransformerLens around transformers' GPT-2 with these weights, float64."""
    config = GPT2Config(
        vocab_size=CONFIG.vocabulary, n_positions=CONFIG.context, n_embd=CONFIG.channels, n_layer=CONFIG.layers, n_head=CONFIG.heads,
        resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
    )  # fmt: skip
    config._attn_implementation = "eager"
    model = GPT2LMHeadModel(config).double().eval()
    theirs = {"wte": "transformer.wte", "wpe": "transformer.wpe", "ln_f": "transformer.ln_f"}
    parts = {"attn.qkv": "attn.c_attn", "attn.proj": "attn.c_proj", "mlp.fc": "mlp.c_fc", "mlp.proj": "mlp.c_proj", "ln_1": "ln_1", "ln_2": "ln_2"}
    for layer in range(CONFIG.layers):
        theirs |= {f"blocks.{layer}.{ours}": f"transformer.h.{layer}.{part}" for ours, part in parts.items()}
    state = model.state_dict()
    for name, array in weights.items():
        module, _, kind = name.rpartition(".")
        target = state[f"{theirs[module]}.{kind}"]
        assert target.shape == array.shape, name
        target.copy_(torch.tensor(array))
    model.load_state_dict(state)
    return build_bridge_from_module(model, architecture="GPT2LMHeadModel", hf_config=config, dtype=torch.float64, device="cpu", model_name="gpt2")


def rows_of(tokens):
    return torch.tensor([tokens])


def with_change(bridge, name, part, value):
    """Logits [T,V] of TOKENS where `part` of an activation [1,T,…] is `value`'s."""

    def hook(there, hook):
        there = there.clone()
        there[part] = value if isinstance(value, float) else value[part]
        return there

    return bridge.run_with_hooks(rows_of(TOKENS), fwd_hooks=[(name, hook)])[0].numpy()


def main():
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    model = made_here(ReferenceMachine())
    bridge = bridged(weights_of(model))
    logits, cache = bridge.run_with_cache(rows_of(TOKENS))
    _, source = bridge.run_with_cache(rows_of(SOURCE))
    found = {"logits": logits[0].numpy()}
    for layer in range(CONFIG.layers):
        for ours, theirs in NAMES.items():
            found[f"blocks.{layer}.{ours}"] = cache[f"blocks.{layer}.{theirs}"][0].numpy()
    found["ln_f"] = cache["ln_final.hook_out"][0].numpy()
    weight = bridge.W_U.numpy()
    stream, labels = cache.accumulated_resid(apply_ln=True, return_labels=True, incl_mid=True)
    found["lens"] = stream[:, 0].numpy() @ weight
    scale = cache["ln_final.hook_scale"][0, POSITION].numpy()
    for by_head in (False, True):
        if by_head:
            parts, names = cache.stack_head_results(return_labels=True)
        else:
            parts, names = cache.decompose_resid(return_labels=True)
        part = parts[:, 0, POSITION].numpy()
        gain = weights_of(model)["ln_f.weight"]
        found["attribution by head" if by_head else "attribution"] = (part - part.mean(1, keepdims=True)) / scale * gain @ weight[:, ANSWERS]
        found["parts by head" if by_head else "parts"] = np.array(names)
    for layer in range(CONFIG.layers):
        for head in range(CONFIG.heads):
            z, part = f"blocks.{layer}.attn.hook_z", np.s_[:, :, head]
            found[f"zero head {layer}.{head}"] = with_change(bridge, z, part, 0.0)[POSITION]
            found[f"patch head {layer}.{head}"] = with_change(bridge, z, part, source[z])[POSITION]
        for position in range(len(TOKENS)):
            name = f"blocks.{layer}.hook_resid_pre"
            found[f"patch residual {layer}.{position}"] = with_change(bridge, name, np.s_[:, position], source[name])[POSITION]
        mlp = f"blocks.{layer}.hook_mlp_out"
        mean = cache[mlp].mean(1, keepdim=True).expand_as(cache[mlp])
        found[f"mean mlp {layer}"] = with_change(bridge, mlp, np.s_[:], mean)[POSITION]
    place, nbytes = model.weight_address("wte.weight")
    about = {
        "transformer_lens": version("transformer_lens"), "torch": torch.__version__, "lens": labels,
        "weights_sha256": hashlib.sha256(b"".join(model.weight_bytes(name) for name in model.weight_names())).hexdigest(),
    }  # fmt: skip
    np.savez_compressed(FILE, about=np.array(json.dumps(about)), **found)
    print(f"wrote {FILE.name}: {FILE.stat().st_size:,} bytes, {len(found)} arrays; parts {found['parts']}, {found['parts by head']}; lens {labels}")


if __name__ == "__main__":
    main()
