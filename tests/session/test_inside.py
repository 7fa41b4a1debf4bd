"""Looking inside from a Session: what study says, at rest and between training steps, and what is refused."""

import asyncio
import gc
import time
import weakref

import numpy as np
import pytest
from posttrainllm import study
from posttrainllm.session import Host, writing
from posttrainllm.session.messages import REQUESTS
from posttrainllm.study.running import Run

from tests.session.test_session import QUICK, TEXT, running, scenario

pytestmark = pytest.mark.native_only(reason="the loop below is CPython's; e2e/ runs the same Session in the tab")

PROMPT = "To be, or not to be"


def unpacked(event):
    """The arrays of an event by name."""
    flat, at, found = np.frombuffer(event["buffer"], "<f4"), 0, {}
    for name, shape in event["arrays"]:
        size = int(np.prod(shape))
        found[name] = flat[at : at + size].reshape(shape)
        at += size
    assert at == flat.size
    return found


async def asked(asker, kind, **fields):
    return await asker.call(f"inside.{kind}", f"inside.{kind}", **fields)


@scenario
async def test_attention_and_heads(asker):
    await asker.trained()
    told = await asked(asker, "attention", text=PROMPT, layer=1)
    pattern = unpacked(told)["pattern"]
    assert pattern.shape == (3, 19, 19) and np.allclose(pattern.sum(-1), 1, atol=1e-6) and not np.triu(pattern[0], 1).any()
    model = asker.session.model
    assert np.array_equal(pattern, study.patterns(model, PROMPT).pattern[1].astype("f4"))
    assert told["labels"] == list(PROMPT) and (told["layers"], told["heads"], told["step"]) == (2, 3, 30)
    heads = await asked(asker, "heads")
    judge = study.head_scores(model, pool=asker.session.training.trainer.corpus.train)  # of tokens that it knows
    assert [(each["layer"], each["head"], each["kind"]) for each in heads["named"]] == [each[:3] for each in judge.named]
    assert set(heads["meanings"]) == set(judge.scores) and all(np.allclose(heads["scores"][kind], each) for kind, each in judge.scores.items())
    assert not np.allclose(heads["scores"]["first"], study.head_scores(model).scores["first"], atol=1e-4), "others it never met"


@scenario
async def test_heads_are_scored_again_after_training_on(asker):
    await asker.trained()
    before, same = [(await asked(asker, "heads"))["scores"] for _ in range(2)]
    asker.ask("train.extend", steps=40)
    await asker.wait("stopped")
    after, session = await asked(asker, "heads"), asker.session
    judge = study.head_scores(session.model, pool=session.training.trainer.corpus.train)
    assert before == same and after["step"] == 70
    assert all(np.allclose(after["scores"][kind], each, rtol=0, atol=1e-6) for kind, each in judge.scores.items())
    assert max(np.abs(np.subtract(after["scores"][kind], each)).max() for kind, each in before.items()) > 1e-4


@scenario
async def test_a_saved_runs_heads_are_judged_by_its_own_text(asker):
    await asker.trained()
    run_id = asker.session.runs.held_id
    heads = await asked(asker, "heads")
    asker.ask("corpus.text", text="Another text, of other letters, 0123456789. " * 100, name="other")
    asker.ask("runs.open", run_id=run_id)
    await asker.wait("opened")
    for kind, each in heads["scores"].items():
        assert np.allclose((await asked(asker, "heads"))["scores"][kind], each, atol=1e-6), kind


@scenario
async def test_a_closed_model_is_let_go(asker):
    """With its heads' scores and its lens, one that is being trained too."""
    await asker.trained()
    await asked(asker, "heads")
    await asker.call("lens.train", "lens.trained", steps=2)
    gone = weakref.ref(asker.session.model)
    asker.ask("train.start", preset="tiny", training=QUICK)
    await asker.wait("stopped")
    gc.collect()
    assert gone() is None
    reply = asker.ask("lens.train", steps=100_000)
    await asker.wait("lens.step", reply_to=reply)
    gone = weakref.ref(asker.session.model)
    asker.ask("train.start", preset="tiny", training=QUICK)
    assert not (await asker.wait("lens.trained", reply_to=reply))["usable"]
    await asker.wait("stopped")
    gc.collect()
    assert gone() is None


