"""One text for engines that answer at once and for those that must be awaited (a GPU in a browser).

What may have to wait is written as a coroutine. Plain code calls it through `now`: on an engine that answers at once it ends at
its first step; in a browser that lets Python wait (JSPI) the rest is waited for; elsewhere it is an error that says so.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Coroutine, Iterator

from .errors import DeviceUnavailableError


class _Rest:
    """A coroutine that has begun, as something to await."""

    def __init__(self, coroutine: Coroutine, waited) -> None:
        self._coroutine, self._waited = coroutine, waited

    def __await__(self):
        waited = self._waited
        while True:
            try:
                try:
                    sent = yield waited
                except BaseException as error:  # noqa: BLE001 - handed to the coroutine, which is where it belongs
                    waited = self._coroutine.throw(error)
                else:
                    waited = self._coroutine.send(sent)
            except StopIteration as done:
                return done.value


def now(coroutine: Coroutine):
    """The result of a coroutine, from plain code. Raises DeviceUnavailableError where it must wait and cannot."""
    try:
        waited = coroutine.send(None)
    except StopIteration as done:
        return done.value
    if sys.platform == "emscripten":
        from pyodide.ffi import can_run_sync, run_sync

        if can_run_sync():

            async def rest():
                return await _Rest(coroutine, waited)

            return run_sync(rest())
    coroutine.close()
    raise DeviceUnavailableError(
        "webgpu", "plain Python code may wait here (JSPI in a browser)", "it may not", "await the method that ends in _async"
    )


def begun(coroutine: Coroutine):
    """A coroutine that runs to its first wait now; the rest is to be awaited. What it asks of a GPU is asked before anything else is."""
    try:
        return _Rest(coroutine, coroutine.send(None))
    except StopIteration as done:
        return _Answer(done.value)


class _Answer:
    """Something to await that is there."""

    def __init__(self, value) -> None:
        self._value = value

    def __await__(self):
        return self._value
        yield  # what makes it a generator


def each_now(items: AsyncIterator) -> Iterator:
    """An asynchronous generator, from plain code."""
    while True:
        try:
            yield now(anext(items))
        except StopAsyncIteration:
            return
