"""What figures in the lessons are checked against: `<!-- is EXPRESSION -->` sees these names."""

import json
import math
from types import SimpleNamespace

from posttrainllm import GPTConfig
from posttrainllm.configs import load
from posttrainllm.model.lora import LoRAConfig, shapes

from tools import paths


def names():
    """presets["medium"].parameters, training["learning_rate"], lora["rank"], trainable("medium"), bench("decode"), constant(path, name), math."""
    return {
        "presets": {name: _preset(name) for name in load("presets")},
        "training": load("training"),
        "lora": load("lora"),
        "tuning": load("tuning"),
        "sae": load("sae"),
        "config": load,
        "trainable": trainable,
        "bench": bench,
        "constant": constant,
        "math": math,
    }


def _preset(name):
    return SimpleNamespace(**load("presets")[name], parameters=GPTConfig.preset(name).parameter_count())


def trainable(preset):
    """Parameters of the default adapter on a preset."""
    return sum(math.prod(shape) for shape in shapes(GPTConfig.preset(preset), LoRAConfig.of()).values())


def bench(name):
    """A record of bench/results."""
    return json.loads((paths.REPO / "bench" / "results" / f"{name}.json").read_text("utf-8"))


def constant(module, name):
    """A value of a module of the package: constant("decode.speculative", "AHEAD")."""
    from importlib import import_module

    return getattr(import_module(f"posttrainllm.{module}"), name)
