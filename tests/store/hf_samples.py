"""Whole models as checkpoints, and Hugging Face folders made by hand: dicts of file names and bytes."""

import json

import numpy as np

from posttrainllm.data.bpe import BPETokenizer
from posttrainllm.data.tokenizers import ByteTokenizer
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.gpt import parameters
from posttrainllm.store import hf
from posttrainllm.store.buffers import Tensor
from posttrainllm.store.checkpoint import Checkpoint
from posttrainllm.store.hf_weights import theirs
from posttrainllm.store.safetensors import encode

PLAIN = GPTConfig(layers=2, channels=24, heads=3, context=20, vocabulary=256, batch=16)
OTHER = GPTConfig(layers=2, channels=24, heads=3, context=20, vocabulary=300, batch=16, tied=False, activation="gelu", hidden=50)
TEXT = "To be, or not to be, that is the question: whether 'tis nobler in the mind to suffer. " * 20
BPE = BPETokenizer.train(TEXT.encode(), 290, ["<|endoftext|>", "<|im_end|>"])


def arrays(config, seed=0):
    """Weights by our names, float32, none of them as at a start."""
    rng = np.random.default_rng(seed)
    return {each.name: (rng.standard_normal(each.shape) * 0.3).astype("<f4") for each in parameters(config)}


def checkpoint(config=PLAIN, tokenizer=None, seed=0, name="a model"):
    weights = {each: Tensor("F32", array.shape, array) for each, array in arrays(config, seed).items()}
    tokenizer = tokenizer or (ByteTokenizer() if config.vocabulary == 256 else BPE)
    return Checkpoint(name=name, config=config.to_dict(), step=0, tokenizer=tokenizer.to_dict(), weights=weights)


def folder_of(one):
    """The files of a checkpoint, as bytes."""
    return {name: b"".join(map(bytes, file.chunks)) for name, file in hf.files_of(one).items()}


def by_hand(config=PLAIN, prefix="transformer.", dtype="F32", seed=0, more=(), without=(), **settings):
    """A folder as transformers would write it: names prefixed or not, weights in another dtype, tensors more or fewer."""
    tensors = []
    for name, array in arrays(config, seed).items():
        if name not in without:
            tensors.append((theirs(name).removeprefix("transformer." if not prefix else ""), dtype, array.shape, narrowed(array, dtype)))
    data = b"".join(map(bytes, encode([*tensors, *more], {})))
    whole = json.loads(folder_of(checkpoint(config))["config.json"]) | settings
    found = folder_of(checkpoint(config)) | {"model.safetensors": data, "config.json": json.dumps(whole).encode()}
    return found


def narrowed(array, dtype):
    """float32 numbers as the bytes of another dtype; BF16 by cutting."""
    if dtype == "F16":
        return array.astype("<f2").tobytes()
    if dtype == "BF16":
        return (array.view("<u4") >> 16).astype("<u2").tobytes()
    return array.tobytes()


def widened(array, dtype):
    """What a float32 reader must make of those bytes."""
    if dtype == "F16":
        return array.astype("<f2").astype("<f4")
    if dtype == "BF16":
        return (array.view("<u4") & 0xFFFF0000).view("<f4")
    return array
