"""Bringing a model in: a saved run, or a GPT-2 as Hugging Face keeps it."""

from pyscript.js_modules import bridge

import fmt
import notices
import wire
from dom import el, on

LARGEST_RUN_MB = 2000


def names_of(files):
    return [str(files.item(i).name) for i in range(files.length)]


def is_model(names):
    """Whether files by these names are a Hugging Face folder, or the .zip of one, and not a run."""
    lower = [name.lower() for name in names]
    return "config.json" in lower or len(lower) == 1 and lower[0].endswith(".zip")


def file(chosen):
    """A run as one .safetensors file."""
    notices.clear("runs")
    megabytes = bridge.megabytes(chosen)
    if megabytes > LARGEST_RUN_MB:
        return notices.error("runs", "“" + str(chosen.name) + "” has " + fmt.size(megabytes * 1e6) + ": that is more than a tab can open.")
    notices.announce("Reading " + str(chosen.name) + "…")
    return wire.send("runs.import", {"name": chosen.name}, "runs", file=chosen, answered=_imported)


def model(files):
    """A GPT-2 in Hugging Face's files: those of its folder, or the folder as one .zip."""
    notices.clear("runs")
    names = names_of(files)
    notices.announce("Reading " + ", ".join(names) + "…")
    return wire.send("runs.import_files", {"names": names}, "runs", files=files, answered=_imported)


def _imported(event):
    if event["kind"] != "failed":
        notices.announce("The import is done.")


def _picked(event):
    files = el("runs-import").files
    if files.length == 1 and not is_model(names_of(files)):
        file(files.item(0))
    elif files.length:
        model(files)
    el("runs-import").value = ""  # so that choosing the same file again counts


def start():
    on("runs-import", "change", _picked)
