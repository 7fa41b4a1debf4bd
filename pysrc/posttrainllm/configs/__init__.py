"""Presets and default settings, as JSON beside this file; the page, the command line and the tests read the same ones."""

import json
from functools import lru_cache
from importlib import resources


@lru_cache
def _text(name: str) -> str:
    return (resources.files(__package__) / f"{name}.json").read_text("utf-8")


def load(name: str) -> dict:
    """A fresh copy of one settings file: "presets" or "training"."""
    return json.loads(_text(name))
