"""Libraries that judge ours (torch, transformers, peft, gguf): tools/requirements-peers.txt, which `./build.sh test` installs."""

from __future__ import annotations

import importlib
import os
import sys

import pytest


def peer(name: str):
    """The module `name`; a test module that asks for one that is not there is skipped, and fails where the lock is installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if os.environ.get("PTL_PEERS_REQUIRED") and sys.platform != "emscripten":
            raise
        pytest.skip(f"needs {name}, which is not installed ({error})", allow_module_level=True)
