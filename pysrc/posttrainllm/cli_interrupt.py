"""Being asked to stop: by a signal, or by a reader of standard output who leaves. What was trained is still saved."""

from __future__ import annotations

import signal
import threading
from typing import Self

from .cli_output import quiet_stdout

BROKEN_PIPE = 13


class Interrupt:
    """While it is entered, SIGINT and SIGTERM ask the run to stop after its step; a second one ends it at once."""

    def __init__(self) -> None:
        self.number = 0
        self._before: dict = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _handle(self, number: int, frame: object) -> None:
        if self.number:
            raise KeyboardInterrupt
        self.number = number

    def asked(self) -> str:
        """ "stop" once a signal came."""
        return "stop" if self.number else ""


def until_broken(interrupt: Interrupt):
    """Calls of output methods; when nobody reads any more, the run is asked to stop, so that it is still saved."""

    def show(method, event) -> None:
        if interrupt.number == BROKEN_PIPE:
            return
        try:
            method(event)
        except BrokenPipeError:
            quiet_stdout()
            interrupt.number = BROKEN_PIPE

    return show
