"""Cells natively: what a person's own Python prints, is, and does to the session around it."""

import asyncio

import pytest

from posttrainllm.session.cell_values import shown
from posttrainllm.session.cells import MOST_OUTPUT

from .test_session import QUICK, TEXT, running

pytestmark = pytest.mark.native_only(reason="the loop is CPython's; e2e/ runs cells in the tab")


def cell(code, model=False, **fields):
    """(events of a cell by kind, its end); with a model where it says so."""

    async def play():
        async with running() as asker:
            if model:
                await asker.trained()
            ended = await asker.call("cells.run", "cell.ended", code=code, **fields)
            return [event for event in asker.events if event.get("reply_to") == ended["reply_to"]], ended

    return asyncio.run(play())


def output(events):
    return "".join(event["text"] for event in events if event["kind"] == "cell.output")


def test_it_prints_and_shows_its_last_value():
    events, ended = cell("print('a'); print('b')\n[1, 2]")
    assert output(events) == "a\nb\n" and ended["ok"]
    assert [event["text"] for event in events if event["kind"] == "cell.value"] == ["[1, 2]"]
    events, _ = cell("1 + 1;")
    assert not [event for event in events if event["kind"] == "cell.value"]


def test_names_stay_in_their_space():
    async def play():
        async with running() as asker:
            await asker.call("cells.run", "cell.ended", code="x = 41", space="one")
            same = await asker.call("cells.run", "cell.value", code="x + 1", space="one")
            other = await asker.call("cells.run", "cell.ended", code="x", space="two")
            await asker.call("cells.reset", "cell.reset", space="one")
            gone = await asker.call("cells.run", "cell.ended", code="x", space="one")
            return same["text"], other["message"], gone["message"]

    same, other, gone = asyncio.run(play())
    assert same == "42"
    assert "NameError" in other and "NameError" in gone


def test_an_error_points_at_the_cells_line():
    _, ended = cell("def f(x):\n    return 1 / x\n\nf(0)", cell="Cell 2")
    assert not ended["ok"] and ended["line"] == 2
    assert 'File "<Cell 2>", line 4' in ended["message"] and "return 1 / x" in ended["message"]
    assert "cell_code.py" not in ended["message"], "the frames of the runner are no concern of the person"
    _, ended = cell("x = = 1")
    assert ended["line"] == 1 and "SyntaxError" in ended["message"]


def test_it_may_await():
    events, ended = cell("import asyncio\nawait asyncio.sleep(0)\n7")
    assert ended["ok"] and events[-2]["text"] == "7"


def test_the_live_model_is_at_hand():
    events, ended = cell("print(model.config.channels, corpus.name, tokenizer.name)\nlen(model.generate('To', tokens=5))", model=True)
    assert ended["ok"], ended["message"]
    assert output(events) == "48 hamlet bytes\n"
    assert not [event for event in events if event["kind"] == "cell.changed_model"], "reading and writing change no weight"


def test_the_pages_names_may_be_taken_for_ones_own():
    async def play():
        async with running() as asker:
            await asker.trained()
            await asker.call("cells.run", "cell.ended", code="before = model; model = 3")
            mine = await asker.call("cells.run", "cell.value", code="model")
            del asker.session.cells._spaces["scratch"]["model"]
            again = await asker.call("cells.run", "cell.value", code="model is before")
            return mine["text"], again["text"]

    assert asyncio.run(play()) == ("3", "True")


def test_it_trains_and_tunes_as_the_page_does():
    code = (
        "mine = pt.GPT.create('tiny', seed=1)\n"
        "reports = [r for r in pt.train(mine, corpus, steps=3, warmup_steps=1) if isinstance(r, pt.StepReport)]\n"
        "tuned = pt.lora(mine, rank=2)\n"
        "for r in pt.train(tuned, corpus, steps=2): pass\n"
        "print(len(reports), tuned.adapter.parameter_count)"
    )
    events, ended = cell(code, model=True)
    assert ended["ok"], ended["message"]
    assert output(events).startswith("3 ")


