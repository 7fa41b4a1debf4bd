"""What a page or a command may ask of a Session, checked. Each request is JSON: {"kind", "id", fields…}.

`REQUESTS` is the whole list: kind → the fields it takes, each with its type and whether it must come. Events are dicts too;
docs of each stand where it is made (training.py, writing.py, runs.py). Large binaries travel beside the JSON as `buffer`.
"""

from __future__ import annotations

from ..errors import ConfigError, PostTrainError, UserError

TEXT, WHOLE, NUMBER, OBJECT, LIST, BUFFER = "text", "a whole number", "a number", "an object", "a list", "a buffer"
FILES, FLAG = "a list of buffers", "true or false"
SAVING = 'an object or "auto"'

REQUESTS: dict[str, dict[str, str]] = {
    "corpus.bundled": {},
    "corpus.text": {"name": TEXT, "text": TEXT + "!"},
    "corpus.file": {"name": TEXT, "buffer": BUFFER + "!"},
    "tokens.use": {"name": TEXT + "!", "vocabulary": WHOLE},
    "tokens.load": {"name": TEXT, "buffer": BUFFER + "!"},
    "tokens.save": {"of": TEXT},
    "tokens.split": {"text": TEXT + "!", "of": TEXT},
    "tokens.merges": {"of": TEXT, "search": TEXT, "first": WHOLE},
    "plan": {"preset": TEXT, "config": OBJECT, "training": OBJECT, "saving": SAVING},
    "engine.use": {"name": TEXT + "!", "precision": TEXT},
    "train.start": {"preset": TEXT, "config": OBJECT, "training": OBJECT, "name": TEXT, "base": TEXT, "saving": SAVING},
    "train.pause": {},
    "train.resume": {},
    "train.stop": {},
    "train.extend": {"steps": WHOLE + "!"},
    "train.save": {},
    "write.start": {
        "prompt": TEXT + "!",
        "tokens": WHOLE,
        "temperature": NUMBER,
        "top_k": WHOLE,
        "top_p": NUMBER,
        "min_p": NUMBER,
        "repetition_penalty": NUMBER,
        "seed": WHOLE,
        "stop": LIST,
        "ask": FLAG,
        "choices": WHOLE,
        "constraint": OBJECT,
        "draft": TEXT,
        "ahead": WHOLE,
    },
    "write.check": {"constraint": OBJECT + "!", "tokens": WHOLE},
    "write.stop": {},
    "runs.list": {},
    "runs.open": {"run_id": TEXT + "!"},
    "runs.continue": {"run_id": TEXT + "!", "steps": WHOLE, "saving": SAVING},
    "runs.rename": {"run_id": TEXT + "!", "name": TEXT + "!"},
    "runs.mark": {"run_id": TEXT + "!", "tags": LIST, "note": TEXT},
    "runs.duplicate": {"run_id": TEXT + "!"},
    "runs.compare": {"run_ids": LIST + "!"},
    "runs.delete": {"run_id": TEXT + "!"},
    "runs.export": {"run_id": TEXT + "!", "format": TEXT, "matrices": TEXT},
    "runs.export_live": {"format": TEXT, "matrices": TEXT},
    "runs.history": {"run_id": TEXT + "!"},
    "runs.import": {"name": TEXT, "buffer": BUFFER + "!"},
    "runs.import_files": {"names": LIST + "!", "files": FILES + "!"},
    "tune.plan": {"adapter": OBJECT},
    "tune.start": {
        "how": TEXT + "!", "adapter": OBJECT, "training": OBJECT, "name": TEXT, "text": TEXT, "rows": LIST, "buffer": BUFFER, "file_name": TEXT,
    },
    "tune.stop": {},
    "tune.save": {},
    "improve.record": {"what": TEXT + "!", "prompt": TEXT + "!", "offered": TEXT, "kept": TEXT, "note": TEXT},
    "improve.list": {"first": WHOLE, "count": WHOLE},
    "improve.edit": {"record_id": TEXT + "!", "what": TEXT, "prompt": TEXT, "offered": TEXT, "kept": TEXT, "note": TEXT},
    "improve.delete": {"record_ids": LIST + "!"},
    "improve.clear": {},
    "improve.export": {},
    "improve.import": {"name": TEXT, "text": TEXT, "buffer": BUFFER},
    "improve.plan": {"settings": OBJECT},
    "improve.start": {"settings": OBJECT, "by_itself": FLAG},
    "improve.stop": {},
    "improve.history": {},
    "improve.use": {"version": WHOLE, "aside": FLAG},
    "improve.idle": {"on": FLAG + "!"},
    "adapters.list": {},
    "adapters.use": {"adapter_id": TEXT},
    "adapters.strength": {"strength": NUMBER + "!"},
    "adapters.rename": {"adapter_id": TEXT + "!", "name": TEXT + "!"},
    "adapters.delete": {"adapter_id": TEXT + "!"},
    "adapters.export": {"adapter_id": TEXT + "!"},
    "adapters.import": {"name": TEXT, "buffer": BUFFER + "!"},
    "adapters.merge": {"adapter_id": TEXT + "!"},
    "compare.start": {"prompt": TEXT + "!", "tokens": WHOLE, "temperature": NUMBER, "top_k": WHOLE, "top_p": NUMBER, "seed": WHOLE, "ask": FLAG},
    "compare.stop": {},
    "memorise.start": {"of": TEXT, "prefixes": WHOLE, "prefix_tokens": WHOLE, "tokens": WHOLE},
    "memorise.stop": {},
    "inside.attention": {"text": TEXT + "!", "layer": WHOLE},
    "inside.heads": {},
    "inside.lens": {"text": TEXT + "!", "which": TEXT},
    "inside.sharpening": {"text": TEXT + "!"},
    "lens.train": {"steps": WHOLE},
    "lens.stop": {},
    "inside.next": {"text": TEXT + "!", "position": WHOLE},
    "inside.change": {"text": TEXT + "!", "what": TEXT, "how": TEXT, "source": TEXT, "position": WHOLE},
    "inside.stop": {},
    "inside.flow": {"text": TEXT + "!", "position": WHOLE},
    "features.train": {
        "address": TEXT, "how": TEXT, "features": WHOLE, "k": WHOLE, "l1": NUMBER, "steps": WHOLE, "batch": WHOLE, "learning_rate": NUMBER,
        "resample_every_steps": WHOLE, "seed": WHOLE,
    },
    "features.stop": {},
    "features.list": {"by": TEXT, "first": WHOLE, "count": WHOLE},
    "features.feature": {"index": WHOLE + "!"},
    "features.export": {},
    "features.write": {
        "prompt": TEXT + "!", "index": WHOLE + "!", "strength": NUMBER + "!", "tokens": WHOLE, "temperature": NUMBER, "top_k": WHOLE,
        "top_p": NUMBER, "seed": WHOLE,
    },
    "features.write_stop": {},
    "cells.run": {"code": TEXT + "!", "space": TEXT, "cell": TEXT},
    "cells.reset": {"space": TEXT},
    "cells.complete": {"code": TEXT + "!", "space": TEXT},
    "settings": {"sample_prompt": TEXT, "sample_every_seconds": NUMBER, "save_every_seconds": NUMBER},
}

