"""Write the hashed lock files from the .in files. For whoever changes a version; build.sh never runs this.

Needs `uv` on PATH (from PyPI). Every file of a release is listed, so one lock serves each Python and processor.
"""

from __future__ import annotations

import re
import subprocess
import sys

from tools import paths

OPTIONS = [
    "--universal", "--generate-hashes", "--python-version", "3.11",
    "--no-header", "--no-annotate", "--system-certs",
]  # fmt: skip
TOOLS = paths.REPO / "tools"
# PyTorch's own builds without CUDA, which PyPI does not have but a machine's pip may be set up to find.
TORCH_CPU = """torch==2.13.0+cpu \\
    --hash=sha256:6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b
"""


def without_cuda(lock: str) -> str:
    """The peers' lock with the CPU build of PyTorch and without what only CUDA needs."""
    blocks = re.split(r"^(?=\S)", lock, flags=re.M)
    kept = [block for block in blocks if not re.match(r"nvidia-|cuda-|triton|torch==", block)]
    return "".join(kept) + TORCH_CPU


def main() -> None:
    for name in ("requirements", "requirements-node", "requirements-peers", "requirements-fuzz"):
        command = ["uv", "pip", "compile", *OPTIONS, *sys.argv[1:], f"{name}.in", "-o", f"{name}.txt"]
        subprocess.run(command, cwd=TOOLS, check=True, stdout=subprocess.DEVNULL)
    lock = (TOOLS / "requirements-peers.txt").read_text()
    (TOOLS / "requirements-peers-cpu.txt").write_text(without_cuda(lock))


if __name__ == "__main__":
    main()
