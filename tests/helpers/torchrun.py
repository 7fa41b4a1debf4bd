"""Starts of `torchrun -m MODULE` with two processes that talk by gloo over the loopback interface."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {}
"""Else gloo asks what the host's name stands for, which not every machine knows."""
RUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m"]


class Processes(subprocess.Popen):
    """torchrun and what it started, which end with the `with` block where that is left by an error: a hang must fail, not wait."""

    def __exit__(self, kind, error, traceback):
        if kind is not None:
            os.killpg(self.pid, signal.SIGKILL)
        return super().__exit__(kind, error, traceback)


def start(*arguments, module: str = "posttrainllm.torch_engine") -> Processes:
    """The processes, their output piped as text. One thread each: tests share few cores."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | LOOPBACK
    return Processes(
        [*RUN, module, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )
