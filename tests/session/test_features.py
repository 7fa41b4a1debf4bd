"""Features from a Session: trained between other work, stopped, browsed, taken out, written with, and forgotten with their model."""

import gc
import io
import weakref
import zipfile

import numpy as np
import pytest
from posttrainllm import study
from posttrainllm.session.messages import REQUESTS
from posttrainllm.study.sae import SparseAutoencoder
from posttrainllm.train.state import weights_checkpoint

from tests.session.test_session import QUICK, scenario

pytestmark = pytest.mark.native_only(reason="the loop below is CPython's; e2e/ runs the same Session in the tab")

SMALL = {"features": 96, "k": 8, "steps": 60, "batch": 256, "resample_every_steps": 20}


async def found(asker, **settings):
    return await asker.call("features.train", "features.trained", **(SMALL | settings))


@scenario
async def test_trained_and_browsed_as_study_says(asker):
    await asker.trained()
    told = await found(asker)
    assert (told["stopped"], told["address"], told["features"], told["training"]["step"]) == (False, "blocks.1.resid_post", 96, 60)
    assert told["training"]["explained"] > 0.5 and 0 < told["training"]["l0"] < 9 and told["recovered"]["recovered"] > 0.5
    whats = [event["what"] for event in asker.events if event["kind"] == "features.progress"]
    assert whats and set(whats) <= {"reading", "training", "looking", "judging"}
    session = asker.session
    model, survey, corpus = session.model, session.features._survey, session.training.trainer.corpus
    judge = study.recovered(model, corpus.validation, survey.autoencoder)
    assert told["recovered"] == pytest.approx(judge.to_dict())
    listed = await asker.call("features.list", "features.list", count=5)
    alike = study.features(model, corpus.train, survey.autoencoder, [row["index"] for row in listed["rows"]], count=told["seen_tokens"])
    assert listed["total"] == told["alive"] and len(listed["rows"]) == 5
    for row, each in zip(listed["rows"], alike):
        assert (row["density"], row["most"]) == pytest.approx((each.density, each.most), rel=1e-4)
    one = await asker.call("features.feature", "features.feature", index=listed["rows"][0]["index"])
    shown = [each["labels"] for each in one["contexts"]]
    assert shown[0] == alike[0].contexts[0].labels and all(each.labels in shown for each in alike[0].contexts)
    assert one["contexts"][0]["activations"][one["contexts"][0]["at"]] == pytest.approx(one["most"], rel=1e-4)
    assert one["promotes"] == [list(each) for each in alike[0].promotes] or [label for label, _ in one["promotes"]] == [label for label, _ in alike[0].promotes]
    often = await asker.call("features.list", "features.list", by="frequency", first=1, count=3)
    density = [row["density"] for row in often["rows"]]
    assert density == sorted(density, reverse=True)


@scenario
async def test_an_l1_autoencoder_elsewhere(asker):
    await asker.trained()
    told = await found(asker, how="l1", l1=1.0, address="blocks.0.mlp.post")
    assert told["settings"]["kind"] == "l1"
    first = (await asker.call("features.list", "features.list", count=1))["rows"][0]
    one = await asker.call("features.feature", "features.feature", index=first["index"])
    assert one["contexts"] and one["promotes"] == []  # a direction of the hidden layer speaks to no logit by itself


@scenario
async def test_no_bit_of_a_run_changes(asker):
    rows = []
    for looked in (False, True):
        begun = len(asker.events)
        await asker.trained(steps=20, decay_steps=40)
        if looked:
            await found(asker)
        asker.ask("train.extend", steps=20)
        await asker.wait("stopped")
        rows.append([row[:2] for event in asker.events[begun:] if event["kind"] == "step" for row in event["rows"]])
    assert len(rows[0]) == 40 and rows[0] == rows[1]


@scenario
async def test_stopped_is_browsed_as_far_as_it_came(asker):
    await asker.trained()
    asker.ask("features.train", **(SMALL | {"steps": 100_000}))
    while (await asker.wait("features.progress"))["what"] != "training":
        pass
    asker.ask("features.stop")
    told = await asker.wait("features.trained")
    assert told["stopped"] and 0 < told["training"]["step"] < 100_000
    assert (await asker.call("features.list", "features.list"))["rows"]


@scenario
async def test_stopped_while_it_looks_through_the_text(asker):
    await asker.trained()
    with pytest.MonkeyPatch.context() as patched:
        for name, value in (("TURN_SECONDS", 0), ("EVENTS_PER_SECOND", float("inf"))):
            patched.setattr(f"posttrainllm.session.features.{name}", value)
        asker.ask("features.train", **SMALL)
        while (await asker.wait("features.progress"))["what"] != "looking":
            pass
        asker.ask("features.stop")
        told = await asker.wait("features.trained")
    assert told["stopped"] and told["training"]["step"] == 60 and 0 < told["seen_tokens"] < 16_384
    assert told["recovered"]["tokens"] < 8_192
    rows = (await asker.call("features.list", "features.list"))["rows"]
    assert all(0 < row["density"] <= 1 for row in rows)


