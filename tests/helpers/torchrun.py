"""Starts of `torchrun -m MODULE` with two processes that talk by gloo over the loopback interface."""

from __future__ import annotations

import os
import subprocess
import sys

LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {}
"""Else gloo asks what the host's name stands for, which not every machine knows."""
RUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m"]


def start(*arguments, module: str = "posttrainllm.torch_engine") -> subprocess.Popen:
    """The processes, their output piped as text. One thread each: tests share few cores."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | LOOPBACK
    return subprocess.Popen(
        [*RUN, module, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
