"""The engine panel: what computes and why, how fast and with how much memory; and the choice of another engine, also in mid-run."""

import fmt
import notices
import sizes
import state
import status_line
import wire
from dom import el, empty, make, on, show, text

CHOICES = {"cpu": ("cpu", "f32", "CPU"), "gpu": ("webgpu", "f32", "GPU"), "half": ("webgpu", "f16", "GPU in half precision")}
FEATURES = [("shader-f16", "half precision"), ("subgroups", "subgroups"), ("chromium-experimental-subgroup-matrix", "tensor cores"),
            ("timestamp-query", "timestamps")]
PRECISIONS = {"f32": "full (f32)", "f16": "half (f16), sums in full"}

_engines = []  # as the worker told last: the one in use first
_wanted = None  # the choice that is being switched to
_features = None  # of the GPU, once they are known
_compiling = False


def _chosen():
    return _engines[0] if _engines else {}


def _offer(name):
    for engine in _engines:
        if engine.get("name") == name:
            return engine
    return {}


def _here():
    """The choice in use."""
    engine = _chosen()
    if engine.get("name") != "webgpu":
        return "cpu"
    return "half" if engine.get("precision") == "f16" else "gpu"


def _hindrance(which):
    """Why a choice cannot be made, or None."""
    if which == "cpu":
        return None
    offer = _offer("webgpu")
    if not (offer.get("chosen") or offer.get("available")):
        return offer.get("why") or "The trainer offers no GPU."
    if which == "half" and _features is None:
        return "Known once the GPU is in use."
    if which == "half" and "shader-f16" not in _features:
        return "This GPU has no half precision."
    return None


def _note(which):
    hindrance = _hindrance(which)
    if hindrance:
        return hindrance
    if which == "half":
        return "Numbers in 16 bits where that is enough: quicker on most GPUs, and less memory."
    offer = _offer(CHOICES[which][0])
    if offer.get("chosen"):
        return offer.get("description") or ""
    description, why = offer.get("description") or "", offer.get("why") or ""
    return ". ".join([words for words in ("" if description in why else description, why) if words])


def _draw():
    known = bool(_engines)
    show("engine-choices", known)
    show("engine-figures", known)
    if not known:
        return
    here = _here()
    for which in CHOICES:
        button = el("engine-" + which)
        word = "Switching…" if which == _wanted else "In use" if which == here else "Use"
        if str(button.textContent) != word:
            text(button, word)
        button.setAttribute("aria-label", word + ": " + CHOICES[which][2])
        # Not `disabled`: the keyboard must reach it, or nobody who listens hears why.
        button.setAttribute("aria-disabled", "true" if _wanted or which == here or _hindrance(which) else "false")
        button.parentElement.className = "chosen" if which == here else ""
        text("engine-" + which + "-note", _note(which))
    engine = _chosen()
    text("engine-precision", PRECISIONS.get(engine.get("precision") or "f32", engine.get("precision")))
    has = [words for name, words in FEATURES if name in (engine.get("features") or [])]
    show("engine-features-row", bool(has))
    text("engine-features", ", ".join(has))


def use_engines(engines):
    """The engines as the worker tells them; the one in use becomes the page's headline."""
    global _engines, _features
    _engines = sorted(engines, key=lambda engine: 0 if engine.get("chosen") else 1)
    gpu = _offer("webgpu")
    if gpu.get("features") is not None:
        _features = gpu["features"]
    chosen = _chosen()
    name = str(chosen.get("description") or chosen.get("name") or "CPU")
    why = chosen.get("why") or ""
    for engine in engines:  # what is said beside a choice is not said twice
        if not engine.get("chosen") and engine.get("why"):
            why = why.replace(engine["why"], "").strip()
    text("engine-name", name + (", half precision" if chosen.get("precision") == "f16" else ""))
    text("engine-why", "Runs on: " + name + ". " + why)
    _draw()


def _ready(event):
    _settled()
    _memory(None)
    use_engines(event.get("engines") or [])


# ---- switching -----------------------------------------------------------------------------------------------------------------