@scenario
async def test_taken_out_as_saelens_lays_it_out(asker):
    await asker.trained()
    await found(asker)
    event = await asker.call("features.export", "exported")
    archive = zipfile.ZipFile(io.BytesIO(event["buffer"]))
    back = SparseAutoencoder.from_files(*(archive.read(name) for name in ("cfg.json", "sae_weights.safetensors")))
    held = asker.session.features._survey.autoencoder
    assert event["name"].endswith(" features.zip") and np.array_equal(back.decoder, held.decoder) and (back.k, back.address) == (8, held.address)


@scenario
async def test_writing_with_a_feature(asker):
    await asker.trained()
    await found(asker)
    index = (await asker.call("features.list", "features.list", count=1))["rows"][0]["index"]

    async def written(strength):
        identity, begun = asker.ask("features.write", prompt="To be", index=index, strength=strength, tokens=20, temperature=0), len(asker.events)
        wrote = await asker.wait("features.wrote", reply_to=identity)
        assert (wrote["tokens"], wrote["reason"]) == (20, "length")
        return "".join(event["text"] for event in asker.events[begun:] if event["kind"] == "features.token")

    model, autoencoder = asker.session.model, asker.session.features._survey.autoencoder
    assert await written(40.0) == study.steer(model, autoencoder, index, 40.0).generate("To be", 20, temperature=0)
    assert await written(0.0) == model.generate("To be", 20, temperature=0)
    asker.ask("features.write", prompt="To be", index=index, strength=1.0, tokens=100_000)
    await asker.wait("features.token")
    asker.ask("features.write_stop")
    assert (await asker.wait("features.wrote"))["reason"] == "stopped"


@scenario
async def test_what_is_refused_and_what_goes_with_the_model(asker):
    async def refused(words, kind, **fields):
        assert words.lower() in (await asker.call(kind, "failed", **fields))["message"].lower()

    await refused("a model to look into", "features.train")
    await refused("there are none yet", "features.list")
    await asker.trained()
    await refused("one row a token", "features.train", address="blocks.0.attn.pattern")
    await refused("kind is one of", "features.train", how="gated")
    await found(asker)
    await refused("a feature from 0 to 95", "features.feature", index=96)
    await refused("a page of 1 to 100", "features.list", count=1000)
    await refused("by is one of", "features.list", by="beauty")
    asker.ask("features.train", **(SMALL | {"steps": 100_000}))
    await asker.wait("features.progress")
    asker.ask("train.start", preset="tiny", training=QUICK)
    told = await asker.wait("features.trained")
    assert told["stopped"] and not told["features"]
    await asker.wait("stopped")
    await refused("there are none yet", "features.feature", index=0)


@scenario
async def test_what_was_found_is_of_no_other_weights(asker):
    await asker.trained()
    await found(asker)
    asker.ask("train.extend", steps=400)
    told = await asker.wait("features.outdated")
    assert (told["outdated"], told["trained"], told["step"]) == (True, True, 30)
    assert "a run is going" in (await asker.call("features.train", "failed", **SMALL))["message"]
    await asker.wait("stopped")
    for kind, fields in {"list": {}, "feature": {"index": 0}, "write": {"index": 0, "prompt": "To", "strength": 1.0}}.items():
        words = (await asker.call(f"features.{kind}", "failed", **fields))["message"]
        assert "these are of step 30, and the model is at step 430" in words and "Find them anew" in words
    assert "step 30" in (await asker.call("features.export", "exported"))["name"], "the file stays true of its weights"
    assert (await found(asker))["step"] == 430
    assert (await asker.call("features.list", "features.list"))["rows"]


@scenario
async def test_a_search_ends_where_training_begins(asker):
    await asker.trained()
    reply = asker.ask("features.train", **(SMALL | {"steps": 100_000}))
    await asker.wait("features.progress")
    asker.ask("train.extend", steps=20)
    told = await asker.wait("features.trained", reply_to=reply)
    assert (told["stopped"], told["features"], told["changed"]) == (True, 0, True)
    assert (await asker.wait("stopped"))["step"] == 50


@scenario
async def test_a_text_with_a_feature_ends_where_training_begins(asker):
    await asker.trained()
    await found(asker)
    asker.ask("features.write", prompt="To be", index=0, strength=1.0, tokens=100_000)
    await asker.wait("features.token")
    asker.ask("train.extend", steps=5)
    assert (await asker.wait("features.wrote"))["reason"] == "interrupted"
    await asker.wait("stopped")


