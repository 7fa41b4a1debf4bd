"""Requests to the worker, events from it. A request remembers where on the page its failure belongs and who wants its answer."""

import json

from pyscript.js_modules import bridge

import notices

_last = 0
_open = {}  # request id -> (kind, place, answered)
_handlers = {}  # event kind -> handlers
_PRELIMINARY = {"runs.continue": ("opened",), "inside.change": ("inside.progress",)}  # answers after which the one that decides is still to come


def on(kind, handler):
    _handlers.setdefault(kind, []).append(handler)


def send(kind, fields=None, place="page", file=None, files=None, area=None, answered=None):
    """Send a request and return its id. `answered(event)` gets what replies to it up to the deciding answer, a failure too:
    for most requests the first reply, for some (_PRELIMINARY) a later one.

    `file` (a File) goes along as a buffer, `files` as Files that the worker reads from, the content of the text area named `area` as `text`.
    """
    global _last
    _last += 1
    message = {"kind": kind, "id": _last}
    message.update(fields or {})
    _open[_last] = (kind, place, answered)
    while len(_open) > 200:  # requests are kept for later failures (a save that fails mid-run), but not for ever
        del _open[min(_open)]
    if file is not None:
        bridge.sendFile(json.dumps(message), file)
    elif files is not None:
        bridge.sendFiles(json.dumps(message), files)
    elif area is not None:
        bridge.sendText(json.dumps(message), area)
    else:
        bridge.send(json.dumps(message))
    return _last


def forget():
    _open.clear()


def receive(kind, text):
    try:
        deliver(kind, json.loads(text))
    except Exception as problem:  # a fault in one handler must not end the page
        import sys

        sys.print_exception(problem)
        notices.error("page", "The page tripped over a message it did not expect (" + kind + "). The run itself goes on.")


def deliver(kind, event):
    reply_to = event.get("reply_to")
    asked, place, answered = _open.get(reply_to, (None, None, None))
    if answered and kind not in _PRELIMINARY.get(asked, ()):
        _open[reply_to] = (asked, place, None)
    event["place"] = place
    if kind == "failed":
        notices.error(place or "page", event.get("message") or "Something failed.")
    for handler in _handlers.get(kind, ()):
        handler(event)
    if answered:
        answered(event)


def start():
    bridge.listen(receive)
