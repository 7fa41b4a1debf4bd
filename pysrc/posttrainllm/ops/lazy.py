"""NumPy, imported at first use: the page's training path records and replays tapes without it."""

from __future__ import annotations

import importlib


class _Lazy:
    def __getattr__(self, name: str):
        return getattr(importlib.import_module("numpy"), name)


np = _Lazy()
