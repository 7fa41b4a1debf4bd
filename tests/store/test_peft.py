"""Adapters as PEFT's two files: the structure peft expects, the way back bit for bit, and a sentence for what cannot be."""

import json
import struct

import numpy as np
import pytest

from posttrainllm.errors import DataError, FormatError
from posttrainllm.model.lora import Adapter, LoRAConfig, shapes, sites
from posttrainllm.store.peft import ABOUT, CONFIG, WEIGHTS, from_files, load, to_files
from posttrainllm.store.safetensors import SafeTensors, encode
from tests.golden.test_lora_golden import CONFIG as MODEL
from tests.golden.test_lora_golden import GOLDEN

SIZES = {"layers": MODEL.layers, "channels": MODEL.channels}
TARGETS = {
    "q and v": ("attn.q", "attn.v"),
    "q": ("attn.q",),
    "k": ("attn.k",),
    "k and v": ("attn.k", "attn.v"),
    "q, k and v": ("attn.q", "attn.k", "attn.v"),
    "qkv": ("attn.qkv",),
    "every linear": ("attn.qkv", "attn.proj", "mlp.fc", "mlp.proj"),
    "v and fc": ("attn.v", "mlp.fc"),
    "q, v and the MLP": ("attn.q", "attn.v", "mlp.fc", "mlp.proj"),
    "proj alone": ("mlp.proj",),
}


def adapter(targets, rslora=False, rank=3, seed=0):
    lora, rng = LoRAConfig(rank, 5, targets, rslora), np.random.default_rng(seed)
    weights = {name: rng.standard_normal(shape).astype("<f4").tobytes() for name, shape in shapes(MODEL, lora).items()}
    return Adapter("one", lora, SIZES, "ab" * 32, weights)


def arrays(files):
    """The tensors of the weights file, as NumPy's."""
    return {
        name: np.frombuffer(tensor.view(), "<f4").reshape(tensor.shape)
        for name, tensor in SafeTensors(files[WEIGHTS]).tensors.items()
    }


def without_metadata(files):
    """As peft saves it again."""
    parsed = SafeTensors(files[WEIGHTS])
    tensors = [(name, tensor.dtype, tensor.shape, tensor.view()) for name, tensor in parsed.tensors.items()]
    return b"".join(map(bytes, encode(tensors, {})))


@pytest.mark.parametrize("rslora", [False, True])
@pytest.mark.parametrize("targets", TARGETS.values(), ids=TARGETS)
def test_there_and_back(targets, rslora):
    one = adapter(targets, rslora)
    files = to_files(one)
    assert from_files(files[WEIGHTS]) == one
    again = from_files(without_metadata(files), files[CONFIG], "one")
    assert again.weights == one.weights and again.base_sha256 == ""
    assert again.config.shape == one.config.shape and again.config.rslora == rslora
    assert again.config.scaling == pytest.approx(one.config.scaling, rel=1e-14)


@pytest.mark.parametrize("rslora", [False, True])
@pytest.mark.parametrize("targets", TARGETS.values(), ids=TARGETS)
def test_what_peft_computes_from_the_files_is_the_adapters_change(targets, rslora):
    """scaling·(B·A)ᵀ by peft's rules on each module against the sum of the sites' own."""
    one = adapter(targets, rslora)
    files = to_files(one)
    config, tensors, expected = json.loads(files[CONFIG]), arrays(files), {}
    for site in sites(MODEL, one.config):
        _, layer, linear = site.linear.split(".", 2)
        change = expected.setdefault((layer, linear), np.zeros((site.inputs, site.outputs)))
        down = np.frombuffer(one.weights[site.down()], "<f4").reshape(site.inputs, -1).astype(float)
        up = np.frombuffer(one.weights[site.up()], "<f4").reshape(-1, site.columns).astype(float)
        change[:, site.first : site.first + site.columns] += one.config.scaling * (down @ up)
    names = {"attn.qkv": "attn.c_attn", "attn.proj": "attn.c_proj", "mlp.fc": "mlp.c_fc", "mlp.proj": "mlp.c_proj"}
    assert config["target_modules"] == sorted({names[linear] for _, linear in expected})
    assert len(tensors) == 2 * len(expected)
    for (layer, linear), change in expected.items():
        place = f"base_model.model.transformer.h.{layer}.{names[linear]}"
        a, b = (tensors[f"{place}.lora_{which}.weight"].astype(float) for which in "AB")
        rank = config["rank_pattern"].get(names[linear], config["r"])
        assert a.shape[0] == b.shape[1] == rank
        scaling = config["alpha_pattern"].get(names[linear], config["lora_alpha"]) / (rank**0.5 if rslora else rank)
        assert np.abs(scaling * (b @ a).T - change).max() < 1e-12 * np.abs(change).max()