@scenario
async def test_an_adapter_and_its_strength_are_other_weights(asker):
    """And the way back is as good: the base's features are its own again once the adapter is off."""
    await asker.trained()
    await found(asker)
    asker.ask("tune.start", how="text", text="Nor this nor that. " * 200, training={"steps": 3})
    assert (await asker.wait("features.outdated"))["outdated"]
    await asker.wait("tune.stopped")
    assert "another adapter" in (await asker.call("features.list", "failed"))["message"]
    asker.ask("adapters.use", adapter_id="")
    assert not (await asker.wait("features.outdated"))["outdated"]
    assert (await asker.call("features.list", "features.list"))["rows"]
    chosen = (await asker.call("adapters.list", "adapters"))["adapters"][0]["adapter_id"]
    asker.ask("adapters.use", adapter_id=chosen)
    assert (await asker.wait("features.outdated"))["outdated"]
    await found(asker)
    for strength, outdated in ((0.5, True), (1, False)):
        asker.ask("adapters.strength", strength=strength)
        assert (await asker.wait("features.outdated"))["outdated"] is outdated
    asker.ask("compare.start", prompt="To be", tokens=100_000)
    await asker.wait("compare.token")  # the base's side: the adapter does not count, and the model is not another for it
    assert (await asker.call("features.list", "features.list"))["rows"]
    assert asker.session.model.strength == 1.0, "nor is a feature looked at without it"


@scenario
async def test_the_rows_it_learned_from_are_let_go_before_it_looks_through_the_text(asker):
    from posttrainllm.study import sparse, survey

    trainers, alive = [], []
    with pytest.MonkeyPatch.context() as patched:

        def held(*args, made=sparse.trainer_on):
            trainers.append(weakref.ref(trainer := made(*args)))
            return trainer

        def seen(*args, made=survey.Survey, **how):
            gc.collect()
            alive.append(trainers[-1]() is not None)
            return made(*args, **how)

        patched.setattr(sparse, "trainer_on", held)
        patched.setattr(survey, "Survey", seen)
        await asker.trained()
        await found(asker)
    assert alive == [False]


@scenario
async def test_what_a_search_took_of_the_engine_is_given_back(asker):
    await asker.trained()
    machine = asker.session.model.machine
    before = machine.memory()["total_bytes"]
    largest = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(machine, "replay", lambda tape, made=machine.replay: (largest.append(machine.memory()["total_bytes"]), made(tape)))
        await found(asker)
    assert max(largest) > before + (1 << 19) and machine.memory()["total_bytes"] < before + (1 << 18)
    text = asker.session.model.generate("To be", 20, temperature=0)
    first = (await asker.call("features.list", "features.list", count=1))["rows"][0]
    one = await asker.call("features.feature", "features.feature", index=first["index"])
    assert one["contexts"][0]["activations"][one["contexts"][0]["at"]] == pytest.approx(first["most"], rel=1e-4)
    assert asker.session.model.generate("To be", 20, temperature=0) == text


@scenario
async def test_a_model_that_names_no_text_is_read_on_the_one_under_text(asker):
    await asker.trained()
    session = asker.session
    run = await session.runs.store.create("from afar")
    run.save(weights_checkpoint(session.model, "from afar"))  # which names no text
    run.close()
    asker.ask("runs.open", run_id=run.id)
    await asker.wait("opened")
    told = await found(asker)
    assert (told["text"], told["own_text"]) == ("hamlet", False) and told["recovered"]["recovered"] > 0.5
    trained = await asker.call("lens.train", "lens.trained", steps=3)
    assert (trained["text"], trained["own_text"]) == ("hamlet", False)
    await asker.trained()
    told = await found(asker)
    assert (told["text"], told["own_text"]) == ("hamlet", True)


def test_settings_may_all_be_asked_for():
    from posttrainllm.study.sae_train import SAESettings

    assert set(REQUESTS["features.train"]) - {"address", "how"} == set(SAESettings.__dataclass_fields__) - {"kind"}


@scenario
async def test_a_feature_is_shown_in_texts_that_differ_and_what_to_begin_with_is_the_texts(asker):
    await asker.trained()
    told = await found(asker)
    assert told["opening"] and "To be, or not to be, that is the question.".startswith(told["opening"])
    for row in (await asker.call("features.list", "features.list", count=10))["rows"]:
        one = await asker.call("features.feature", "features.feature", index=row["index"])
        texts = [tuple(each["labels"]) for each in one["contexts"]]
        assert 1 <= len(texts) <= 5 and len(set(texts)) == len(texts)
        assert one["contexts"][0]["activations"][one["contexts"][0]["at"]] == pytest.approx(one["most"], rel=1e-4)