@scenario
async def test_lens(asker):
    await asker.trained()
    told = await asked(asker, "lens", text=PROMPT)
    arrays, judge = unpacked(told), study.logit_lens(asker.session.model, PROMPT)
    assert told["rows"] == judge.layers and told["top_labels"] == judge.top_labels
    assert np.array_equal(arrays["rank"], judge.rank) and (arrays["rank"][:, -1] == -1).all() and (arrays["probability"][:, -1] == -1).all()
    assert np.allclose(arrays["probability"][:, :-1], judge.probability[:, :-1])
    assert told["loss_nats"] == pytest.approx(judge.loss_nats.tolist())
    alone = await asked(asker, "lens", text="T")  # nothing came next: no loss, and still JSON
    assert alone["loss_nats"] == [None] * 3


@scenario
async def test_a_tuned_lens(asker):
    await asker.trained(steps=60, decay_steps=60)
    weights = asker.session.model.weights_sha256()
    assert "Train one first" in (await asker.call("inside.lens", "failed", text=PROMPT, which="tuned"))["message"]
    plain = await asked(asker, "lens", text=PROMPT)
    reply = asker.ask("lens.train", steps=60)
    trained = await asker.wait("lens.trained", reply_to=reply)
    assert (trained["steps"], trained["usable"]) == (60, True)
    first = next(event for event in asker.events if event["kind"] == "lens.step")
    assert len(first["divergence_nats"]) == 2 and first["steps"] == 60
    tuned = await asked(asker, "lens", text=PROMPT, which="tuned")
    assert tuned["which"] == "tuned" and tuned["loss_nats"][0] < plain["loss_nats"][0] and tuned["loss_nats"][-1] == pytest.approx(plain["loss_nats"][-1])
    assert asker.session.model.weights_sha256() == weights
    reply = asker.ask("lens.train", steps=100000)
    await asker.wait("lens.step", reply_to=reply)
    asker.ask("lens.stop")
    stopped = await asker.wait("lens.trained", reply_to=reply)
    assert 0 < stopped["steps"] < 100000 and stopped["usable"]
    reply = asker.ask("lens.train", steps=100000)
    await asker.wait("lens.step", reply_to=reply)
    asker.ask("train.extend", steps=20)  # the model moves on: a lens of what it was is none
    assert not (await asker.wait("lens.trained", reply_to=reply))["usable"]
    await asker.wait("stopped")
    assert "Train one first" in (await asker.call("inside.lens", "failed", text=PROMPT, which="tuned"))["message"]


@scenario
async def test_a_tuned_lens_waits_while_the_base_is_compared(asker):
    await asker.trained()
    asker.ask("tune.start", how="text", text="Nor this nor that. " * 200, training={"steps": 3})
    await asker.wait("tune.stopped")
    reply = asker.ask("lens.train", steps=20)
    await asker.wait("lens.step", reply_to=reply)
    asker.ask("compare.start", prompt="To be", tokens=300)
    await asker.wait("compare.token")
    before = asker.session.lenses._trainer.step
    assert not (await asker.wait("compare.wrote"))["last"]
    assert asker.session.lenses._trainer.step == before
    assert (await asker.wait("lens.trained", reply_to=reply))["usable"]


@scenario
async def test_next_token(asker):
    await asker.trained()
    told = await asked(asker, "next", text=PROMPT, position=4)
    judge = study.next_token(asker.session.model, PROMPT, 4)
    assert told["choices"] == judge.labels and len(told["choices"]) == 10 and told["came"] == ord(",")
    assert np.allclose(np.sum(told["contribution"], 0), told["logits"], atol=1e-4)
    assert told["probability"] == pytest.approx(told["by_layer"][-1], rel=1e-5) and (await asked(asker, "next", text=PROMPT))["came"] is None


