"""Tags, notes and comparing, as the page asks for them."""

import asyncio

import pytest

from tests.session.test_session import running

pytestmark = pytest.mark.native_only(reason="the loop is CPython's; e2e/ runs the same Session in the tab")


def test_marks_and_comparing_in_mid_run_and_after():
    async def check():
        async with running() as asker:
            stopped = await asker.trained()
            first = stopped["run_id"]
            runs = (await asker.call("runs.mark", "runs", run_id=first, tags=["one", "ONE", " a,b "], note="Line one.\nLine two."))["runs"]
            assert runs[0]["marks"] == {"tags": ["one", "a b"], "note": "Line one.\nLine two."}
            runs = (await asker.call("runs.mark", "runs", run_id=first, tags=[]))["runs"]
            assert runs[0]["marks"] == {"note": "Line one.\nLine two."}, "a note that is left out stays"
            runs = (await asker.call("runs.duplicate", "runs", run_id=first))["runs"]
            second = next(run["run_id"] for run in runs if run["run_id"] != first)
            assert all(run["marks"] == {"note": "Line one.\nLine two."} for run in runs)

            asker.ask("runs.continue", run_id=first, steps=100_000)
            await asker.wait("started")
            while (await asker.wait("step"))["step"] < 40:
                pass
            runs = (await asker.call("runs.mark", "runs", run_id=first, tags=["going"]))["runs"]
            assert next(run for run in runs if run["run_id"] == first)["marks"]["tags"] == ["going"]
            found = await asker.call("runs.compare", "compared", run_ids=[second, first])
            assert found["run_ids"] == [second, first] and found["steps"][0] == 30 and found["steps"][1] >= 40
            assert found["curves"]["loss"][1]["step"][-1] >= 40, "the live one as it stands now, not as it was saved last"
            assert [setting["label"] for setting in found["settings"]] == ["Steps"] and found["along"] == ["step", "tokens", "seconds"]
            asker.ask("train.stop")
            await asker.wait("stopped")
            runs = (await asker.call("runs.list", "runs"))["runs"]
            assert next(run for run in runs if run["run_id"] == first)["marks"]["tags"] == ["going"], "the save at the end leaves them alone"

    asyncio.run(check())


@pytest.mark.parametrize(
    "request_, words",
    [({"kind": "runs.compare", "run_ids": ["a"]}, "2 to 8"), ({"kind": "runs.compare", "run_ids": ["a", "a"]}, "named once"), ({"kind": "runs.compare", "run_ids": [1, 2]}, "named once"),
     ({"kind": "runs.compare", "run_ids": ["none", "nothing"]}, "none"), ({"kind": "runs.mark", "run_id": "none", "tags": ["x"]}, "none"), ({"kind": "runs.mark", "run_id": "x", "tags": "y"}, "tags")],
)  # fmt: skip
def test_what_cannot_be_done_is_said(request_, words):
    async def check():
        async with running() as asker:
            kind = request_["kind"]
            failed = await asker.call(kind, "failed", **{name: value for name, value in request_.items() if name != "kind"})
            assert words in failed["message"], failed

    asyncio.run(check())
