"""Sentences for the person: errors beside what failed, quiet notices, and what a screen reader is told."""

from dom import button, el, make, text


def error(place, message):
    box = el(place + "-error") or el("page-error")
    box.replaceChildren(make("p", message), button("×", lambda event: clear(place), "close", aria_label="Dismiss this message"))
    box.classList.add("shown")


def clear(place):
    box = el(place + "-error") or el("page-error")
    box.classList.remove("shown")
    box.replaceChildren()


def notice(name, message, *buttons):
    """Show a notice with buttons [(label, handler)]; without a message it goes away."""
    box = el(name + "-notice")
    box.replaceChildren()
    if message:
        box.appendChild(make("span", message))
        for label, handler in buttons:
            box.appendChild(button(label, handler))
    if message:
        box.classList.add("shown")
    else:
        box.classList.remove("shown")


def announce(message):
    text("announce", message)
