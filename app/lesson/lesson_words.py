"""Words of the field, explained where a lesson uses them first: under the pointer, on a tap, or by Tab and Enter."""

from dom import document, el, make, on, show, text

_words = []  # (form in small letters, term, what it is), the longest first
_state = {"open": None}


def use(glossary):
    _words.clear()
    for term, entry in glossary.items():
        for form in entry["forms"]:
            _words.append((form.lower(), term, entry["says"]))
    _words.sort(key=lambda word: -len(word[0]))


def parts(said, seen):
    """A text as [text or (text, term, what it is)], each term at its first place; `seen` holds the terms that came before."""
    small, found = said.lower(), []
    for form, term, says in _words:
        if term in seen:
            continue
        at = _place(small, form)
        if at >= 0 and not any(at < end and begin < at + len(form) for begin, end, _, _ in found):
            seen.add(term)
            found.append((at, at + len(form), term, says))
    found.sort()
    cut, at = [], 0
    for begin, end, term, says in found:
        if begin > at:
            cut.append(said[at:begin])
        cut.append((said[begin:end], term, says))
        at = end
    if at < len(said):
        cut.append(said[at:])
    return cut


def _place(small, form):
    at = small.find(form)
    while at >= 0:
        before, after = small[at - 1] if at else " ", small[at + len(form)] if at + len(form) < len(small) else " "
        if not (before.isalpha() or before.isdigit() or after.isalpha() or after.isdigit()):
            return at
        at = small.find(form, at + 1)
    return -1


def word(said, term, says):
    """The word as a button that tells what it means."""
    made = make("button", said, "word", type="button", aria_expanded="false", aria_controls="word-tip")
    made.addEventListener("click", lambda event: _close() if _state["open"] is made else _open(made, term, says))
    made.addEventListener("mouseenter", lambda event: _open(made, term, says))
    made.addEventListener("mouseleave", lambda event: _close())
    made.addEventListener("blur", lambda event: _close())
    return made


def _open(made, term, says):
    _close()
    _state["open"] = made
    made.setAttribute("aria-expanded", "true")
    text("word-tip-term", term)
    text("word-tip-says", says)
    show("word-tip", True)
    tip, box, place = el("word-tip"), made.getBoundingClientRect(), el("view-learn").getBoundingClientRect()
    most = place.width - tip.offsetWidth
    tip.style.left = str(max(0, min(most, box.left - place.left))) + "px"
    tip.style.top = str(box.bottom - place.top + 6) + "px"


def _close():
    if _state["open"] is not None:
        _state["open"].setAttribute("aria-expanded", "false")
        _state["open"] = None
        show("word-tip", False)


on(document, "keydown", lambda event: _close() if event.key == "Escape" else None)
