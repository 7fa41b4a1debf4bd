"""The probe that picks a matmul's tile on a device, and where its findings are kept."""

import dataclasses
import json
import logging

import pytest
from posttrainllm.backends.gpu import attention_tiles, probe, subjects, tile_cache, tiles
from posttrainllm.backends.gpu.attention_tiles import AttentionTile
from posttrainllm.backends.gpu.limits import DEFAULT, Limits
from posttrainllm.backends.gpu.lower import lower
from posttrainllm.backends.gpu.options import Options
from posttrainllm.backends.gpu.tiles import MatmulTile, TensorTile, as_choice, key_of, matmul_tile, of_choice
from posttrainllm.model.config import GPTConfig
from posttrainllm.model.program import training_step
from posttrainllm.waiting import now

pytestmark = pytest.mark.native_only(reason="wgpu-py drives the GPU here; e2e does in the browser")
WIDE = Limits(1 << 32, 1 << 31, 49152, 1024)
RIGHT = {tiles.units_key(layout): as_choice(tiles.TENSOR_SMALL, 1) for layout in subjects.KERNELS}
UNITS = Options(WIDE, "f16", ((16, 16, 16),), tiles=RIGHT)
QUICK_ATTENTION = (AttentionTile(32, 32, 16), AttentionTile(16, 16, 16))
QUICK = (MatmulTile(32, 32, 8, 4, 4), MatmulTile(16, 32, 4, 4, 4))


@pytest.fixture
def real_gpu(gpu, monkeypatch):
    """The GPU, taken for a real one, with tiles that a CPU's driver compiles quickly."""
    monkeypatch.setattr(gpu, "software", False)
    monkeypatch.setattr(subjects, "PLAIN", QUICK)
    monkeypatch.setattr(subjects, "SHARED", 0.9)
    monkeypatch.setattr(probe, "MOST_SUBJECTS", 100)
    monkeypatch.setattr(attention_tiles, "CANDIDATES", dict.fromkeys(attention_tiles.CANDIDATES, QUICK_ATTENTION))
    return gpu


def step():
    return training_step(GPTConfig(layers=1, heads=2, channels=32, context=32, batch=2, vocabulary=64)).tape


def test_a_step_is_measured_and_the_fastest_is_taken(real_gpu, caplog):
    caplog.set_level(logging.INFO, "posttrainllm.gpu")
    found = now(probe.probe(real_gpu, [step()], seconds=30.0))
    measured = subjects.subjects([step()])
    assert set(found) == {subject.key("f32") for subject in measured} and len(measured) > 10
    assert json.loads(json.dumps(found)) == found
    products = [choice for key, choice in found.items() if not key.startswith("attention")]
    assert all(of_choice(choice)[0] in (*QUICK, tiles.MIDDLE) for choice in products)
    assert {key for key in found if key.startswith("attention")} == {
        f"{entry} 4x32x16 f32" for entry in attention_tiles.CANDIDATES
    }
    assert len([line for line in caplog.messages if "tried, the slowest" in line]) == len(found)


def test_a_tile_is_taken_by_its_time_and_what_is_known_is_not_measured(real_gpu, monkeypatch):
    asked = []

    async def timed(machine, loadeds, repeats):
        asked.append(len(loadeds))
        return [
            1.0 + (loaded.lowered.dispatches[0].constants != loadeds[-1].lowered.dispatches[0].constants)
            for loaded in loadeds
        ]

    monkeypatch.setattr(probe, "_timed", timed)
    found = now(probe.probe(real_gpu, [step()], seconds=30.0))
    assert asked and {of_choice(c)[0] for key, c in found.items() if not key.startswith("attention")} == {QUICK[1]}
    pipelines = [dict(key[2]) for key in real_gpu._pipelines if key[0] == "linear" and "TILE_M" in dict(key[2])]
    assert any(each["TILE_M"] == 16 for each in pipelines)
    asked.clear()
    assert now(probe.probe(real_gpu, [step()], found)) == found and not asked


def test_time_ends_the_probe(real_gpu, monkeypatch):
    assert now(probe.probe(real_gpu, [step()], seconds=0.0)) == {}
    load, clock = probe._load, [0.0]
    monkeypatch.setattr(probe.time, "perf_counter", lambda: clock[0])

    async def slow(*arguments):
        clock[0] += 1.0
        return await load(*arguments)

    monkeypatch.setattr(probe, "_load", slow)
    first, second = subjects.subjects([step()])[:2]
    assert len(first.choices(real_gpu.options)) == len(second.choices(real_gpu.options)) == 2
    assert set(now(probe.probe(real_gpu, [step()], seconds=3.5))) == {first.key("f32"), second.key("f32")}
    assert clock[0] == 4.0
    clock[0] = 0.0
    assert set(now(probe.probe(real_gpu, [step()], seconds=2.5))) == {first.key("f32")}
    assert clock[0] == 3.0  # the second ended in the middle of its tiles


