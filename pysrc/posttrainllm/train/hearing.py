"""An evaluation that hears a stop between its batches: a large model's takes minutes on a processor, and nobody waits that long."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator


class CutShort(Exception):
    """A stop was asked for while an evaluation went on: it tells nothing, and nothing of it is recorded."""


def hearing(batches: Iterable, heard: Callable[[], str] | None) -> Iterator:
    """The same batches; before each, CutShort where heard() gives "stop". None hears nothing."""
    for batch in batches:
        if heard is not None and heard() == "stop":
            raise CutShort
        yield batch
