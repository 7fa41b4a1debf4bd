"""What the probe measured, kept between runs: a JSON file of this user, by adapter. In a page the host keeps the same object."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from pathlib import Path

from . import attention_tiles as attention
from . import shader
from .subjects import HALF, PLAIN, TENSOR
from .tiles import of_choice

LOG = logging.getLogger("posttrainllm.gpu")
TIMED = ("matmul", "linear", "attention")
"""How the names of the shaders begin whose tiles are measured."""


def version() -> str:
    """Changes with the kernels: what was measured of others says nothing."""
    texts = [
        file.read_text(encoding="utf-8")
        for file in sorted(shader.folder().glob("*.wgsl"))
        if file.stem.startswith(TIMED)
    ]
    tried = repr((PLAIN, HALF, TENSOR, attention.CANDIDATES, attention.TENSOR_CANDIDATES))
    return hashlib.sha256("".join([*texts, tried]).encode()).hexdigest()[:12]


def cache_file() -> Path:
    """Where a computer keeps what was measured on its GPUs."""
    folder = os.environ.get("POSTTRAINLLM_CACHE") or Path(
        os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "posttrainllm"
    )
    return Path(folder, "gpu-tiles.json")


def read_cache(adapter: str, file: Path | None = None) -> dict:
    """What is known of an adapter; {} where nothing is, or what lies there cannot be read."""
    try:
        kept = json.loads((file or cache_file()).read_text(encoding="utf-8"))
        found = kept[adapter]["tiles"] if kept[adapter]["version"] == version() else {}
        for key, choice in found.items():
            if choice is not None:
                (attention.of_choice if key.startswith("attention") else of_choice)(choice)
        return found
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def write_cache(adapter: str, found: dict, file: Path | None = None) -> None:
    """Keep what is known of an adapter. A folder that cannot be written is no error: the next start measures again."""
    file = file or cache_file()
    try:
        kept = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    except (OSError, ValueError):
        kept = {}
    kept[adapter] = {"version": version(), "tiles": found}
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        fresh = file.with_suffix(f".{os.getpid()}")
        fresh.write_text(json.dumps(kept, indent=1), encoding="utf-8")
        fresh.replace(file)
    except OSError as error:
        LOG.info("the tiles found are not kept: %s", error)