def test_the_heaviest_are_measured_and_others_take_over_what_is_alike(real_gpu, monkeypatch):
    monkeypatch.setattr(subjects, "SHARED", 2.0)
    monkeypatch.setattr(probe, "MOST_SUBJECTS", 5)
    asked = []

    async def timed(machine, loadeds, repeats):
        asked.append(len(loadeds))
        return [1.0] * (len(loadeds) - 1) + [0.5]

    monkeypatch.setattr(probe, "_timed", timed)
    found = now(probe.probe(real_gpu, [step()], seconds=30.0))
    assert len(asked) == 2 * 5 < 2 * len(found)
    every = [each for each in subjects.subjects([step()]) if isinstance(each, subjects.Product)]
    for each in every:
        key = each.key("f32")
        like = [other for other in every if other.alike(each) and other.key("f32") in found]
        assert (key in found) == bool(like) and (not like or found[key] in [found[other.key("f32")] for other in like])


def test_a_software_adapter_is_not_measured(gpu):
    assert gpu.software and now(probe.probe(gpu, [step()])) == {}


def test_lowering_takes_what_was_found():
    shape = ("NN", 64, 96, 32)
    choice = as_choice(MatmulTile(32, 64, 8, 4, 8), 2)
    options = Options(DEFAULT, tiles={key_of(*shape, "f32"): choice})
    assert matmul_tile(*shape, options) == (MatmulTile(32, 64, 8, 4, 8), 16)
    assert matmul_tile(*shape, Options(DEFAULT))[0] != MatmulTile(32, 64, 8, 4, 8)
    large = as_choice(MatmulTile(128, 128, 32, 8, 8), 1)  # of a cache from a larger GPU
    assert matmul_tile(*shape, Options(DEFAULT, tiles={key_of(*shape, "f32"): large}))[0].fits(DEFAULT)


def test_candidates_differ_suit_and_begin_with_the_default():
    for shape in (("NN", 4096, 2304, 768), ("NT", 2048, 128, 384), ("TN", 128, 512, 2048)):
        for options in (Options(DEFAULT), Options(WIDE), UNITS):
            found = subjects.candidates(options, *shape)
            assert found[0][0] == matmul_tile(*shape, options)[0] and len(set(found)) == len(found) > 3
            assert all(each.suits(options, *shape) for each, _ in found)


def test_matrix_units_are_for_half_precision_and_lines_of_eights():
    tile = TensorTile(2, 2, 2, 2, 32)
    assert tile.suits(UNITS, "NN", 33, 64, 64)
    assert not tile.suits(UNITS, "NN", 64, 60, 64) and tile.suits(UNITS, "NT", 64, 60, 64)
    assert not tile.suits(Options(WIDE, "f32", ((16, 16, 16),)), "NN", 64, 64, 64)
    assert not tile.suits(Options(WIDE, "f16"), "NN", 64, 64, 64)
    names = {kernel.kernel for kernel in lower(step(), UNITS).dispatches if ("TENSOR", True) in kernel.constants}
    assert set(tiles.LAYOUTS) <= names
    unchecked = lower(step(), Options(WIDE, "f16", ((16, 16, 16),)))
    products = [dispatch for dispatch in unchecked.dispatches if dispatch.kernel in tiles.LAYOUTS]
    assert products and not any(("TENSOR", True) in dispatch.constants for dispatch in products)


def test_units_that_give_other_numbers_are_found_out(open_half, monkeypatch):
    machine = open_half
    machine.options = Options(machine.limits, "f16", ((16, 16, 16),))
    constants, wrong = TensorTile.constants, {}
    monkeypatch.setattr(TensorTile, "constants", lambda tile: constants(tile) | {"EMULATE": True} | wrong)
    monkeypatch.setattr(subjects, "MIDDLE", QUICK[0])
    tile, subject = TensorTile(1, 2, 2, 2, 32), subjects.Product("NT", 64, 64, 64)
    monkeypatch.setattr(subjects, "TENSOR", (tile,) * 3)
    monkeypatch.setattr(subjects, "PLAIN", QUICK[:1])

    async def timed(machine, loadeds, repeats):
        return [1.0 - number / 100 for number in range(len(loadeds))]

    monkeypatch.setattr(probe, "_timed", timed)
    monkeypatch.setattr(probe, "NOISE", 0.0)

    def find():
        each = probe.Probe(machine, {}, 100.0)
        now(each.run([subject]))
        return each.found

    turned, default = dataclasses.replace(tile, TRANSPOSED=True), as_choice(QUICK[0], 1)
    choices = subject.choices(machine.options)
    assert choices[1:] and as_choice(tile, 1) in choices and as_choice(turned, 1) in choices
    for each in (tile, turned):
        assert now(probe.agrees(machine, subject, as_choice(each, 1), default))
    assert find()[tiles.units_key("NT")][0] == "tensor"
    wrong["NEXT_STEP_A"] = 0  # the first fragment of a line at every step along k
    for each in (tile, turned):
        assert not now(probe.agrees(machine, subject, as_choice(each, 1), default))
    assert [choice[0] for choice in find().values()] == ["plain"]


