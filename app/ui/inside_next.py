"""Inside, Next token: the ten likeliest after a position, what each part of the model adds to one, and how it grew layer by layer."""

import fmt
import inside
from dom import el, empty, make, text
from inside_attention import percent
from token_tip import spoken, visible

_chosen = 0
_event = None


def fields():
    return {} if inside.position is None else {"position": inside.position}


def part_name(part):
    """A part of the model in words: "0 attn" is what block 0's attention adds."""
    if part == "ln_f bias":
        return "Last norm’s bias"
    words = part.split(" ")
    if len(words) == 2:
        return "Layer " + words[0] + ("’s attention" if words[1] == "attn" else "’s MLP")
    return {"token": "The token itself", "position": "Its position"}.get(part, part)


def draw(event):
    global _event, _chosen
    _event = event
    _chosen = 0
    at = event["position"]
    line = "After " + inside.token(at) + " at position " + str(at) + " the model expects “" + visible(event["choices"][0]) + "” with " + percent(event["probability"][0]) + "."
    if event.get("came") is not None and at + 1 < len(inside.labels):
        tokens = event["choice_tokens"]
        place = "in place " + str(tokens.index(event["came"]) + 1) if event["came"] in tokens else "not among the ten"
        line += " What came is " + inside.token(at + 1) + ", " + place + "."
    text("next-says", line)
    empty("next-choices")
    highest = event["probability"][0]
    for number, label in enumerate(event["choices"]):
        row = make("label", cls="bar-row")
        entry = make("input", type="radio", name="next-choice", id="next-choice-" + str(number), value=str(number), aria_label=spoken(label) + ", " + percent(event["probability"][number]))
        entry.checked = number == 0
        entry.addEventListener("change", _choose)
        row.appendChild(entry)
        _bar(row, visible(label), event["probability"][number] / highest, percent(event["probability"][number], 2), "piece")
        el("next-choices").appendChild(row)
    _explain()


def _choose(event):
    global _chosen
    _chosen = int(event.target.value)
    _explain()


def _bar(row, name, share, words, cls=""):
    row.appendChild(make("span", name, cls or "name"))
    track = make("span", cls="track", aria_hidden="true")
    bar = make("span", cls="less" if share < 0 else "")
    bar.style.width = fmt.fixed(100 * abs(share), 1) + "%"
    track.appendChild(bar)
    row.appendChild(track)
    row.appendChild(make("span", words, "share"))


def _explain():
    """The chosen one of the ten."""
    name = "“" + visible(_event["choices"][_chosen]) + "”"
    text("next-parts-title", "What each part adds to the score of " + name)
    text("next-layers-title", "How likely " + name + " is after each layer")
    adds = [row[_chosen] for row in _event["contribution"]]
    most = max([abs(each) for each in adds] + [1e-9])
    empty("next-parts")
    for part, value in zip(_event["parts"], adds):
        row = make("li", cls="bar-row")
        _bar(row, part_name(part), value / most / 2, signed(value))  # half of the track is for what is below nothing
        el("next-parts").appendChild(row)
    total = make("li", cls="bar-row total")
    total.appendChild(make("span", "Together, its logit", "name"))
    total.appendChild(make("span", ""))
    total.appendChild(make("span", signed(_event["logits"][_chosen]), "share"))
    el("next-parts").appendChild(total)
    empty("next-layers")
    for name, shares in zip(_event["rows"], _event["by_layer"]):
        row = make("li", cls="bar-row")
        _bar(row, "Embedding" if name == "embed" else "Layer " + name[len("blocks."):], shares[_chosen], percent(shares[_chosen]))
        el("next-layers").appendChild(row)


def signed(value, places=2):
    """+1.20, −1.20, or 0.00 without a sign."""
    if abs(value) < 0.5 / 10**places:
        return fmt.fixed(0, places)
    return ("−" if value < 0 else "+") + fmt.fixed(abs(value), places)


def start():
    inside.add("next", fields, draw)
