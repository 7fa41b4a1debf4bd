"""What is said of one token: under the pointer, on a tap, or by the arrow keys. Spans and keys are in spans.mjs."""

import json
import math

from pyscript.js_modules import bridge

import fmt
import notices
from dom import el, empty, make

_MARKS = {" ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍"}


def visible(piece):
    """A token with its blanks to be seen, and characters that have no shape as their bytes."""
    return "".join([_MARKS.get(letter) or ("\\x{:02x}".format(ord(letter)) if ord(letter) < 32 or ord(letter) == 127 else letter) for letter in piece])


def spoken(piece):
    """The same for a screen reader, which would pass over a blank."""
    words = {" ": " space ", "\n": " line break ", "\t": " tab ", "\r": " return "}
    return " ".join("".join([words.get(letter, letter) for letter in piece]).split()) or "nothing"


def share(logprob_nats):
    """A probability from its logarithm: 34.2 %."""
    if logprob_nats is None:
        return "0" + fmt.SPACE + "%"
    percent = 100 * math.exp(logprob_nats)
    if percent >= 10:
        return fmt.fixed(percent, 1 if percent < 99.95 else 0) + fmt.SPACE + "%"
    if percent >= 0.001:
        return fmt.significant(percent, 2) + fmt.SPACE + "%"
    return "under 0.001" + fmt.SPACE + "%"


def _head(title, facts):
    tip = el("token-tip")
    empty(tip)
    line = make("p", cls="tip-head")
    line.appendChild(make("strong", visible(title)))
    line.appendChild(make("span", facts, "hint"))
    tip.appendChild(line)
    return tip


def _rank(number):
    if not number:
        return "the likeliest"
    last, teen = (number + 1) % 10, (number + 1) // 10 % 10 == 1
    return fmt.count(number + 1) + ("th" if teen else {1: "st", 2: "nd", 3: "rd"}.get(last, "th"))


def written(group, at, total, pinned):
    """Tokens that were written, with what else could have come in the place of each."""
    rows = json.loads(group)
    said = []
    tip = None
    for row in rows:
        facts = share(row["logprob_nats"]) + ", " + _rank(row["rank"]) + " · no." + fmt.SPACE + str(row["token"])
        if tip is None:
            tip = _head(row["shown"], facts)
        else:  # several tokens make one letter
            line = make("p", cls="tip-head")
            line.appendChild(make("strong", visible(row["shown"])))
            line.appendChild(make("span", facts, "hint"))
            tip.appendChild(line)
        tip.appendChild(_bars(row))
        others = [spoken(each[1]) + " " + share(each[2]) for each in row["top"][:3]]
        said.append(spoken(row["shown"]) + ", " + share(row["logprob_nats"]) + ", " + _rank(row["rank"]) + ". Likeliest: " + "; ".join(others))
    if pinned:
        notices.announce(". ".join(said) + ". " + fmt.count(at + 1) + " of " + fmt.count(total) + ".")


def _bars(row):
    table = make("ol", cls="tip-bars")
    highest = row["top"][0][2] if row["top"] else 0
    for token, piece, logprob in row["top"]:
        item = make("li", cls="taken" if token == row["token"] else "")
        item.appendChild(make("span", visible(piece), "piece"))
        track = make("span", cls="track", aria_hidden="true")
        bar = make("span")
        bar.style.width = str(round(100 * math.exp(logprob - highest), 1) if logprob is not None else 0) + "%"
        track.appendChild(bar)
        item.appendChild(track)
        item.appendChild(make("span", share(logprob), "share"))
        table.appendChild(item)
    return table


def shown(group, at, total, pinned):
    """A token of a typed text."""
    token = json.loads(group)[0]
    size = token["end"] - token["begin"]
    place = "byte " + fmt.count(token["begin"] + 1) + ("–" + fmt.count(token["end"]) if size > 1 else "")
    facts = "no." + fmt.SPACE + str(token["id"]) + (" · special" if token.get("special") else "") + " · " + fmt.size(size)
    tip = _head(token["text"], facts)
    tip.appendChild(make("p", place + " of the text; token " + fmt.count(at + 1) + " of " + fmt.count(total), "hint"))
    if pinned:
        notices.announce(spoken(token["text"]) + ", number " + str(token["id"]) + ", " + fmt.plural(size, "byte") + ", " + fmt.count(at + 1) + " of " + fmt.count(total))


def start():
    bridge.spans.watch("write-text", "write-output", written)
    bridge.spans.watch("split-output", "split-output", shown)
