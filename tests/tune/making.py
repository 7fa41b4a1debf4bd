"""Small models and examples for the tests of tuning."""

from posttrainllm.data.corpus import Corpus
from posttrainllm.data.pairs import Pairs, Preferences, Template
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.live import GPT
from posttrainllm.model.lora import LoRAConfig
from posttrainllm.model.program import Program
from posttrainllm.train.trainer import train
from tests.train.making import TEXT

CONFIG = GPTConfig(layers=2, channels=32, heads=2, context=24, batch=8)
LORA = LoRAConfig(rank=4, alpha=8, targets=("attn.q", "attn.v", "mlp.fc", "mlp.proj"))
SHORT = Template("", " ", ".")
FACTS = [("cat", "flat"), ("hat", "on me"), ("rat", "a vat"), ("bat", "one"), ("mat", "to the hat"), ("vat", "the sea")]
"""In letters that the base knows: an adapter cannot tell apart what its base never learned to see."""


def pairs(count=1):
    """Facts to learn, `count` times over, nothing held out."""
    return Pairs.from_list(FACTS * count, "facts", SHORT).split_at(0.0)


def preferences():
    """The same facts with a wrong answer each."""
    wrong = [answer for _, answer in FACTS[1:] + FACTS[:1]]
    return Preferences.from_list([(q, a, b) for (q, a), b in zip(FACTS, wrong)], "tastes", SHORT).split_at(0.0)


def corpus():
    """What a base knows."""
    return Corpus.from_text(TEXT, "rhymes")


KNOWN: dict[str, dict[str, bytes]] = {}


def model_on(machine, lora=None, seed=1, config=CONFIG, known=False):
    """A new model, with an adapter where asked. Its base is the same either way; a `known` one has learned `corpus`."""
    made = GPT(config, machine, Program(config))
    made.initialise(seed)
    if known:
        if machine.name not in KNOWN:
            settings = {"learning_rate": 1e-2, "warmup_steps": 5, "decay_steps": 150, "evaluation_tokens": 512}
            list(train(made, corpus(), steps=150, evaluate_every_steps=150, **settings))
            KNOWN[machine.name] = {name: made.weight_bytes(name) for name in made.weight_names()}
        for name, data in KNOWN[machine.name].items():
            made.set_weight_bytes(name, data)
    if lora is not None:
        made.attach(lora, seed=seed)
    return made
