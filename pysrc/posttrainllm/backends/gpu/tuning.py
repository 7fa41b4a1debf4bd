"""Before the first step on a device: take the tiles that were measured on it, and measure what is not known yet."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace

from ...compile.tape import Tape
from ...errors import DeviceError, DeviceLostError
from .probe import probe
from .tile_cache import read_cache, write_cache

LOG = logging.getLogger("posttrainllm.gpu")


async def tune(machine, tapes: Iterable[Tape]) -> None:
    """Give the machine's options the fastest tiles for these tapes; what is loaded after this uses them."""
    known = read_cache(machine.description)
    try:
        found = await probe(machine, tapes, known)
    except DeviceLostError:
        raise
    except DeviceError as error:  # what is still wrong with the device comes up again at the first load
        LOG.warning("tiles were not measured: %s", error)
        found = known
    machine.options = replace(machine.options, tiles=found)
    if not machine.software:
        machine.release()  # what was measured had its own needs
    if found != known:
        write_cache(machine.description, found)
