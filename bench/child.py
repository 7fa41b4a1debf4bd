"""Contestants in processes of their own, so that their thread pools and settings do not touch each other."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import traceback


class Child:
    """Calls methods of `module.name(preset, threads)` in another process: child.call("run", 3)."""

    def __init__(self, module: str, name: str, preset: str, threads: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, module, name, preset, threads), daemon=True)
        self._process.start()
        self._answer()

    def call(self, method: str, *arguments):
        """The method's result; RuntimeError with the other side's traceback where it fails."""
        self._pipe.send((method, arguments))
        return self._answer()

    def _answer(self):
        right, value = self._pipe.recv()
        if not right:
            raise RuntimeError(value)
        return value

    def close(self) -> None:
        """End the process."""
        self._pipe.send(None)
        self._process.join(10)
        self._process.kill()


def _serve(pipe, module: str, name: str, preset: str, threads: int) -> None:
    os.environ["OMP_NUM_THREADS"] = str(threads)
    try:
        made = getattr(importlib.import_module(module), name)(preset, threads)
        pipe.send((True, None))
        while (asked := pipe.recv()) is not None:
            pipe.send((True, getattr(made, asked[0])(*asked[1])))
    except Exception:  # noqa: BLE001 - told to the parent, which raises it
        pipe.send((False, traceback.format_exc()))
