"""The tables that explain a graph, a plan and a tape say what those hold."""

import pytest

from posttrainllm.compile.explain import Table, explain_graph, explain_plan, explain_tape, text
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.program import training_step

CONFIG = GPTConfig(layers=2, channels=16, heads=2, context=8, batch=3)


@pytest.fixture(scope="module")
def made():
    return training_step(CONFIG)


def test_columns_are_aligned_numbers_right_words_left():
    table = Table("Fruit", ("name", "pieces", "kg"), (("pear", 1200, 0.5), ("fig", 7, 12.25)), ("Two kinds.",))
    assert text(table).splitlines() == [
        "Fruit",
        "",
        "name  pieces     kg",
        "----  ------  -----",
        "pear   1,200    0.5",
        "fig        7  12.25",
        "",
        "Two kinds.",
    ]
    assert text(Table("Nothing", ("a", "b"), ())).splitlines()[2:] == ["a  b", "-  -"]
    assert table.to_dict()["rows"][1] == ("fig", 7, 12.25)


def test_the_graph_has_every_node_and_its_totals_add_up(made):
    nodes, by_kernel = explain_graph(made.plan.graph)
    assert [row[1] for row in nodes.rows] == [node.kernel.name for node in made.plan.graph.nodes]
    assert sum(row[5] for row in nodes.rows) == sum(row[2] for row in by_kernel.rows) == made.plan.graph.flops()
    assert sum(row[1] for row in by_kernel.rows) == len(nodes.rows)
    (logits,) = [row for row in nodes.rows if row[2] == "logits"]
    assert logits[3] == "[24,16] [256,16] -> [24,256]" and logits[4] == "R=24 C=16 V=256"


def test_the_plan_has_every_address_and_lifetime(made):
    arena, regions = explain_plan(made.plan)
    assert len(arena.rows) == len(made.plan.arena)
    for name, _, nbytes, offset, first, last in arena.rows:
        assert offset % 256 == 0 and offset + nbytes <= made.plan.region_bytes["arena"] and first <= last, name
    assert dict(regions.rows)["params"] == made.plan.region_bytes["params"]
    alive = [sum(row[2] for row in arena.rows if row[4] <= node <= row[5]) for node in range(len(made.tape))]
    assert f"at most {max(alive):,} are alive at once" in arena.notes[0]


def test_the_tape_has_every_record_as_an_engine_reads_it(made):
    (records,) = explain_tape(made.tape)
    assert len(records.rows) == len(made.tape)
    adamw = [row for row in records.rows if row[1] == "adamw"]
    assert [row[4] for row in adamw] == ["decayed=1", "decayed=0"]
    assert "recipe=slots+0" in adamw[0][5] and "m=m+0" in adamw[0][5]
    assert f"{len(made.tape.data):,} bytes" in records.notes[0]
