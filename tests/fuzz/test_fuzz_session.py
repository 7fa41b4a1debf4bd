"""Requests of every kind in any order, with fields as they should be and not: the session answers, never dies, and never says that something
of ours went wrong."""

import asyncio
import json
import random
import re

import pytest

pytestmark = [pytest.mark.endurance, pytest.mark.native_only(reason="the loop is CPython's; e2e/ runs the same Session in the tab")]
pytest.importorskip("hypothesis", reason="hypothesis is not among Pyodide's packages here")
pytest.importorskip("numpy")
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from posttrainllm.session.messages import REQUESTS
from tests.fuzz.long import examples, keep

CONFIG = {"layers": 1, "channels": 8, "heads": 2, "context": 8, "vocabulary": 256, "batch": 2}
TEXTS = ("", "tiny", "x", "bytes", "bpe", "reference", "cpu", "sft", "text", "blocks.0.resid_post", "all", "mean", "head", "To be", "é" * 9, "../x", "a" * 3000, "\ud800", "\0",
         "gguf", "q8_0", "f32")  # fmt: skip
WHOLES = (0, 1, 1, 2, 3, 8, 20, -1, 257, 300, 1 << 31, 1 << 70)
NUMBERS = (0, 0.5, 1, 1, -1, 1e-9, 1e308, float("nan"), float("inf"))
OBJECTS = ({}, CONFIG, CONFIG, CONFIG | {"layers": 10**6}, CONFIG | {"heads": 3}, CONFIG | {"tied": "x"}, {"steps": 3, "warmup_steps": 1}, {"steps": 3, "warmup_steps": 1},
           {"steps": -1}, {"learning_rate": "x"}, {"learning_rate": 1e400}, {"rank": 1, "alpha": 2, "targets": ["attn.q"]}, {"rank": 10**9}, {"targets": None}, {"targets": [1]},
           {"kind": "regex", "text": "a+"}, {"kind": "regex", "text": "("}, {"kind": "json_schema", "text": "{}"}, {"kind": "x"}, {"kind": []}, {"text": {}})  # fmt: skip
LISTS = ([], ["a"], ["\n"], [1], [None], [[]], [{"prompt": "q", "response": "a"}] * 4, [{"prompt": "q", "chosen": "a", "rejected": "b"}] * 4, ["x"] * 100)
SAVINGS = ("auto", {}, {"micro_batches": 2}, {"micro_batches": 3}, {"recompute": 1}, {"moments": "bf16"}, {"moments": 5}, {"x": 1})
GOOD = [
    {"kind": "corpus.text", "text": "To be, or not to be, that is the question. " * 40},
    {"kind": "train.start", "config": CONFIG, "training": {"steps": 3, "warmup_steps": 1, "evaluate_every_steps": 2}},
    {"kind": "write.start", "prompt": "To", "tokens": 4}, {"kind": "runs.list"}, {"kind": "train.stop"}, {"kind": "tune.stop"}, {"kind": "train.extend", "steps": 2},
    {"kind": "tune.start", "how": "text", "text": "It is. " * 200, "training": {"steps": 2, "warmup_steps": 1}}, {"kind": "write.stop"},
]  # fmt: skip
UNSENT = {"cells.run", "cells.complete"}
"""A cell runs what it says: nothing to be guessed at."""


def buffers():
    from tests.fuzz import parsers
    from tests.fuzz.mutation import mutated

    files = [parsers.run_file(), parsers.trained_file(), parsers.peft_file(), parsers.BPE.to_json().encode(), b"", b"plain text " * 50, b"\xff\xfe\0"]
    return [*files, *(mutated(files[:4], random.Random(number)) for number in range(12))]


def request(chance, made_buffers, known):
    """One request: a good one, or one of any kind whose fields are drawn."""
    if chance.random() < 0.3:
        return dict(chance.choice(GOOD))
    kind = chance.choice([each for each in REQUESTS if each not in UNSENT])
    found = {"kind": kind}
    for name, wanted in REQUESTS[kind].items():
        if chance.random() < (0.95 if wanted.endswith("!") else 0.4):
            pools = {"text": TEXTS, "a whole number": WHOLES, "a number": NUMBERS, "an object": OBJECTS, "a list": LISTS, "true or false": (True, False)}
            pool = made_buffers if wanted.startswith("a buffer") else pools.get(wanted.rstrip("!"), SAVINGS if "object" in wanted else [made_buffers[:2]])
            found[name] = chance.choice(known) if name.endswith("_id") and known and chance.random() < 0.7 else chance.choice(pool)
            if chance.random() < 0.05:
                found[name] = chance.choice((None, 5, "x", [], {}, True, [[[]]]))
    if chance.random() < 0.03:
        found = {chance.choice(("kind", "id", "x")): chance.choice((None, 5, [], {}, kind))}
    return found


async def conversation(chance, made_buffers, length):
    from tests.session.test_session import Asker

    asker = Asker()
    await asker.session.begin()
    served = asyncio.create_task(asker.session.serve())
    sent, known = [], []
    try:
        for _ in range(length):
            sent.append(request(chance, made_buffers, known))
            asker.session.receive(dict(sent[-1]) if sent[-1].get("id") else sent[-1] | {"id": len(sent)})
            await asyncio.sleep(chance.choice((0, 0, 0.01, 0.05)))
            known = [row["run_id"] for event in asker.events if event["kind"] == "runs" for row in event["runs"]][-6:]
            assert not served.done(), f"the session ended: {served}\n{sent}"
        for kind in ("train.stop", "tune.stop", "write.stop", "compare.stop", "memorise.stop", "features.stop", "features.write_stop", "lens.stop"):
            asker.session.receive({"kind": kind, "id": 9000})
        asker.session.receive({"kind": "corpus.text", "id": 9999, "text": "still there " * 100})
        await asyncio.wait_for(answered(asker), 60)
    except TimeoutError:
        raise AssertionError(f"no answer within a minute after {sent}") from None
    finally:
        if served.done():
            served.result()
        await asyncio.wait_for(asker.session.close(), 60)
        await asyncio.wait_for(served, 60)
    return sent, asker.events


async def answered(asker):
    while not any(event["kind"] == "corpus" and event.get("reply_to") == 9999 for event in asker.events):
        await asyncio.sleep(0.01)


def test_any_requests_in_any_order():
    made_buffers, figures = buffers(), {"requests": 0, "failed": 0}

    @settings(max_examples=examples(25), deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(st.integers(0, 1 << 60))
    def ask(number):
        sent, events = asyncio.run(conversation(random.Random(number), made_buffers, 14))
        failed = [event for event in events if event["kind"] == "failed"]
        figures["requests"] += len(sent)
        figures["failed"] += len(failed)
        for event in failed:
            assert re.fullmatch(r"E-[A-Z-]+", event["code"]) and 10 < len(event["message"]) < 2000 and event["message"][-1] in ".!?", event
            assert event["code"] != "E-ERROR", f"{event} after {json.dumps(sent, default=lambda data: f'{len(data)} bytes')[:6000]}"

    ask()
    assert figures["failed"] > figures["requests"] / 10
    keep("session requests (hypothesis)", **figures)
