"""Bringing a model in: a saved run, or a GPT-2 as Hugging Face keeps it; and the way on for one that was not trained here."""

import notices
import state
import tabs
import wire
from dom import el, on, show


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


def train_on(run):
    """A new run that begins with the weights of a model without AdamW's moments, on the text and with the settings of the page."""
    import corpus
    import recipe
    import train

    notices.clear("runs")
    if state.busy():
        return notices.error("runs", "A run is going. Stop it first; it is saved when it stops.")
    problem = train.tuning() or corpus.missing()
    if not problem and corpus.waiting():
        problem = "The text is still being read. Try again in a moment."
    if problem:
        return notices.error("runs", problem)
    try:
        fields = {"base": run["run_id"], "training": recipe.training()}
    except ValueError as wrong:
        return notices.error("runs", str(wrong))
    tabs.go("train")
    notices.clear("train")
    show("resume-offer", False)
    return train.begin(fields)


def _picked(event):
    files = el("runs-import").files
    if files.length:
        bring(files)
    el("runs-import").value = ""  # so that choosing the same file again counts


def start():
    on("runs-import", "change", _picked)