_CHECKS = {
    TEXT: lambda value: isinstance(value, str),
    WHOLE: lambda value: isinstance(value, int) and not isinstance(value, bool),
    NUMBER: lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    OBJECT: lambda value: isinstance(value, dict),
    LIST: lambda value: isinstance(value, list),
    BUFFER: lambda value: _is_buffer(value),
    FILES: lambda value: all(map(_is_buffer, value)) if isinstance(value, list) else _is_buffer(value) and not isinstance(value, bytes),
    FLAG: lambda value: isinstance(value, bool),
    SAVING: lambda value: isinstance(value, dict) or value == "auto",
}


def _is_buffer(value) -> bool:
    """Bytes, or what a browser calls so: at least nothing that JSON has."""
    return value is not None and not isinstance(value, (str, int, float, dict, list))


def checked(request: dict) -> dict:
    """The request's fields without kind and id, nulls left out; ConfigError where it is not one of REQUESTS."""
    kind = request.get("kind")
    fields = REQUESTS.get(kind) if isinstance(kind, str) else None
    if fields is None:
        raise ConfigError("request", "its kind is one that the session knows (session/messages.py lists them)", f"{repr(kind)[:60]} came")
    given = {name: value for name, value in request.items() if name not in ("kind", "id") and value is not None}
    for name, value in given.items():
        if name not in fields:
            raise ConfigError(f"request {kind}", f"its fields are {', '.join(fields) or 'none'}", f"{repr(name)[:60]} came")
        wanted = fields[name].rstrip("!")
        if wanted in (WHOLE, NUMBER) and isinstance(value, float) and value.is_integer():
            value = given[name] = int(value)
        if not _CHECKS[wanted](value):
            raise ConfigError(f"request {kind}", f"{name} is {wanted}", f"{value!r:.60} came", "correct it")
    for name, wanted in fields.items():
        if wanted.endswith("!") and name not in given:
            raise ConfigError(f"request {kind}", f"{name} is given", "it is missing")
    return given


def finite(value):
    """A number as JSON can carry it: None where it is not finite (JSON has no NaN)."""
    return value if isinstance(value, (int, float)) and value == value and abs(value) != float("inf") else None


LOOKING = ("study", "inside", "sae", "features", "lens")
"""Places in code whose errors are shown beside what they are about: their names say nothing there."""


def plainly(error: PostTrainError) -> str:
    """An error as the page says it: about looking inside, in two sentences without its place; else as it is."""
    place, rule, came, remedy = error.parts
    if not isinstance(error, UserError) or place not in LOOKING or not rule:
        return error.message
    first = rule.rstrip(". ") + (": " + came.rstrip(". ") if came else "") + "."
    return " ".join(each[:1].upper() + each[1:] for each in (first, remedy and remedy.rstrip(". ") + ".") if each)
