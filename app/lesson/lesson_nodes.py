"""A lesson's nodes (tools/lessons.py) as elements. Only tags of the list are made, and all text goes in as text."""

import learn
import lesson_cell
import lesson_question
import lesson_words as words
from dom import document, make

TAGS = ("p", "ul", "ol", "li", "strong", "em", "code", "pre", "a", "h3", "table", "thead", "tbody", "tr", "th", "td", "blockquote", "br")


class Builder:
    """Builds the sections of one lesson."""

    def __init__(self, lesson, done):
        self.lesson, self.done = lesson, done
        self.seen = set()
        self.questions = sum(1 for node in _special(lesson) if "question" in node)
        self.question = 0
        self.cells = []

    def fill(self, place, nodes, plain=False):
        """Append nodes to an element; plain: without explained words (in code and links)."""
        for node in nodes:
            if isinstance(node, str):
                self._text(place, node, plain)
            elif isinstance(node, list):
                self._element(place, node, plain)
            else:
                place.appendChild(self._special(node))

    def _text(self, place, said, plain):
        said = said.replace("\n", " ")
        for part in [said] if plain else words.parts(said, self.seen):
            if isinstance(part, str):
                place.appendChild(document.createTextNode(part))
            else:
                place.appendChild(words.word(*part))

    def _element(self, place, node, plain):
        tag = node[0]
        if tag not in TAGS:
            return
        made = make(tag)
        if tag == "a":
            address = node[1]["href"]
            made.href = address
            if address.startswith("https://"):
                made.target, made.rel = "_blank", "noopener noreferrer"
        if tag == "pre":
            made.className = "code"
            made.setAttribute("tabindex", "0")
            for child in node[2:]:
                made.appendChild(make("code", "".join(child[2:])))
        elif tag == "code":
            made.textContent = "".join(node[2:])
        elif tag == "li" and _sources(node):
            self._listed(made, node[2:])
        else:
            self.fill(made, node[2:], plain or tag in ("a", "h3", "strong", "th"))
        if tag == "table":
            box = make("div", cls="scroll", tabindex="0", role="region", aria_label="Table")
            made.className = "figures"
            box.appendChild(made)
            made = box
        place.appendChild(made)

    def _special(self, node):
        if "cell" in node:
            made = lesson_cell.cell(self.lesson["cells"][node["cell"]], self.lesson["name"], node["cell"])
            self.cells.append(made)
            return made.box
        if "command" in node:
            return lesson_cell.command(self.lesson["commands"][node["command"]])
        if "question" in node:
            self.question += 1
            return lesson_question.build(node["question"], self.lesson["name"], self.question, self.questions, self.done)
        if "instrument" in node:
            return _instrument(node["instrument"])
        return self._source(node["source"])

    def _listed(self, item, nodes):
        """An item of a list that names a function: all of it opens the source."""
        found = _sources([None, None] + nodes)[0]
        words = [part for node in nodes for part in (node["source"]["words"] if isinstance(node, dict) and "source" in node else [node])]
        item.appendChild(self._source(found, words))

    def _source(self, found, words=None):
        """A function of the repository: its name opens its source."""
        box = make("details", cls="plain source")
        head = make("summary")
        self.fill(head, words or found["words"], True)
        box.appendChild(head)
        box.appendChild(make("p", found["path"] + ", line " + str(found["line"]), "hint"))
        code = make("pre", cls="code", tabindex="0", role="region", aria_label="Source of " + found["name"])
        code.appendChild(make("code", found["code"]))
        box.appendChild(code)
        return box


def _sources(node):
    return [child["source"] for child in node[2:] if isinstance(child, dict) and "source" in child]


def _special(lesson):
    """All nodes that are objects."""
    found = []

    def look(nodes):
        for node in nodes:
            if isinstance(node, dict):
                found.append(node)
            elif isinstance(node, list):
                look(node[2:])

    for section in lesson["sections"]:
        look(section["body"])
    return found


def _instrument(found):
    """Something to turn: built by instruments/NAME.py, fetched now. Its words stand where it cannot be had."""
    box = make("figure", cls="instrument", data_name=found["name"])
    place = make("div", cls="instrument-body")
    said = make("figcaption", found["words"], "hint")
    box.appendChild(place)
    box.appendChild(said)

    def came(module):
        if module is not None:
            module.build(place, found["settings"])

    learn.module("instruments/" + found["name"] + ".py", "instrument_" + found["name"], came)
    return box
