"""Write the hashed lock files from the .in files. For whoever changes a version; build.sh never runs this.

Needs `uv` on PATH (from PyPI). Every file of a release is listed, so one lock serves each Python and processor.
"""

from __future__ import annotations

import subprocess
import sys

from tools import paths

OPTIONS = [
    "--universal", "--generate-hashes", "--python-version", "3.11",
    "--no-header", "--no-annotate", "--system-certs",
]  # fmt: skip


def main() -> None:
    for name in ("requirements", "requirements-node", "requirements-bench"):
        command = ["uv", "pip", "compile", *OPTIONS, *sys.argv[1:], f"{name}.in", "-o", f"{name}.txt"]
        subprocess.run(command, cwd=paths.REPO / "tools", check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
