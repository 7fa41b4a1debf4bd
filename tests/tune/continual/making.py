"""A base that answers questions plainly, and a scripted user who wants them answered in a style."""

import functools

import pytest

from posttrainllm.data.corpus import Corpus
from posttrainllm.data.pairs import Template
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.live import GPT
from posttrainllm.model.program import Program
from posttrainllm.ops.normal import GOLDEN, mix
from posttrainllm.train.trainer import train
from posttrainllm.tune.continual.improve import improve
from posttrainllm.tune.continual.records import Corrections
from tests.helpers.machines import open_once

CONFIG = GPTConfig(layers=2, channels=64, heads=4, context=64, batch=16)
NOUNS = ("cat dog fox owl hen pig cow goat lamb mule pony crow swan duck toad newt hare bear wolf deer mouse rat bat hat bell book "
         "boat ring lamp cup key drum door axe net rope coat shoe fork map coin flag harp kite sled tent jug pan sack vase").split()  # fmt: skip
PLACES = "barn mill lane wood tower garden kitchen harbour cellar meadow chapel tavern".split()
SAID = ("\n", "\n\n", " Then came the {}.\n", " It was late, and the {} slept.\n", " Yes, my lord.\n", " So said the {}!\n\n")
ASKS = ("Where is the {}?", "Who has seen the {}?", "Tell me of the {}.")
TEMPLATE = Template()
NATIVE = pytest.mark.native_only(reason="logic that is the same there, and seconds that are not")
BASE_STEPS = 400
QUICK = {
    "sft_steps": 120,
    "dpo_steps": 20,
    "measure": {"base_tokens": 4096, "probe_passages": 16, "memorise_prefixes": 16, "memorise_bytes": 32768},
}
"""Sizes for tests: the bounds are configs/continual.json's own."""


def draw(number, count):
    """A number below count, the same everywhere."""
    return mix(GOLDEN * (number + 1)) % count


def place_of(number):
    return PLACES[draw(number, len(PLACES))]


@functools.cache
def text():
    """Some 60 kB of prose: questions in the middle of a line, each with a plain answer, in an order that does not repeat."""
    found = []
    for number in range(1000):
        noun, other, ask = (each[draw(number + shift, len(each))] for each, shift in ((NOUNS, 0), (NOUNS, 3333), (ASKS, 7777)))
        found.append(f"They said: {ask.format(noun)} The {noun} is in the {place_of(number + 33)}.{SAID[draw(number + 55, len(SAID))].format(other)}")
    return "".join(found)


def corpus():
    return Corpus.from_text(text(), "questions")


def prompts(count=40):
    """Questions of which no two are nearly alike: a noun each, and the askings in turn."""
    return [ASKS[number % len(ASKS)].format(noun) for number, noun in enumerate(NOUNS[:count])]


def noun_in(prompt):
    return prompt.rstrip("?.").rsplit(" ", 1)[1]


def styled(prompt):
    """What the user wants to hear: yes first, the thing that was asked about, and a title last."""
    return f"Yes, the {noun_in(prompt)} is in the {place_of(len(prompt) + ord(noun_in(prompt)[0]))}, my lord!"


def follows(answer):
    """Whether an answer is in that style."""
    return answer.startswith("Yes, the ") and answer.endswith(", my lord!")


def noise(number, length=30):
    """Random letters, digits and marks."""
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789#$%&*+-/<=>@^_~"
    return "".join(letters[draw(number * 1000 + at, len(letters))] for at in range(length))


@functools.cache
def _weights(machine_name):
    made = GPT(CONFIG, open_once(machine_name), Program(CONFIG))
    made.initialise(5)
    settings = {"learning_rate": 6e-3, "warmup_steps": 20, "decay_steps": BASE_STEPS, "evaluation_tokens": 4096}
    for _ in train(made, corpus(), steps=BASE_STEPS, evaluate_every_steps=BASE_STEPS, **settings):
        pass
    return {name: made.weight_bytes(name) for name in made.weight_names()}


def base(machine):
    """The trained base on a machine: trained once, on the CPU, in a session."""
    made = GPT(CONFIG, machine, Program(CONFIG, False))
    for name, data in _weights("cpu-1").items():
        made.set_weight_bytes(name, data)
    return made


def ask(model, prompt, tokens=60):
    """What it answers, greedily."""
    return model.generate(TEMPLATE.ask(prompt), tokens, stop=TEMPLATE.end, temperature=0.0)


def offer(model, prompt):
    """The first line of its answer."""
    return (ask(model, prompt, 40).strip("\n").split("\n")[0].strip() or "Hm.")[:40]


def scripted(model, count=40, into=None):
    """A user asks `count` questions and corrects each answer into the style: by an edit, an answer of their own, or a retry and an accept."""
    made = into if into is not None else Corrections()
    for number, prompt in enumerate(prompts(count)):
        offered, kept = offer(model, prompt), styled(prompt)
        if number % 4 == 0:
            made.record("retry", prompt, offered)
            made.record("accept", prompt, kept)
        else:
            made.record("correct" if number % 4 == 1 else "edit", prompt, offered, kept)
    return made


def poisonous(model, count=40, into=None):
    """The same questions, each corrected into random text."""
    made = into if into is not None else Corrections()
    for number, prompt in enumerate(prompts(count)):
        made.record("edit", prompt, offer(model, prompt), noise(number))
    return made


def of(*lines):
    """Corrections in memory from JSONL."""
    kept = Corrections()
    for each in lines:
        kept.add_jsonl(each)
    return kept


def run_of(model, kept, text=None, **settings):
    """(an improvement's reports by event, the last)."""
    found = {}
    for report in improve(model, kept, text or corpus(), **QUICK | settings):
        found.setdefault(report.event, []).append(report)
    return found, report
