"""The few DOM helpers the views share. Everything a model or a file says goes in through textContent, never as HTML."""

import js
from pyscript.js_modules import bridge

document = js.document


def el(name):
    return document.getElementById(name)


def node(target):
    return el(target) if isinstance(target, str) else target


def on(target, kind, handler):
    node(target).addEventListener(kind, handler)


def text(target, value):
    node(target).textContent = str(value)


def show(target, visible):
    node(target).hidden = not visible


def swap(going, start, stop):
    """Of two buttons in one place show Stop while something goes, else Start. The keyboard's focus is not lost with the one that goes:
    it moves to the other, and to Start also where hiding something else had left it nowhere."""
    gone, there = (start, stop) if going else (stop, start)
    if not el(there).hidden:
        return
    focused = document.activeElement
    had_focus = focused is not None and (focused.id == gone or not going and focused.tagName == "BODY")
    show(there, True)
    show(gone, False)
    if had_focus:
        bridge.focus(there)


def make(tag, content=None, cls=None, **attributes):
    """A new element; attribute names with underscores become dashes (aria_label -> aria-label)."""
    made = document.createElement(tag)
    if content is not None:
        made.textContent = str(content)
    if cls:
        made.className = cls
    for name, value in attributes.items():
        made.setAttribute(name.replace("_", "-"), str(value))
    return made


def button(content, handler, cls=None, **attributes):
    made = make("button", content, cls, type="button", **attributes)
    made.addEventListener("click", handler)
    return made


def empty(target):
    node(target).replaceChildren()


def sentences(target, items):
    """Fill a list with one item a sentence."""
    place = node(target)
    place.replaceChildren()
    for item in items or []:
        place.appendChild(make("li", item))


def value(target):
    return node(target).value


def number(target):
    """The number typed into an input: int where it is whole, None where it is empty or no number."""
    raw = str(node(target).value).strip()
    if not raw:
        return None
    try:
        found = float(raw)
    except ValueError:
        return None
    if found != found or found in (float("inf"), float("-inf")):
        return None
    return int(found) if found == int(found) else found


def chosen(name):
    """The value of the checked radio button of a group."""
    checked = document.querySelector("input[name=" + name + "]:checked")
    return checked.value if checked else None
