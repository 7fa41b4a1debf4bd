"""Sentences for the person: errors beside what failed, quiet notices, and what a screen reader is told."""

from dom import button, el, make, text


MOST_LINES = 4  # below a lasting error


def error(place, message, lasting=False, way_out=None):
    """Show an error; it takes the place of the one before, but a lasting one stays and others line up below it.

    way_out, (label, handler), is a button beside it; pressing it takes the error away.
    """
    box = el(place + "-error") or el("page-error")
    if box.classList.contains("lasting") and not lasting:
        if message not in str(box.textContent) and box.querySelectorAll("p").length <= MOST_LINES:
            box.insertBefore(make("p", message), box.querySelector("button"))
        return
    box.replaceChildren(make("p", message))
    if way_out:
        label, handler = way_out

        def take(event):
            clear(place)
            handler()

        box.appendChild(button(label, take, id=place + "-way-out"))
    box.appendChild(button("×", lambda event: clear(place), "close", aria_label="Dismiss this message"))
    box.classList.add("shown")
    if lasting:
        box.classList.add("lasting")


def clear(place):
    box = el(place + "-error") or el("page-error")
    box.classList.remove("shown", "lasting")
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
