"""Adapters in PEFT's folder format, both ways: adapter_config.json and adapter_model.safetensors, for GPT-2's modules.

lora_A.weight is [rank, in] and lora_B.weight [out, rank]: down and up transposed. GPT-2 has q, k and v in one module, c_attn, so
adapters of n of them become one of rank n·r: A stacks their downs, and in B each has its own columns and its own third of the rows,
the rest zero; alpha grows so that alpha/rank (or alpha/sqrt(rank)) stays. A file from elsewhere that has this structure is taken
apart again, any other c_attn is one adapter of attn.qkv. What PEFT does not keep stands in the tensors' metadata.
"""

from __future__ import annotations

import json
import math
import os
import re
import struct
from array import array
from pathlib import Path
from typing import Any, NoReturn

from ..errors import ConfigError, DataError, FormatError, StoreError
from ..model.config import GPTConfig
from ..model.lora import Adapter, LoRAConfig, Site, sites
from .safetensors import SafeTensors, encode
from .strict_json import Refused, parse, quote

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
ABOUT = "posttrainllm.adapter"
MODULES = {"attn.qkv": "attn.c_attn", "attn.proj": "attn.c_proj", "mlp.fc": "mlp.c_fc", "mlp.proj": "mlp.c_proj"}
_NAMES = {theirs: ours for ours, theirs in MODULES.items()}
_TENSOR = re.compile(r"base_model\.model\.(?:transformer\.)?h\.(\d{1,3})\.(\w+\.\w+)\.lora_([AB])(?:\.default)?\.weight")
_THIRDS = ("attn.q", "attn.k", "attn.v")
_WITHOUT = {"bias": "none", "use_dora": False, "modules_to_save": None, "lora_bias": False, "layer_replication": None}


def to_files(adapter: Adapter) -> dict[str, bytes]:
    """The two files by name. Any PEFT loads them onto GPT-2 of the base's weights and gives the same logits."""
    lora, tensors, parts = adapter.config, [], {}
    grouped: dict[str, list[Site]] = {}
    for site in sites(adapter.sizes, lora):
        grouped.setdefault(site.linear, []).append(site)
    for linear, group in grouped.items():
        _, layer, ours = linear.split(".", 2)
        rank, outputs = lora.rank * len(group), group[0].outputs
        stacked, spread = array("f"), array("f", bytes(4 * outputs * rank))
        for number, site in enumerate(group):
            down, up = _floats(adapter.weights[site.down()]), _floats(adapter.weights[site.up()])
            for k in range(lora.rank):
                stacked += down[k :: lora.rank]
                at = site.first * rank + number * lora.rank + k
                spread[at : at + site.columns * rank : rank] = up[k * site.columns : (k + 1) * site.columns]
        place = f"base_model.model.transformer.h.{layer}.{MODULES[ours]}"
        tensors += [
            (f"{place}.lora_A.weight", "F32", (rank, group[0].inputs), stacked.tobytes()),
            (f"{place}.lora_B.weight", "F32", (outputs, rank), spread.tobytes()),
        ]
        parts[MODULES[ours]] = len(group)
    about = {"name": adapter.name, "lora": lora.to_dict(), "model": adapter.model, "base_sha256": adapter.base_sha256}
    data = b"".join(map(bytes, encode(tensors, {ABOUT: json.dumps(about)})))
    return {CONFIG: json.dumps(_peft_config(lora, parts), indent=2).encode() + b"\n", WEIGHTS: data}


def _peft_config(lora: LoRAConfig, parts: dict[str, int]) -> dict:
    def alpha(count: int) -> float:
        value = lora.alpha * (math.sqrt(count) if lora.rslora else count)
        return int(value) if float(value).is_integer() else value

    common = next(iter(parts.values())) if len(set(parts.values())) == 1 else 1
    own = {module: count for module, count in parts.items() if count != common}
    return {
        "alpha_pattern": {module: alpha(count) for module, count in own.items()},
        "base_model_name_or_path": None,
        "bias": "none",
        "fan_in_fan_out": True,
        "inference_mode": True,
        "init_lora_weights": True,
        "lora_alpha": alpha(common),
        "lora_dropout": 0.0,
        "modules_to_save": None,
        "peft_type": "LORA",
        "r": lora.rank * common,
        "rank_pattern": {module: lora.rank * count for module, count in own.items()},
        "target_modules": sorted(parts),
        "task_type": "CAUSAL_LM",
        "use_dora": False,
        "use_rslora": lora.rslora,
    }


