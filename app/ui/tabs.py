"""The views as tabs: click, arrow keys, Home and End, and the address (#write), so that Back and reload keep the view."""

import js

from dom import el, on, show

NAMES = ["train", "write", "tokens", "tune", "inside", "runs", "learn"]
current = "train"

_watchers = []


def watch(handler):
    """Call `handler` when another view is shown."""
    _watchers.append(handler)


def select(name, focus=False):
    global current
    if name not in NAMES:
        name = "train"
    current = name
    for other in NAMES:
        tab = el("tab-" + other)
        mine = other == name
        tab.setAttribute("aria-selected", "true" if mine else "false")
        tab.setAttribute("tabindex", "0" if mine else "-1")
        show("view-" + other, mine)
        if mine and focus:
            tab.focus()
    js.document.body.dataset.view = name
    for handler in _watchers:
        handler()


def go(name, focus=False):
    if current != name:
        js.history.pushState(None, "", "#" + name)
    select(name, focus)


def from_address(event=None):
    """#write, or #learn/softmax?preset=small: what follows the view's name is the view's own."""
    select(str(js.location.hash)[1:].split("?")[0].split("/")[0] or "train")


def _key(event):
    at = NAMES.index(current)
    steps = {"ArrowRight": at + 1, "ArrowLeft": at - 1, "Home": 0, "End": len(NAMES) - 1}
    if event.key in steps:
        event.preventDefault()
        go(NAMES[steps[event.key] % len(NAMES)], focus=True)


def start():
    for name in NAMES:
        on("tab-" + name, "click", lambda event, name=name: go(name))
        on("tab-" + name, "keydown", _key)
    js.window.addEventListener("popstate", from_address)
    js.window.addEventListener("hashchange", from_address)
    from_address()
