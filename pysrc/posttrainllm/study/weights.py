"""A model's weights as arrays, and tapes of study's own, on any engine."""

from __future__ import annotations

from ..ops.lazy import np


async def load_all(machine, tapes: list) -> list:
    """Tapes as an engine loads them, in single precision: also on a GPU whose own tapes store halves. The weights are the same, in single
    precision there as everywhere; what halves would have rounded off activations is not seen."""
    how = {"precision": "f32"} if getattr(machine, "precision", "f32") != "f32" else {}
    if hasattr(machine, "load_all_async"):
        return await machine.load_all_async(tapes, **how)
    return [machine.load(tape, **how) for tape in tapes]


async def fetched(machine, place: int, nbytes: int, shape: tuple[int, ...]):
    """What stands at a tape address, as float32 (float64 on the reference engine)."""
    if hasattr(machine, "download_f64"):
        return machine.download_f64(place, nbytes).reshape(shape)
    data = await machine.download_async(place, nbytes) if hasattr(machine, "download_async") else machine.download(place, nbytes)
    return np.frombuffer(data, "<f4").reshape(shape)


async def weight_async(model, name: str):
    """A weight in its own shape, float64."""
    shape = next(each.shape for each in model.program.layout.parameters if each.name == name)
    return (await fetched(model.machine, *model.weight_address(name), shape)).astype(np.float64)


async def projection_async(model, layer: int):
    """attn.proj's weight [C,C] of a block, float64, with what an adapter adds to it at its strength."""
    name = f"blocks.{layer}.attn.proj"
    weight = await weight_async(model, f"{name}.weight")
    if model.lora is not None and "attn.proj" in model.lora.targets:
        down, up = [await weight_async(model, f"{name}.lora_{part}") for part in ("down", "up")]
        weight = weight + model.lora.scaling * model.strength * down @ up
    return weight