def from_files(weights: Any, config: Any = None, name: str = "adapter", layers: int | None = None) -> Adapter:
    """An adapter from the bytes (or Uint8Arrays, or sources) of adapter_model.safetensors and adapter_config.json.

    A file that this program saved needs no config. layers is the model's number, where an adapter from elsewhere leaves the last
    ones alone. Raises FormatError: what it is not sound in, or has that a GPT here cannot do (DoRA, biases, other modules).
    """
    parsed = SafeTensors(weights, WEIGHTS)
    found: dict[tuple[int, str], dict[str, tuple[tuple[int, ...], array]]] = {}
    for key, tensor in parsed.tensors.items():
        match = _TENSOR.fullmatch(key)
        if match is None or match[2] not in _NAMES or len(tensor.shape) != 2:
            _refuse(WEIGHTS, f"its tensors are lora_A and lora_B of GPT-2's {', '.join(_NAMES)}", f"{quote(key)} came")
        found.setdefault((int(match[1]), _NAMES[match[2]]), {})[match[3]] = tensor.shape, _as_floats(tensor, key)
    if not found:
        _refuse(WEIGHTS, "it holds an adapter", "it is empty")
    for (layer, module), pair in found.items():
        if pair.keys() != {"A", "B"} or pair["A"][0][0] != pair["B"][0][1]:
            _refuse(WEIGHTS, "each module has lora_A [rank, in] and lora_B [out, rank]", f"those of h.{layer} {module} do not fit")
    if ABOUT in parsed.metadata:
        return _own(parsed.metadata[ABOUT], found)
    if config is None:
        _refuse(CONFIG, "an adapter that another program saved comes with its adapter_config.json", "it did not")
    return _foreign(found, _settings(config), name, layers)


def _own(text: str, found: dict) -> Adapter:
    try:
        about = parse(text.encode("utf-8", "surrogatepass"), 8, f"its metadata {ABOUT}")
        lora, sizes = LoRAConfig.from_dict(about["lora"]), {key: about["model"][key] for key in ("layers", "channels")}
        sizes |= {"hidden": about["model"]["hidden"]} if "hidden" in about["model"] else {}
        model = GPTConfig(**sizes, heads=1, context=1)
        name, base = str(about["name"]), str(about["base_sha256"])
    except (Refused, ConfigError, KeyError, TypeError) as error:
        _refuse(WEIGHTS, f"its metadata {ABOUT} describes the adapter", str(error) or type(error).__name__)
    targets: dict[str, list[str]] = {}
    for target in lora.targets:
        targets.setdefault("attn.qkv" if target in _THIRDS else target, []).append(target)
    weights = {}
    for layer in range(model.layers):
        for module, own in targets.items():
            pair = found.get((layer, module))
            cut = pair and _cut(pair, own, lora.rank)
            if not cut:
                _refuse(WEIGHTS, f"h.{layer} {module} is as its metadata says", "it is missing or another")
            weights |= {f"blocks.{layer}.{target}.{which}": data for (target, which), data in cut.items()}
    return Adapter(name, lora, sizes, base, {site: data.tobytes() for site, data in weights.items()})