def test_the_default_is_one_module_of_twice_the_rank():
    config = json.loads(to_files(adapter(("attn.q", "attn.v"), rank=4))[CONFIG])
    assert (config["r"], config["lora_alpha"], config["target_modules"]) == (8, 10, ["attn.c_attn"])
    assert config["fan_in_fan_out"] is True and config["rank_pattern"] == {} == config["alpha_pattern"]


def test_what_peft_saved_comes_apart_again():
    """peft dropped our metadata: q and v are found by their structure."""
    qv = from_files(GOLDEN[f"qv/file/{WEIGHTS}"], GOLDEN[f"qv/file/{CONFIG}"])
    assert qv.config == LoRAConfig.of() and qv.parameter_count == 2 * 2 * 2 * 24 * 4
    assert SafeTensors(GOLDEN[f"qv/file/{WEIGHTS}"].tobytes()).metadata == {"format": "pt"}


def test_a_mixed_c_attn_is_one_adapter_of_qkv():
    files = to_files(adapter(("attn.q", "attn.v")))
    found = {name: data.copy() for name, data in arrays(files).items()}
    found["base_model.model.transformer.h.1.attn.c_attn.lora_B.weight"][30, 0] = 0.5  # a q column reaches into k
    data = b"".join(map(bytes, encode([(n, "F32", d.shape, d.tobytes()) for n, d in found.items()], {})))
    mixed = from_files(data, files[CONFIG])
    assert mixed.config.targets == ("attn.qkv",) and mixed.config.rank == 6 and mixed.config.scaling == pytest.approx(5 / 3)
    up = np.frombuffer(mixed.weights["blocks.1.attn.qkv.lora_up"], "<f4").reshape(6, 72)
    assert np.array_equal(up.T, found["base_model.model.transformer.h.1.attn.c_attn.lora_B.weight"])


def test_other_ranks_and_scalings_become_one():
    """peft may give modules their own rank and alpha, and leave layers out: the change stays what it was."""
    rng, ranks = np.random.default_rng(3), {(0, "attn.c_attn"): 2, (0, "mlp.c_fc"): 5, (1, "attn.c_attn"): 2}
    config = {"peft_type": "LORA", "r": 5, "lora_alpha": 10, "rank_pattern": {"attn.c_attn": 2}, "alpha_pattern": {"attn.c_attn": 8}}
    widths, tensors, expected = {"attn.c_attn": 72, "mlp.c_fc": 96}, [], {}
    for (layer, module), rank in ranks.items():
        a, b = (rng.standard_normal(shape).astype("<f4") for shape in ((rank, 24), (widths[module], rank)))
        place = f"base_model.model.transformer.h.{layer}.{module}"
        tensors += [(f"{place}.lora_A.weight", "F32", a.shape, a.tobytes()), (f"{place}.lora_B.weight", "F32", b.shape, b.tobytes())]
        expected[layer, module] = (4 if rank == 2 else 2) * (b.astype(float) @ a).T
    found = from_files(b"".join(map(bytes, encode(tensors, {}))), json.dumps(config).encode())
    assert found.config.rank == 5 and found.config.targets == ("attn.qkv", "mlp.fc")
    for site in sites(MODEL, found.config):
        down = np.frombuffer(found.weights[site.down()], "<f4").reshape(site.inputs, 5).astype(float)
        up = np.frombuffer(found.weights[site.up()], "<f4").reshape(5, site.columns).astype(float)
        _, layer, linear = site.linear.split(".", 2)
        wanted = expected.get((int(layer), {"attn.qkv": "attn.c_attn", "mlp.fc": "mlp.c_fc"}[linear]), 0 * down @ up)
        assert np.abs(found.config.scaling * (down @ up) - wanted).max() < 1e-6


