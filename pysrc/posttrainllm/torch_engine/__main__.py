"""`torchrun --nproc-per-node=N -m posttrainllm.torch_engine …`: `posttrainllm train --engine torch …` in each process."""

import contextlib
import os
import sys

from ..cli import app


def main() -> None:
    """Mistakes in the options are the same in every process: one says them."""
    with contextlib.ExitStack() as stack:
        if os.environ.get("RANK", "0") != "0" and "--help" in sys.argv:
            stack.enter_context(contextlib.redirect_stdout(stack.enter_context(open(os.devnull, "w"))))
        try:
            app(["train", "--engine", "torch", *sys.argv[1:]], prog_name="posttrainllm")
        except SystemExit as end:
            leave(end.code)


def leave(status) -> None:
    """End this process at once. Where its end waits for Python's, a thread of torch's that still runs then now and then aborts a process
    whose work is done ("terminate called without an active exception"), and torchrun ends all as failed.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(status if isinstance(status, int) else int(status is not None))


main()
