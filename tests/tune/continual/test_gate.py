"""The gate: each bound alone keeps a candidate aside, and none is there for show: without it the same candidate passes."""

import dataclasses
import math

import pytest

from posttrainllm.configs import load
from posttrainllm.errors import ConfigError
from posttrainllm.tune.continual.gate import Figures, GateReport, judge

BOUNDS = load("continual")["gate"]
GOOD = Figures(
    held_out_rows=8, held_out_base_nats=3.0, held_out_before_nats=3.0, held_out_after_nats=1.5, held_out_after_nats_per_byte=1.5, held_out_wins=1.0,
    base_before_nats=1.8, base_after_nats=1.82, base_nats_per_byte=1.8, probe_before_nats=1.8, probe_after_nats=1.84, probe_worst_rise_nats=0.2,
    probe_sha256="ab", preferences=6, preference_accuracy=0.9, recital_before=0.1, recital_after=0.1, copied_before_bytes=9.0, copied_after_bytes=10.0, answers_before_bytes=5.0,
    answers_after_bytes=7.0,
)  # fmt: skip
BAD = {  # a bound, and figures that break it alone, just
    "held_out_margin_nats": {"held_out_after_nats": 3.0 - BOUNDS["held_out_margin_nats"] + 0.001},
    "held_out_wins": {"held_out_wins": BOUNDS["held_out_wins"] - 0.01},
    "held_out_above_base_nats_per_byte": {"held_out_after_nats_per_byte": 1.8 + BOUNDS["held_out_above_base_nats_per_byte"] + 0.001},
    "preference_accuracy": {"preference_accuracy": BOUNDS["preference_accuracy"] - 0.01},
    "base_rise_nats": {"base_after_nats": 1.8 + BOUNDS["base_rise_nats"] + 0.001},
    "probe_rise_nats": {"probe_after_nats": 1.8 + BOUNDS["probe_rise_nats"] + 0.001},
    "probe_worst_rise_nats": {"probe_worst_rise_nats": BOUNDS["probe_worst_rise_nats"] + 0.001},
    "recital_rise": {"recital_after": 0.1 + BOUNDS["recital_rise"] + 0.001},
    "answers_rise_bytes": {"answers_after_bytes": 5.0 + BOUNDS["answers_rise_bytes"] + 0.1},
    "copied_rise_bytes": {"copied_after_bytes": 9.0 + BOUNDS["copied_rise_bytes"] + 0.1},
}
GONE = {name: 0.0 for name in ("held_out_margin_nats", "held_out_wins", "preference_accuracy")}
"""The value at which a bound asks for nothing; for the others the largest that there is."""
LARGEST = {"recital_rise": 1.0, "copied_rise_bytes": 4096.0, "answers_rise_bytes": 4096.0}


def test_every_bound_is_tried():
    assert BAD.keys() == BOUNDS.keys() and judge(GOOD) == ()


@pytest.mark.parametrize("name", BAD)
def test_each_bound_decides_alone_and_without_it_the_candidate_passes(name):
    bad = dataclasses.replace(GOOD, **BAD[name])
    reasons = judge(bad)
    assert len(reasons) == 1 and " asked" in reasons[0]
    assert judge(bad, {name: GONE.get(name, LARGEST.get(name, 100.0))}) == ()
    others = dict.fromkeys(BOUNDS.keys() - {name})
    assert judge(bad, {each: GONE.get(each, LARGEST.get(each, 100.0)) for each in others}) == reasons, "no other bound caught it"


@pytest.mark.parametrize("name", BAD)
def test_a_bound_is_kept_at_its_very_value(name):
    field, value = next(iter(BAD[name].items()))
    kept = {"held_out_after_nats": -0.002, "held_out_wins": 0.01, "preference_accuracy": 0.01, "copied_after_bytes": -0.1, "answers_after_bytes": -0.1}.get(field, -0.002)
    assert judge(dataclasses.replace(GOOD, **{field: value + kept})) == ()


@pytest.mark.parametrize("name", [each.name for each in dataclasses.fields(Figures) if each.name not in ("held_out_rows", "preferences", "probe_sha256")])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_never_promoted(name, value):
    reasons = judge(dataclasses.replace(GOOD, **{name: value}), {each: GONE.get(each, LARGEST.get(each, 100.0)) for each in BOUNDS})
    assert len(reasons) == 1 and name in reasons[0] and "the weights are broken" in reasons[0]


def test_what_could_not_be_measured_is_not_held_against_it():
    nothing = dict.fromkeys(("preference_accuracy", "recital_before", "recital_after", "copied_before_bytes", "copied_after_bytes", "answers_before_bytes", "answers_after_bytes"))
    assert judge(dataclasses.replace(GOOD, **nothing)) == ()


def test_all_that_is_wrong_is_said_at_once():
    bad = dataclasses.replace(GOOD, **{name: value for each in BAD.values() for name, value in each.items()})
    assert len(judge(bad)) == len(BOUNDS)
    report = GateReport(7, bad, BOUNDS, False, judge(bad)).to_dict()
    assert report["event"] == "gate" and report["figures"]["held_out_rows"] == 8 and len(report["reasons"]) == len(BOUNDS)


def test_bounds_of_other_names_or_sizes_are_refused():
    for wrong in ({"margin": 1.0}, {"base_rise_nats": -1.0}, {"held_out_wins": 2.0}, {"base_rise_nats": math.nan}, {"base_rise_nats": True}):
        with pytest.raises(ConfigError, match="improve, gate"):
            judge(GOOD, wrong)
