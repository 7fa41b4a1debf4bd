"""Small models, texts and runs for the tests of training."""

from posttrainllm.data.corpus import Corpus
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.live import GPT
from posttrainllm.model.program import Program
from posttrainllm.train.trainer import Trainer

TINY = GPTConfig(layers=1, channels=16, heads=2, context=8, batch=4)
TEXT = (
    "".join(
        f"{word} sat on the {place}. "
        for word in ("A cat", "My hat", "The rat", "One bat")
        for place in ("mat", "flat", "vat")
    )
    * 12
)
QUICK = {
    "steps": 20,
    "learning_rate": 1e-2,
    "warmup_steps": 3,
    "decay_steps": 60,
    "evaluate_every_steps": 10,
    "evaluation_tokens": 64,
}


def text(name="rhymes"):
    """About 3,000 bytes of very regular text."""
    return Corpus.from_text(TEXT, name)


def model_on(machine, config=TINY, seed=1, training=True):
    """A new model on a machine that may have served another test."""
    made = GPT(config, machine, Program(config, training))
    made.initialise(seed)
    return made


def trainer_on(machine, config=TINY, seed=1, **changes):
    """A trainer with QUICK settings, changed."""
    return Trainer(model_on(machine, config, seed), text(), QUICK | {"seed": seed} | changes)


def state_bytes(model):
    """Weights and moments as one bytes object."""
    return b"".join(
        model.weight_bytes(name, region) for region in ("params", "m", "v") for name in model.weight_names()
    )