@pytest.mark.parametrize("dtype", ["F16", "BF16"])
def test_half_precision_is_read(dtype):
    one = adapter(("mlp.fc",))
    files = to_files(one)
    halves = []
    for name, data in arrays(files).items():
        raw = data.astype("<f2").tobytes() if dtype == "F16" else data.view("<u4").__rshift__(16).astype("<u2").tobytes()
        halves.append((name, dtype, data.shape, raw))
    found = from_files(b"".join(map(bytes, encode(halves, {}))), files[CONFIG])
    for name, data in one.weights.items():
        exact, rounded = np.frombuffer(data, "<f4"), np.frombuffer(found.weights[name], "<f4")
        assert np.abs(rounded - exact).max() < 2.0**-7 * np.abs(exact).max() and not np.array_equal(exact, rounded)


WRONG_CONFIG = {
    "another method": ({"peft_type": "IA3"}, "peft_type is LORA"),
    "DoRA": ({"use_dora": True}, "use_dora is false"),
    "biases": ({"bias": "all"}, "bias is"),
    "whole modules": ({"modules_to_save": ["lm_head"]}, "modules_to_save is null"),
    "no alpha": ({"lora_alpha": None}, "lora_alpha"),
    "alpha of text": ({"alpha_pattern": {"c_attn": "much"}}, "alpha_pattern"),
    "alpha 0": ({"lora_alpha": 0}, "numbers above 0"),
}


@pytest.mark.parametrize("what", WRONG_CONFIG)
def test_a_config_for_more_than_lora_is_refused(what):
    changes, message = WRONG_CONFIG[what]
    files = to_files(adapter(("attn.q",)))
    config = json.dumps(json.loads(files[CONFIG]) | changes).encode()
    with pytest.raises(FormatError, match=message):
        from_files(without_metadata(files), config)


def changed(files, name, change):
    """The weights file with one tensor replaced by change(array), or left out where that is None; metadata kept."""
    parsed, found = SafeTensors(files[WEIGHTS]), []
    for each, data in arrays(files).items():
        data = change(data.copy()) if name in each else data
        if data is not None:
            found.append((each, "F32", data.shape, np.ascontiguousarray(data).tobytes()))
    return b"".join(map(bytes, encode(found, {ABOUT: parsed.metadata[ABOUT]})))


def test_files_that_do_not_hold_together_are_refused():
    files = to_files(adapter(("attn.q", "attn.v")))
    cases = [
        (changed(files, "h.1.attn.c_attn.lora_A", lambda data: None), "h.1 attn.qkv do not fit"),
        (changed(files, "h.1.attn.c_attn.lora_B", lambda data: data[:, :5]), "h.1 attn.qkv do not fit"),
        (changed(files, "h.1", lambda data: None), "h.1 attn.qkv is as its metadata says"),
        (changed(files, "h.0.attn.c_attn.lora_B", lambda data: data + 1), "h.0 attn.qkv is as its metadata says"),
    ]
    for data, message in cases:
        with pytest.raises(FormatError, match=message):
            from_files(data)
    with pytest.raises(FormatError, match="comes with its adapter_config.json"):
        from_files(without_metadata(files))
    with pytest.raises(FormatError, match="GPT-2's"):
        from_files(b"".join(map(bytes, encode([("base_model.model.lm_head.lora_A.weight", "F32", (1, 1), struct.pack("<f", 1))], {}))))
    with pytest.raises(FormatError, match="it is empty"):
        from_files(b"".join(map(bytes, encode([], {}))))


@pytest.mark.native_only(reason="writes files")
def test_folders_and_single_files(tmp_path):
    one = adapter(("attn.q", "attn.v"))
    assert one.save(tmp_path / "deep" / "folder") == sum(path.stat().st_size for path in (tmp_path / "deep" / "folder").iterdir())
    assert Adapter.load(tmp_path / "deep" / "folder") == one == Adapter.load(tmp_path / "deep" / "folder" / WEIGHTS)
    (tmp_path / "peft").mkdir()
    for name in (CONFIG, WEIGHTS):
        (tmp_path / "peft" / name).write_bytes(GOLDEN[f"all/file/{name}"].tobytes())
    assert load(tmp_path / "peft").name == "peft"
    with pytest.raises(DataError, match="folder with adapter_model.safetensors"):
        load(tmp_path)
