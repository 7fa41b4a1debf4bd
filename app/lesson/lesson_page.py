"""The Learn view: the list of lessons, and the one that is open."""

import json

from pyscript.js_modules import bridge

import fmt
import lesson_cell
import lesson_kept as kept
import lesson_nodes
import lesson_settings
import lesson_words
import notices
from dom import button, document, el, empty, make, text

SCRATCH = "for report in pt.train(pt.GPT.create(\"tiny\"), pt.Corpus.shakespeare(), steps=50):\n    print(report)\n"
_state = {"index": None, "open": None, "waiting": ""}


def show(address):
    """Show what an address names: #learn the list with the lesson that was open last, #learn/NAME that lesson."""
    if _state["index"] is None:
        waiting = _state["waiting"]
        _state["waiting"] = address
        if not waiting:
            bridge.learn.get("learn/index.json", _index)
        return
    place, _, asked = address[1:].partition("?")
    name = place.partition("/")[2]
    notices.clear("learn")
    names = [lesson["name"] for lesson in _state["index"]]
    if name and name not in names and name not in ("scratch", "how-fast"):
        notices.error("learn", "There is no lesson called " + name[:40] + ". Choose one from the list.")
        name = ""
    lesson_settings.use(asked)
    if name == "scratch":
        _scratch()
    elif not name:
        _overview()
    elif _state["open"] != name:
        _open(name)


def _failed():
    notices.error("learn", "This could not be fetched: the network cannot be reached, and it is not on this device yet.")


def _index(found):
    if found is None:
        _state["waiting"] = ""
        _failed()
        return

    def words(glossary):
        if glossary is not None:
            lesson_words.use(json.loads(str(glossary)))
        _state["index"] = json.loads(str(found))
        _list()
        address, _state["waiting"] = _state["waiting"], ""
        show(address)

    bridge.learn.get("learn/glossary.json", words)


def _list():
    place = el("learn-list")
    empty(place)
    for lesson in _state["index"]:
        item = make("li")
        link = make("a", cls="lesson-link", href="#learn/" + lesson["name"])
        link.appendChild(make("span", str(lesson["number"]), "lesson-number"))
        link.appendChild(make("span", lesson["title"]))
        if kept.done(lesson["name"]):
            link.appendChild(make("span", "done", "lesson-done"))
        if lesson["name"] == _state["open"]:
            link.setAttribute("aria-current", "page")
        item.appendChild(link)
        place.appendChild(item)
    for name, title in (("scratch", "Scratch pad"), ("how-fast", "How fast")):
        item = make("li")
        link = make("a", cls="lesson-link", href="#learn/" + name)
        link.appendChild(make("span", "+", "lesson-number"))
        link.appendChild(make("span", title))
        if _state["open"] == name:
            link.setAttribute("aria-current", "page")
        item.appendChild(link)
        place.appendChild(item)
    total, done = len(_state["index"]), kept.count()
    text("learn-progress", str(done) + " of " + fmt.plural(total, "lesson") + " done. Kept in this browser only." if done else fmt.plural(total, "lesson") + ". Each runs on the real code, here in the page.")


def _overview():
    """No lesson: what the course is, and where to begin or go on."""
    _state["open"] = None
    el("view-learn").classList.remove("reading")
    _list()
    place = el("lesson")
    empty(place)
    place.appendChild(make("h1", "From a dot product to a model that learns from you"))
    place.appendChild(make("p", "Every part of this page explained on its own code: a reason, a picture to turn, a few lines of Python to run, and a question that tells whether you have got it. You need to be able to read code, and nothing else."))
    names = [lesson["name"] for lesson in _state["index"]]
    last = kept.last()
    row = make("p", cls="actions")
    begin = last if last in names else names[0] if names else ""
    if begin:
        title = [lesson["title"] for lesson in _state["index"] if lesson["name"] == begin][0]
        row.appendChild(make("a", ("Go on with: " if last in names else "Begin with: ") + title, "button", href="#learn/" + begin))
    if kept.count():
        row.appendChild(button("Forget my progress", _forget, "quiet-button"))
    place.appendChild(row)


def _scratch():
    """A cell of one's own."""
    _state["open"] = "scratch"
    el("view-learn").classList.add("reading")
    place = el("lesson")
    empty(place)
    place.appendChild(make("h1", "Scratch pad"))
    place.appendChild(make("p", "Python in the worker, on the real package: pt is imported, and model, corpus and tokenizer are what the page has open. What you type stays in this browser.", "lead"))
    code = str(bridge.editor.keptScratch()) or SCRATCH
    made = lesson_cell.Cell(code, "scratch", "Scratch pad", scratch=True)
    place.appendChild(made.box)
    made.mount()
    _list()
    el("lesson").focus()


def _fill(place, builder, page):
    """The lead and the sections of a lesson or a page."""
    lead = make("div", cls="lead")
    builder.fill(lead, page["lead"])
    place.appendChild(lead)
    for section in page["sections"]:
        part = make("section")
        part.appendChild(make("h2", section["title"]))
        builder.fill(part, section["body"])
        place.appendChild(part)


def _plain(page):
    """A page that is no lesson: How fast."""
    el("view-learn").classList.add("reading")
    place = el("lesson")
    empty(place)
    builder = lesson_nodes.Builder(page, None)
    place.appendChild(make("h1", page["title"]))
    _fill(place, builder, page)
    _list()
    el("lesson").focus()
    bridge.learn.top("lesson")


def _forget(event):
    kept.forget()
    _overview()
    notices.announce("Your progress is forgotten.")


def _open(name):
    def came(found):
        if found is None:
            _failed()
            return
        _build(json.loads(str(found)))

    _state["open"] = name
    bridge.learn.get("learn/" + name + ".json", came)


def _build(lesson):
    name = lesson["name"]
    if _state["open"] != name:
        return
    if "number" not in lesson:
        _plain(lesson)
        return
    kept.opened(name)
    el("view-learn").classList.add("reading")
    place = el("lesson")
    empty(place)
    done = make("p", "You have done this lesson.", "lesson-is-done")
    done.hidden = not kept.done(name)

    def finished():
        done.hidden = False
        _list()

    builder = lesson_nodes.Builder(lesson, finished)
    place.appendChild(make("p", "Lesson " + str(lesson["number"]) + " of " + str(len(_state["index"])), "hint"))
    place.appendChild(make("h1", lesson["title"], id="lesson-title"))
    _fill(place, builder, lesson)
    for made in builder.cells:
        made.mount()
    place.appendChild(done)
    place.appendChild(lesson_settings.share(name))
    place.appendChild(_neighbours(lesson["number"]))
    _list()
    el("lesson").focus()
    bridge.learn.top("lesson")
    document.title = lesson["title"] + " · posttrainllm"


def _neighbours(number):
    row = make("nav", cls="neighbours", aria_label="Lessons before and after")
    for step, word, cls in ((-1, "Before: ", "before"), (1, "Next: ", "after")):
        for lesson in _state["index"]:
            if lesson["number"] == number + step:
                row.appendChild(make("a", word + lesson["title"], "button " + cls, href="#learn/" + lesson["name"]))
    return row
