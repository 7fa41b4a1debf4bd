"""Where things lie: the clone, and the cache folder outside it that a second clone may share."""

from __future__ import annotations

import os
import sys
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
DIST = REPO / "dist"
BUILD = REPO / "build"
PACKAGE = REPO / "pysrc" / "posttrainllm"


def cache() -> Path:
    """The cache folder: POSTTRAINLLM_CACHE, else XDG_CACHE_HOME/posttrainllm, else ~/.cache/posttrainllm."""
    chosen = os.environ.get("POSTTRAINLLM_CACHE")
    if chosen:
        return Path(chosen).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base).absolute() / "posttrainllm"


def venv() -> Path:
    """One virtual environment for each clone and Python version: the editable install points into one clone."""
    import hashlib

    clone = hashlib.sha256(str(REPO).encode()).hexdigest()[:8]
    return cache() / f"venv-{sys.version_info[0]}.{sys.version_info[1]}-{clone}"


def logs() -> Path:
    folder = cache() / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
