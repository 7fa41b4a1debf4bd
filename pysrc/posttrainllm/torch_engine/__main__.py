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
        app(["train", "--engine", "torch", *sys.argv[1:]], prog_name="posttrainllm")


main()