def test_each_layout_and_entry_has_its_turn():
    products = [subjects.Product(layout, n, n, n) for n in (9, 8) for layout in ("NN", "NN", "TN", "NT")]
    attention = [subjects.Attention(entry, "attention", 1, 1, 1, 1) for entry in ("attention", "attention_backward")]
    turns = probe.in_turn([*attention, *dict.fromkeys(products)])
    heads = [turns[0], *turns[3:5]]
    assert [each.layout for each in heads] == ["NN", "TN", "NT"] and {each.rows for each in heads} == {9}
    assert turns[1:3] == attention and len(turns) == 8


def test_a_kind_of_units_that_is_refused_is_not_tried_again(open_half, monkeypatch):
    machine, load, tried = open_half, probe._load, []
    machine.options = Options(machine.limits, "f16", ((16, 16, 16),))
    monkeypatch.setattr(subjects, "PLAIN", QUICK)
    monkeypatch.setattr(subjects, "HALF", ())

    async def refused(machine, tape, key, choice):
        tried.append((key.split()[0], choice[0], probe.kind_of(choice)))
        return None if choice[0] == "tensor" else await load(machine, tape, key, choice)

    monkeypatch.setattr(probe, "_load", refused)
    now(probe.Probe(machine, {}, 100.0).run([subjects.Product(layout, 64, 64, 64) for layout in ("NN", "NT", "TN")]))
    wide, halves = (True, False), (False, False)
    assert [kind for layout, _, kind in tried if layout == "NN"] == [None, wide, wide]
    assert [kind for layout, _, kind in tried if layout == "NT"][1] == halves
    assert {kind for layout, _, kind in tried if layout == "TN"} == {None}


@pytest.fixture
def open_half():
    from posttrainllm.backends.webgpu import WebGPUMachine, open_adapter
    from posttrainllm.errors import DeviceUnavailableError

    try:
        machine = WebGPUMachine(open_adapter(), precision="f16")
    except DeviceUnavailableError as error:
        pytest.skip(str(error))
    yield machine
    machine.close()


def test_the_cache_is_by_adapter_and_version(tmp_path, monkeypatch):
    file = tmp_path / "deeper" / "gpu-tiles.json"
    found = {"NN 1x2x3 f32": as_choice(QUICK[0], 2)}
    assert tile_cache.read_cache("A", file) == {}
    tile_cache.write_cache("A", found, file)
    tile_cache.write_cache("B", {}, file)
    assert tile_cache.read_cache("A", file) == found and tile_cache.read_cache("B", file) == {}
    assert tile_cache.read_cache("C", file) == {}
    file.write_text(json.dumps({"A": {"version": tile_cache.version(), "tiles": {"x": ["plain", 1]}}}))
    assert tile_cache.read_cache("A", file) == {}
    tile_cache.write_cache("A", found, file)
    monkeypatch.setattr(tile_cache, "version", lambda: "later")
    assert tile_cache.read_cache("A", file) == {}
    file.write_text("{")
    assert tile_cache.read_cache("A", file) == {}
    blocked = tmp_path / "file"
    blocked.write_text("")
    tile_cache.write_cache("A", found, blocked / "gpu-tiles.json")  # cannot be written: no error


@pytest.mark.parametrize("entry", attention_tiles.CANDIDATES)
def test_attention_by_units_is_checked_too(open_half, monkeypatch, entry):
    machine = open_half
    machine.options = Options(machine.limits, "f16", ((16, 16, 16),))
    kernel = next(name for name, entries in attention_tiles.ENTRIES.items() if entry in dict(entries))
    subject = subjects.Attention(entry, kernel, 1, 40, 1, 16)
    choice = attention_tiles.as_choice(attention_tiles.TensorTile(32, 32, EMULATE=True))
    assert attention_tiles.of_choice(choice).suits(machine.options, entry, 16)
    default = subject.choices(machine.options)[0]
    assert now(probe.agrees(machine, subject, choice, default))
    constants = attention_tiles.TensorTile.constants
    monkeypatch.setattr(
        attention_tiles.TensorTile,
        "constants",
        lambda *given: constants(*given) | {"KEYS": entry != "attention_backward_keys"},
    )
    assert entry == "attention" or not now(probe.agrees(machine, subject, choice, default))