def _cut(pair: dict, targets: list[str], rank: int) -> dict[tuple[str, str], array] | None:
    """down [in, rank] and up [rank, columns] of each target, out of one module's A and B; None where B is not of that structure."""
    (whole, inputs), a = pair["A"]
    (outputs, _), b = pair["B"]
    if whole != rank * len(targets) or (targets[0] in _THIRDS and outputs % 3):
        return None
    found = {}
    for number, target in enumerate(targets):
        columns = outputs // 3 if target in _THIRDS else outputs
        first = _THIRDS.index(target) * columns if target in _THIRDS else 0
        down, up = array("f", bytes(4 * inputs * rank)), array("f")
        for k in range(rank):
            row = number * rank + k
            down[k::rank] = a[row * inputs : (row + 1) * inputs]
            if any(b[row : first * whole : whole]) or any(b[(first + columns) * whole + row :: whole]):
                return None
            up += b[first * whole + row : (first + columns) * whole : whole]
        found[target, "lora_down"], found[target, "lora_up"] = down, up
    return found


def _foreign(found: dict, settings: dict, name: str, layers: int | None) -> Adapter:
    """Sizes from the shapes; one rank and one scaling for all: smaller ranks are filled up with zeros, scalings go into up."""
    attention = {key: pair for key, pair in found.items() if key[1] == "attn.qkv"}
    parts = _thirds_of(attention.values()) if attention else []
    cuts, scalings = {}, {}
    for (layer, module), pair in found.items():
        own = (parts or ["attn.qkv"]) if module == "attn.qkv" else [module]
        rank = pair["A"][0][0]
        cuts[layer, module] = rank // len(own), _cut(pair, own, rank // len(own))
        scalings[layer, module] = _scaling(settings, f"transformer.h.{layer}.{MODULES[module]}", rank)
    rank, scaling, rslora = max(each for each, _ in cuts.values()), next(iter(scalings.values())), settings["use_rslora"]
    targets = tuple(dict.fromkeys(target for _, cut in cuts.values() for target, _ in cut))
    alpha = scaling * (math.sqrt(rank) if rslora else rank)
    widths = {module: (pair["A"][0][1], pair["B"][0][0]) for (_, module), pair in found.items()}
    module, (inputs, outputs) = next(iter(widths.items()))
    sizes = {"layers": layers or 1 + max(layer for layer, _ in found), "channels": outputs if module == "mlp.proj" else inputs}
    hidden = widths["mlp.fc"][1] if "mlp.fc" in widths else widths.get("mlp.proj", (0, 0))[0]
    if hidden and hidden != 4 * sizes["channels"]:
        sizes["hidden"] = hidden
    try:
        lora = LoRAConfig(rank, int(alpha) if float(alpha).is_integer() else alpha, targets, rslora)
        expected = list(sites(GPTConfig(**sizes, heads=1, context=1), lora))
    except ConfigError as error:
        _refuse(WEIGHTS, "its sizes are a GPT's", str(error))
    weights = {}
    for site in expected:
        weights[site.down()], weights[site.up()] = bytes(4 * site.inputs * rank), bytes(4 * rank * site.columns)
    for (layer, module), (own, cut) in cuts.items():
        factor = scalings[layer, module] / scaling
        for (target, which), data in cut.items():
            if which == "lora_up":
                data = data if abs(factor - 1) < 1e-12 else array("f", [factor * value for value in data])
                data = data.tobytes().ljust(len(data) * 4 // own * rank, b"\0")
            else:
                wide = array("f", bytes(len(data) * 4 // own * rank))
                for k in range(own):
                    wide[k::rank] = data[k::own]
                data = wide.tobytes()
            weights[f"blocks.{layer}.{target}.{which}"] = data
    return Adapter(name, lora, sizes, "", weights)


def _thirds_of(pairs: Any) -> list[str]:
    """Which of q, k and v the adapters of c_attn are apart in, in every layer; none where they are mixed, or zero."""
    pairs = list(pairs)
    ranks = {pair["A"][0][0] for pair in pairs}
    for mask in (1, 2, 4, 3, 5, 6, 7):
        chosen = [third for bit, third in enumerate(_THIRDS) if mask >> bit & 1]
        if len(ranks) > 1 or next(iter(ranks)) % len(chosen):
            continue
        cuts = [_cut(pair, chosen, next(iter(ranks)) // len(chosen)) for pair in pairs]
        if all(cuts) and all(any(any(cut[third, "lora_up"]) for cut in cuts) for third in chosen):
            return chosen
    return []


def _settings(config: Any) -> dict:
    """adapter_config.json, with what is left out filled in, or FormatError where it asks for more than LoRA."""
    try:
        data = config.to_bytes() if hasattr(config, "to_bytes") else bytes(config)
        settings = parse(data, 32, CONFIG)
    except Refused as error:
        _refuse(CONFIG, error.rule, error.came)
    if not isinstance(settings, dict) or settings.get("peft_type") != "LORA":
        _refuse(CONFIG, "its peft_type is LORA", f"{quote(settings.get('peft_type') if isinstance(settings, dict) else settings)} came")
    for key, plain in _WITHOUT.items():
        if settings.get(key) not in (plain, None, False, [], {}):
            _refuse(CONFIG, f"{key} is {json.dumps(plain)}", f"{quote(settings[key])} came", "choose an adapter of plain LoRA")
    alpha, patterns = settings.get("lora_alpha"), settings.get("alpha_pattern") or {}
    numbers = [alpha, *(patterns.values() if isinstance(patterns, dict) else [None])]
    if not all(type(number) in (int, float) and 0 < number < 1e6 for number in numbers):
        _refuse(CONFIG, "lora_alpha and alpha_pattern hold numbers above 0", f"{quote(numbers)} came")
    return {"lora_alpha": alpha, "alpha_pattern": patterns, "use_rslora": bool(settings.get("use_rslora"))}


def _scaling(settings: dict, module: str, rank: int) -> float:
    """PEFT's own rule: the pattern that is the module's name or its end, else lora_alpha."""
    matching = (value for key, value in settings["alpha_pattern"].items() if module == key or module.endswith(f".{key}"))
    return next(matching, settings["lora_alpha"]) / (math.sqrt(rank) if settings["use_rslora"] else rank)


def _floats(data: bytes) -> array:
    return array("f", data)


def _as_floats(tensor: Any, name: str) -> array:
    data = bytes(tensor.view())
    if tensor.dtype == "F32":
        return array("f", data)
    if tensor.dtype == "F16":
        return array("f", struct.unpack(f"<{len(data) // 2}e", data))
    if tensor.dtype == "BF16":
        wide = bytearray(2 * len(data))
        wide[2::4], wide[3::4] = data[::2], data[1::2]
        return array("f", bytes(wide))
    _refuse(WEIGHTS, "its tensors are F32, F16 or BF16", f"{quote(name)} is {tensor.dtype}", "convert it")


def save(adapter: Adapter, folder: str | Path) -> int:
    """Write the two files into a folder, made where there is none; each appears whole or not at all. Returns their bytes."""
    folder, files = Path(folder), to_files(adapter)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            part = folder / f".{name}.{os.getpid()}.part"
            part.write_bytes(data)
            part.replace(folder / name)
    except OSError as error:
        raise StoreError(f"writing {folder}", "the folder can be written", error.strerror or str(error), "choose another place") from error
    return sum(map(len, files.values()))


def load(path: str | Path, layers: int | None = None) -> Adapter:
    """The adapter in a folder, or in one .safetensors file (and the adapter_config.json beside it). Raises DataError, FormatError."""
    path = Path(path)
    weights = path / WEIGHTS if path.is_dir() else path
    config = weights.with_name(CONFIG)
    try:
        beside = config.read_bytes() if config.is_file() else None
        data = weights.read_bytes()
    except OSError as error:
        raise DataError(f"adapter {path}", f"it is a folder with {WEIGHTS}", error.strerror or str(error), "check the path") from error
    return from_files(data, beside, path.name if path.is_dir() else path.stem, layers)


def _refuse(place: str, rule: str, came: str, remedy: str = "save the adapter again") -> NoReturn:
    raise FormatError(place, rule, came, remedy, code="E-FORMAT-TENSOR")
