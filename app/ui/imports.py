"""Bringing a model in: a saved run, or a GPT-2 as Hugging Face keeps it."""

import notices
import wire
from dom import el, on


def names_of(files):
    return [str(files.item(i).name) for i in range(files.length)]


def meant(names, view):
    """Whether files by these names, dropped on a view, are to be imported under Runs: a run, or a Hugging Face folder."""
    lower = [name.lower() for name in names]
    if "config.json" in lower:
        return True
    return lower[0].endswith(".safetensors") and view != "tune" or lower[0].endswith(".zip") and view == "runs"


def bring(files):
    """One .safetensors run, or a GPT-2 in Hugging Face's files: those of its folder, or the folder as one .zip."""
    notices.clear("runs")
    names = names_of(files)
    notices.announce("Reading " + ", ".join(names) + "…")
    return wire.send("runs.import_files", {"names": names}, "runs", files=files, answered=_imported)


def _imported(event):
    if event["kind"] != "failed":
        notices.announce("The import is done.")


def _picked(event):
    files = el("runs-import").files
    if files.length:
        bring(files)
    el("runs-import").value = ""  # so that choosing the same file again counts


def start():
    on("runs-import", "change", _picked)