@pytest.mark.parametrize("what, columns", [("heads", 3), ("mlps", 1), ("residual", 19)])
def test_changes(what, columns):
    @scenario
    async def test(asker):
        await asker.trained()
        for how, more in (("zero", {}), ("mean", {}), ("swap", {"source": "No be, or not to be"})):
            told = await asked(asker, "change", text=PROMPT, what=what, how=how, **more)
            arrays = unpacked(told)
            assert arrays["change"].shape == arrays["loss_change"].shape == (2, columns) and len(told["columns"]) == columns
            assert (told["source"] is not None) == (how == "swap") and np.abs(arrays["change"]).max() > 0
        judge = study.patch(asker.session.model, PROMPT, more["source"], what)
        assert np.allclose(arrays["change"], judge.change, atol=1e-6) and told["answer"] == judge.answer

    test()


@scenario
async def test_flow(asker):
    await asker.trained()
    told = await asked(asker, "flow", text=PROMPT, position=6)
    arrays, model = unpacked(told), asker.session.model
    act = study.run(model, PROMPT, ["embed", "blocks.*", "ln_f", "logits"])
    for row in told["rows"]:
        there = act[row["address"]][6]
        assert row["shape"] == list(there.shape) and np.array_equal(arrays[row["address"]], there)
        assert row["first"] == pytest.approx(there.ravel()[:6].tolist()) and row["most"] == pytest.approx(float(there.max()))
    assert np.allclose(arrays["looks"][1], act["blocks.1.attn.pattern"][:, 6, :7], atol=1e-6)
    assert told["top"][0][0] == int(act["logits"][6].argmax())


@scenario
async def test_looking_again_at_a_deep_model_builds_nothing(asker):
    config = {"layers": 26, "channels": 16, "heads": 2, "context": 32, "batch": 2}
    asker.ask("corpus.text", text=TEXT, name="hamlet")
    asker.ask("train.start", config=config, training=QUICK | {"steps": 2, "warmup_steps": 1, "decay_steps": 2})
    await asker.wait("stopped")
    looks = (("flow", {}), ("change", {"what": "heads"}), ("attention", {"layer": 25}))
    first = [await asked(asker, kind, text=PROMPT, **fields) for kind, fields in looks]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("posttrainllm.study.passes.build", None)
        again = [await asked(asker, kind, text=PROMPT, **fields) for kind, fields in looks]
    assert [each["buffer"] for each in again] == [each["buffer"] for each in first]
    arrays, act = unpacked(first[0]), study.run(asker.session.model, PROMPT, "blocks.25.resid_post")
    assert len(first[0]["rows"]) == 3 + 26 * 12 and np.array_equal(arrays["blocks.25.resid_post"], act["blocks.25.resid_post"][-1])


@scenario
async def test_a_map_can_be_stopped_and_another_ends_it(asker):
    await asker.trained()
    passes = []
    async def slow(self, wanted, made=Run.read):
        passes.append(len(wanted))
        return await made(self, wanted)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Run, "read", slow)
        patched.setattr("posttrainllm.session.inside.QUIET_SECONDS", 0)
        patched.setattr("posttrainllm.session.inside.TOLD_SECONDS", 0)
        whole = (await asked(asker, "change", text=PROMPT))["reply_to"]
        wanted = len(passes)
        told = [(event["reply_to"], event["done"], event["total"]) for event in asker.events if event["kind"] == "inside.progress"]
        assert told == [(whole, 3, 6), (whole, 6, 6)]
        for kind, fields, more in (("inside.stop", {}, 0), ("inside.change", {"text": "To be"}, wanted)):
            passes.clear()
            reply = asker.ask("inside.change", text=PROMPT)
            other = asker.ask(kind, **fields)
            stopped = await asker.wait("inside.stopped", "inside.change")
            assert (stopped["kind"], stopped["reply_to"]) == ("inside.stopped", reply)
            if more:
                await asker.wait(kind, reply_to=other)
            assert more < len(passes) < more + wanted
    asker.ask("inside.stop")  # where none is made: nothing happens, nor is the next one stopped
    assert (await asked(asker, "change", text=PROMPT))["columns"] == ["h0", "h1", "h2"]


KINDS = ("attention", "heads", "lens", "next", "change", "flow")


