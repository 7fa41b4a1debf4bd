"""train --moments: kept through a resume until others are asked for, on any threads and instructions."""

import pytest

pytest.importorskip("typer", reason="the command line is native")

from posttrainllm.train.files import opened
from posttrainllm.train.moments import kind_of

from .calling import QUICK, SIZES, call, text_file, train  # noqa: F401 - one is a fixture's

pytestmark = pytest.mark.native_only(reason="the command line is native")


@pytest.mark.parametrize("kind", ["bf16", "8bit"])
def test_a_hundred_steps_are_fifty_and_fifty_with_smaller_moments(text, tmp_path, kind):
    common, run = [*text, *SIZES, *QUICK, "--device", "cpu"], tmp_path / "run"
    straight = train(*common, "--steps", 100, "--threads", 2, "--moments", kind)
    assert straight[0]["saving"]["moments"] == kind
    train(*common, "--steps", 50, "--threads", 1, "--moments", kind, "--out", run)
    resumed = train(*common, "--steps", 100, "--threads", 2, "--isa", "sse2", "--out", run, "--resume")
    assert resumed[0]["saving"]["moments"] == kind and resumed[-1]["weights_sha256"] == straight[-1]["weights_sha256"]
    with opened(run) as saved:
        assert kind_of(saved) == kind
    plain = train(*common, "--steps", 101, "--moments", "f32", "--out", run, "--resume")
    with opened(run) as saved:
        assert plain[0]["saving"]["moments"] == "f32" == kind_of(saved)
    assert straight[0]["memory"]["moments_bytes"] < 0.51 * plain[0]["memory"]["moments_bytes"]


def test_a_way_that_there_is_not_is_refused_in_a_sentence(text):
    out, err = call("train", *text, *SIZES, "--moments", "4bit", status=2)
    assert "bf16" in out + err
