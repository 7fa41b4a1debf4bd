"""Debian packages: install what is missing, and ask apt which mirror it uses (no address is written in this repository)."""

from __future__ import annotations

import os
import shutil

from tools.shell import BuildError, output, run

WAIT = ["-o", "DPkg::Lock::Timeout=600", "-o", "Acquire::Retries=5", "-o", "Acquire::http::Timeout=20"]


def has_apt() -> bool:
    return shutil.which("apt-get") is not None and os.geteuid() == 0


def installed(package: str) -> bool:
    return output(["dpkg-query", "-W", "-f=${Status}", package]) == "install ok installed"


def need(*packages: str) -> bool:
    """Install those of `packages` that are missing; False when none was."""
    missing = [name for name in packages if not installed(name)]
    if not missing:
        return False
    if not has_apt():
        raise BuildError(f"Missing: {', '.join(missing)}. Install them, or run as root on Debian 12 or 13.")
    run(["apt-get", *WAIT, "update", "-q"], "apt", check=False)
    run(
        ["apt-get", *WAIT, "install", "-y", "-q", "--no-install-recommends", *missing],
        "apt",
        env={"DEBIAN_FRONTEND": "noninteractive"},
    )
    return True


def mirror() -> str:
    """The address of the Debian archive that apt is set up with, or BuildError."""
    fields = "$(REPO_URI)|$(COMPONENT)|$(LABEL)"
    query = ["apt-get", "indextargets", "--format", fields, "Created-By: Packages"]
    for attempt in range(2):
        for line in output(query).splitlines():
            address, component, label = (line.split("|") + ["", ""])[:3]
            if component == "main" and label == "Debian":
                return address
        if attempt == 0 and has_apt():
            run(["apt-get", *WAIT, "update", "-q"], "apt", check=False)
    raise BuildError("apt names no Debian archive with the component main.")