def test_a_cell_that_changes_the_live_model_sets_its_run_aside():
    async def play():
        async with running() as asker:
            await asker.trained()
            held = asker.session.runs.held_id
            ended = await asker.call("cells.run", "cell.ended", code="for r in pt.train(model, corpus, steps=2): pass")
            changed = [event for event in asker.events if event["kind"] == "cell.changed_model"]
            asker.ask("runs.open", run_id=held)
            opened = await asker.wait("opened")
            return ended, changed, asker.session.training.trainer, opened, asker.session.runs.held_id, held

    ended, changed, trainer, opened, now_held, held = asyncio.run(play())
    assert ended["ok"], ended["message"]
    assert len(changed) == 1 and "as it was" in changed[0]["message"]
    assert opened["step"] == QUICK["steps"] and now_held == held, "the saved run is what it was before the cell"


def test_a_cell_that_changes_a_model_in_training_ends_the_run():
    async def play():
        async with running() as asker:
            asker.ask("corpus.text", text=TEXT, name="hamlet")
            asker.ask("train.start", preset="tiny", training=QUICK | {"steps": 100_000})
            await asker.wait("step")
            asker.ask("cells.run", code="model.initialise(3)")
            return await asker.wait("stopped", "failed"), await asker.wait("cell.ended", "failed")

    first, _ = asyncio.run(play())
    assert "a cell changed it" in first["message"]


def test_output_has_an_end():
    events, ended = cell("for i in range(100000): print('x' * 99)")
    assert ended["ok"] and len(output(events)) < MOST_OUTPUT + 100 and "left out" in output(events)
    assert len(events) < 2000, "lines are joined"


def test_what_ends_a_program_ends_a_cell_only():
    _, ended = cell("raise SystemExit")
    assert ended["ok"]
    _, ended = cell("raise KeyboardInterrupt")
    assert ended["stopped"] and not ended["ok"]


def test_completions():
    async def play():
        async with running() as asker:
            await asker.call("cells.run", "cell.ended", code="counter = 1")
            return (
                await asker.call("cells.complete", "cell.completions", code="x = coun"),
                await asker.call("cells.complete", "cell.completions", code="pt.Corp"),
                await asker.call("cells.complete", "cell.completions", code="x = "),
                await asker.call("cells.complete", "cell.completions", code="model.no.such"),
            )

    name, attribute, nothing, none = asyncio.run(play())
    assert name["items"] == ["counter"] and name["start"] == 4
    assert "Corpus" in attribute["items"] and attribute["start"] == 3
    assert nothing["items"] == [] and none["items"] == []


def test_models_of_a_space_are_closed_with_it():
    async def play():
        async with running() as asker:
            await asker.call("cells.run", "cell.ended", code="mine = pt.GPT.create('tiny')")
            mine = asker.session.cells._spaces["scratch"]["mine"]
            await asker.call("cells.reset", "cell.reset")
            return mine

    mine = asyncio.run(play())
    with pytest.raises(Exception):  # noqa: B017 - whatever a closed model says
        mine.logits([1])


def test_values_as_tables_and_pictures():
    import numpy as np

    assert shown(None) is None
    table = shown([{"step": 1, "loss": 5.54321}, {"step": 2, "loss": 5.0}])["table"]
    assert table == {"columns": ["step", "loss"], "rows": [["1", "5.54321"], ["2", "5"]], "more": 0}
    assert shown({"a": 1})["table"]["rows"] == [["a", "1"]]
    assert "table" not in shown([{"a": [1]}]) and "table" not in shown([])
    picture = shown(np.array([[0.0, 1.0], [np.nan, 0.5]]))["picture"]
    assert (picture["rows"], picture["columns"], picture["least"], picture["most"]) == (2, 2, 0.0, 1.0)
    import base64

    assert list(base64.b64decode(picture["pixels"])) == [0, 254, 255, 127]
    assert "picture" not in shown(np.zeros((300, 3))) and "picture" not in shown(np.zeros(4))
    assert "more characters" in shown("x" * 30_000)["text"]