def _use(which):
    global _wanted
    if not state.ready or el("engine-" + which).getAttribute("aria-disabled") == "true":
        return
    notices.clear("engine")
    _wanted = which
    name, precision, label = CHOICES[which]
    text("engine-name", "Switching to the " + label + "…")
    notices.announce("Switching to the " + label + "…")
    if state.phase == "running":
        status_line.meanwhile("Moving the run to the " + label + "…")
    _draw()
    wire.send("engine.use", {"name": name, "precision": precision}, "engine", answered=_answered)


def _answered(event):
    global _wanted
    _wanted = None
    _settled()
    if event["kind"] == "failed":
        if not el("engine").open:  # asked for in the panel, and closed since: said where it is seen
            notices.clear("engine")
            notices.error("page", event.get("message") or "The engine could not be changed.")
        use_engines(_engines)
    _draw()


def _engine(event):
    """Another engine is in use: asked for, or after a fault."""
    _settled()
    engines = event.get("engines") or [event.get("engine") or {}]
    use_engines(engines)
    _memory(event.get("memory"))
    text("engine-speed", fmt.DASH)
    text("engine-flops", fmt.DASH)
    if event.get("reply_to"):
        notices.announce("Now computing on the " + CHOICES[_here()][2] + ".")
    if not state.busy():
        sizes.request()  # what fits, and how long it takes, is another matter now


def _preparing(event):
    """A GPU's programs are compiled before the first step on it."""
    global _compiling
    done, total = event.get("done") or 0, event.get("total") or 1
    if not _compiling:
        _compiling = True
        notices.announce("Compiling for your GPU.")
        el("boot-bar").setAttribute("aria-label", "Compiling for your GPU")
        show("boot-bar", True)
    el("boot-bar").value = max(0.02, min(1, done / total))
    status_line.meanwhile("Compiling for your GPU: " + fmt.count(done) + " of " + fmt.count(total))


def _settled():
    """Nothing is being compiled or moved any more."""
    global _compiling
    if _compiling:
        _compiling = False
        el("boot-bar").setAttribute("aria-label", "Loading")
        show("boot-bar", False)
    status_line.as_before()


def _settled_perhaps(event):
    if not _wanted:  # else these belong to the steps before the switch
        _settled()


# ---- figures -------------------------------------------------------------------------------------------------------------------


def _memory(memory):
    """Bytes by kind, as figures and as one bar of shares."""
    show("engine-memory-box", bool(memory))
    if not memory:
        return
    total = max(memory.get("total_bytes") or 0, 1)
    empty("engine-memory")
    empty("engine-shares")
    for key, name in sizes.MEMORY:
        if memory.get(key) is None:
            continue
        row = make("div", cls=key)
        row.appendChild(make("dt", name))
        row.appendChild(make("dd", fmt.size(memory[key])))
        el("engine-memory").appendChild(row)
        if key != "total_bytes" and memory[key]:
            share = make("span", cls=key)
            share.style.flexGrow = str(memory[key] / total)
            el("engine-shares").appendChild(share)


def _started(event):
    engine = event.get("engine")
    if isinstance(engine, dict) and engine.get("name"):
        others = [each for each in _engines if each.get("name") != engine["name"]]
        for each in others:
            if each.get("chosen"):
                each.update({"chosen": False, "available": True, "why": ""})
        use_engines([engine] + others)
    _memory(event.get("memory"))


def _stepped(event):
    text("engine-speed", fmt.count(event.get("tokens_per_second")))
    text("engine-flops", fmt.rate(event.get("flops_per_second")))


def _changed():
    """Without a model there is no memory to speak of."""
    if not state.model and not state.busy():
        show("engine-memory-box", False)


def lost():
    """The worker is gone, and its engines with it."""
    global _engines, _wanted
    _engines, _wanted = [], None
    _settled()
    _memory(None)
    _draw()


def start():
    for which in CHOICES:
        on("engine-" + which, "click", lambda event, which=which: _use(which))
    # `failed` among them: what was asked for came to nothing, and so did its compiling.
    for kind in ("started", "step", "opened", "stopped", "failed", "adapters", "tune.started", "tune.step"):
        wire.on(kind, _settled_perhaps)
    for kind, handler in (("ready", _ready), ("engine", _engine), ("preparing", _preparing), ("started", _started), ("step", _stepped)):
        wire.on(kind, handler)
    for kind, handler in (("tune.started", _started), ("tune.step", _stepped), ("opened", lambda event: _memory(event.get("memory")))):
        wire.on(kind, handler)
    state.watch(_changed)
