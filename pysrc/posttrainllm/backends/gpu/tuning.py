"""Before the first step on a device: take the tiles that were measured on it, and measure what is not known yet."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ...compile.tape import Tape
from .probe import probe
from .tile_cache import read_cache, write_cache


async def tune(machine, tapes: Iterable[Tape]) -> None:
    """Give the machine's options the fastest tiles for these tapes; what is loaded after this uses them."""
    known = read_cache(machine.description)
    found = await probe(machine, tapes, known)
    machine.options = replace(machine.options, tiles=found)
    if found != known:
        write_cache(machine.description, found)