@scenario
async def test_between_steps_and_without_a_trace(asker):
    """A run that is looked into while it goes ends with the weights it would have had."""
    await asker.trained(steps=200, decay_steps=200)
    alone = asker.session.model.weights_sha256()
    asker.ask("train.start", preset="tiny", training=QUICK | {"steps": 200, "decay_steps": 200})
    await asker.wait("step")
    for kind in KINDS:
        asker.ask(f"inside.{kind}", **({} if kind == "heads" else {"text": PROMPT}))
    for kind in KINDS:
        told = await asker.wait(f"inside.{kind}")
        assert 0 < told["step"] < 200
    await asker.wait("stopped")
    assert asker.session.model.weights_sha256() == alone


@scenario
async def test_a_text_that_is_being_written_goes_on_as_it_was(asker):
    """All looks come after the second text's token 20, however fast it is written: there its turn is made to end."""
    await asker.trained()
    texts, write_async, replies = [], writing.write_async, []

    async def held(*args, **how):
        async for piece in write_async(*args, **how):
            if texts and piece.tokens == 20:
                replies.extend(asker.ask(f"inside.{kind}", **({} if kind == "heads" else {"text": PROMPT})) for kind in KINDS)
                time.sleep(writing.TURN_SECONDS)
            yield piece

    writing.write_async = held
    try:
        for _ in range(2):
            reply = asker.ask("write.start", prompt="To", tokens=60, temperature=0.9, seed=5)
            await asker.wait("wrote", reply_to=reply)
            texts.append("".join(event["text"] for event in asker.events if event["kind"] == "token" and event["reply_to"] == reply))
    finally:
        writing.write_async = write_async
    at = {event["kind"]: index for index, event in enumerate(asker.events)}
    looks = [index for index, event in enumerate(asker.events) if event["kind"].startswith("inside.")]
    assert [asker.events[index]["reply_to"] for index in looks] == replies and len(replies) == len(KINDS)
    assert looks[-1] < at["token"] < at["wrote"], "and then the text goes on"
    assert texts[0] == texts[1]


@scenario
async def test_refusals(asker):
    for kind in [kind for kind in REQUESTS if kind.startswith("inside.") and kind != "inside.stop"]:
        fields = {} if kind == "inside.heads" else {"text": "a"}
        assert "there is none yet" in (await asker.call(kind, "failed", **fields))["message"]
    await asker.trained()
    for fields, words in (
        ({"text": ""}, "There is no text"),
        ({"text": "a" * 33}, "reads 1 to 32 at once"),
        ({"text": "a", "layer": 2}, "A layer from 0 to 1"),
    ):
        assert words in (await asker.call("inside.attention", "failed", **fields))["message"]
    assert "equally long" in (await asker.call("inside.change", "failed", text="ab", how="swap", source="a"))["message"]
    assert "How is one of" in (await asker.call("inside.change", "failed", text="ab", how="none"))["message"]
    assert "A position from 0 to 1" in (await asker.call("inside.flow", "failed", text="ab", position=2))["message"]
    asker.session.rate_flops = 1.0
    assert "at most 20 s" in (await asker.call("inside.change", "failed", text="ab", what="residual"))["message"]


def test_on_the_reference_engine():
    async def body():
        async with running(Host(device="reference")) as asker:
            asker.ask("corpus.text", text=TEXT, name="hamlet")
            asker.ask("train.start", preset="tiny", training=QUICK | {"steps": 6, "decay_steps": 6, "warmup_steps": 1})
            await asker.wait("stopped")
            assert unpacked(await asked(asker, "lens", text=PROMPT))["rank"].shape == (3, 19)
            assert unpacked(await asked(asker, "flow", text=PROMPT))["embed"].shape == (48,)

    asyncio.run(body())


@scenario
async def test_what_cannot_be_looked_at_is_said_in_plain_words(asker):
    await asker.trained()
    context = asker.session.model.config.context
    long = await asker.call("inside.lens", "failed", text="a" * 960)
    assert long["message"] == f"The text has 960 tokens; this model reads 1 to {context} at once. Shorten it."
    pair = await asker.call("inside.change", "failed", text="abc", source="ab", how="swap")
    assert pair["message"] == "Both texts have as many tokens: 3 and 2 came. Make them equally long."
    place = await asker.call("inside.flow", "failed", text="abc", position=9)
    assert place["message"] == "A position from 0 to 2: 9 came. Choose one in the text."
    assert (await asker.call("features.list", "failed"))["message"].startswith("Features that were found in the open model: there are none yet.")
