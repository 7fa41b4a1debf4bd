"""How far a reader has come, kept in this browser: which questions were answered, and the lesson that was open last."""

import json

from pyscript.js_modules import bridge


def _read():
    try:
        found = json.loads(str(bridge.learn.kept()))
    except ValueError:
        found = {}
    done = found.get("done") if isinstance(found, dict) else None
    last = found.get("last") if isinstance(found, dict) else None
    return {"done": [name for name in done if isinstance(name, str)] if isinstance(done, list) else [], "last": last if isinstance(last, str) else ""}


_kept = _read()
_answered = {}  # lesson -> numbers of its questions that were answered right since the page was loaded


def _write():
    bridge.learn.keep(json.dumps(_kept))


def done(name):
    return name in _kept["done"]


def count():
    return len(_kept["done"])


def last():
    return _kept["last"]


def opened(name):
    _kept["last"] = name
    _write()


def right(name, index, total):
    """A question was answered right; whether the lesson is done now."""
    _answered.setdefault(name, set()).add(index)
    if len(_answered[name]) < total or done(name):
        return False
    _kept["done"].append(name)
    _write()
    return True


def forget():
    """Begin the course anew."""
    _kept["done"], _kept["last"] = [], ""
    _answered.clear()
    _write()
