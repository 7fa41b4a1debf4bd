"""Smaller moments in a session: trained, saved, opened again, gone on with, and changed for others."""

import pytest

from tests.session.test_session import QUICK, TEXT, scenario

pytestmark = pytest.mark.native_only(reason="the loop is CPython's; e2e/ asks the same of the tab")


def kept(asker):
    return asker.session.model.program.saving.moments


@pytest.mark.parametrize("kind", ["bf16", "8bit"])
def test_a_run_keeps_them_through_a_save_until_others_are_asked_for(kind):
    @scenario
    async def body(asker):
        asker.ask("corpus.text", text=TEXT)
        planned = await asker.call("plan", "planned", preset="tiny", saving={"moments": kind})
        plain = await asker.call("plan", "planned", preset="tiny")
        assert planned["saving"]["moments"] == kind and plain["saving"]["moments"] == "f32"
        assert planned["memory"]["moments_bytes"] < 0.51 * plain["memory"]["moments_bytes"]
        asker.ask("train.start", preset="tiny", training=QUICK, saving={"moments": kind})
        stopped = await asker.wait("stopped")
        assert stopped["reason"] == "finished" and kept(asker) == kind
        assert asker.session.model.memory()["moments_bytes"] == planned["memory"]["moments_bytes"]
        run_id = stopped["run_id"]
        asker.ask("train.start", preset="tiny", training=QUICK | {"steps": 6})  # another run, so that the first is read from its file
        await asker.wait("stopped")
        assert kept(asker) == "f32"
        asker.ask("runs.continue", run_id=run_id, steps=4)
        assert (await asker.wait("stopped"))["step"] == QUICK["steps"] + 4 and kept(asker) == kind
        asker.ask("runs.continue", run_id=run_id, steps=3, saving={"moments": "f32"})
        assert (await asker.wait("stopped"))["step"] == QUICK["steps"] + 7 and kept(asker) == "f32"

    body()
