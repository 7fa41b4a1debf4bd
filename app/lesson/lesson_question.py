"""A question that checks itself: one right answer among several, or a number."""

import lesson_kept as kept
import notices
from dom import button, make, number


def build(question, lesson, index, total, done):
    """The question as an element; done() is called once all of the lesson's questions were answered."""
    box = make("form", cls="quiz")
    name = lesson + "-question-" + str(index)
    told = make("p", cls="told", role="status")

    def say(right, words):
        told.textContent = words
        told.className = "told right" if right else "told wrong"
        if right and kept.right(lesson, index, total):
            done()
            notices.announce("This lesson is done.")

    if "choices" in question:
        field = make("fieldset", cls="answers")
        field.appendChild(make("legend", question["words"]))
        for at, choice in enumerate(question["choices"]):
            label = make("label", cls="answer")
            mark = make("input", type="radio", name=name, value=str(at))
            mark.addEventListener("change", lambda event, choice=choice: say(choice["right"], choice["told"]))
            label.appendChild(mark)
            label.appendChild(make("span", choice["text"]))
            field.appendChild(label)
        box.appendChild(field)
        box.addEventListener("submit", lambda event: event.preventDefault())
    else:
        wanted = question["number"]
        box.appendChild(_label(question["words"], name))
        row = make("div", cls="row")
        given = make("input", type="text", id=name, inputmode="decimal", autocomplete="off")
        row.appendChild(given)
        row.appendChild(button("Check", lambda event: check()))
        box.appendChild(row)

        def check(event=None):
            if event is not None:
                event.preventDefault()
            value = number(given)
            if value is None:
                say(False, "Type a number, such as 1.5.")
            elif abs(value - wanted["value"]) <= wanted["within"] + 1e-9:
                say(True, wanted["told"])
            else:
                say(False, wanted["wrong"])

        box.addEventListener("submit", check)
    box.appendChild(told)
    return box


def _label(words, name):
    made = make("label", words)
    made.htmlFor = name
    return made
