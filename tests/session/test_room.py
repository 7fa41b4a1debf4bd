"""What a plan says of the disk before a run whose saves take gigabytes, and how often such saves come."""

import asyncio

import pytest

from posttrainllm.session import Host
from posttrainllm.session.job import SAVE_SHARE, Job
from tests.session.test_session import running

pytestmark = pytest.mark.native_only(reason="the loop is CPython's; e2e/test_behemoth.py saves such a run in the tab")


class Disk(Host):
    """A browser that says what room it has, and counts how often it is asked."""

    def __init__(self, room):
        super().__init__(device="cpu")
        self.room, self.asked = room, 0

    async def room_bytes(self):
        self.asked += 1
        return self.room


@pytest.mark.parametrize(
    ("room", "words"), [(None, ""), (4_000_000_000, ""), (2_000_000_000, "Two are kept"), (1_000_000_000, "could not be saved here")]
)
def test_a_plan_says_where_saves_may_have_no_room(room, words):
    async def go():
        host = Disk(room)
        async with running(host) as asker:
            small = await asker.call("plan", "planned", preset="tiny")
            asked = host.asked
            return small, asked, await asker.call("plan", "planned", preset="gpt2")

    small, asked, large = asyncio.run(go())
    assert not asked and not any("save" in warning for warning in small["warnings"])
    told = [warning for warning in large["warnings"] if "A save of this run takes 1.5 GB" in warning]
    assert len(told) == bool(words) and all(words in warning for warning in told), large["warnings"]


def test_a_save_that_takes_long_is_not_made_at_every_turn():
    job = Job(None)
    assert job.save_pause_seconds == job.save_every_seconds == 60
    job._save_seconds = 30.0
    assert job.save_pause_seconds == 30 * SAVE_SHARE
