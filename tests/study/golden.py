"""The model and the texts that tests/golden/study.npz is about, and the autoencoders of sae.npz."""

import numpy as np

from posttrainllm.model.config import GPTConfig
from posttrainllm.study.sae import SparseAutoencoder
from tests.study.by_hand import made

CONFIG = GPTConfig(layers=2, channels=24, heads=3, context=16, vocabulary=41, batch=2)
TOKENS, SOURCE = [7, 3, 3, 40, 0, 12, 7, 22], [7, 3, 9, 40, 0, 2, 7, 22]
POSITION, ANSWERS = 6, [5, 17]
NAMES = {  # our address in a block to TransformerLens' name there
    "resid_pre": "hook_resid_pre",
    "attn.q": "attn.hook_q",
    "attn.k": "attn.hook_k",
    "attn.v": "attn.hook_v",
    "attn.scores": "attn.hook_attn_scores",
    "attn.pattern": "attn.hook_pattern",
    "attn.y": "attn.hook_z",
    "attn.out": "hook_attn_out",
    "resid_mid": "hook_resid_mid",
    "ln_1": "ln1.hook_out",
    "ln_2": "ln2.hook_out",
    "mlp.pre": "mlp.hook_pre",
    "mlp.post": "mlp.hook_post",
    "mlp.out": "hook_mlp_out",
    "resid_post": "hook_resid_post",
}


def made_here(machine):
    """That model on a machine."""
    return made(machine, CONFIG, seed=3)


def small(kind="topk", address="blocks.1.resid_post", channels=24):
    """One of random weights."""
    rng = np.random.default_rng(3)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in ((channels, 40), (40,), (40, channels), (channels,))]
    return SparseAutoencoder(*arrays, kind=kind, k=5, address=address)
