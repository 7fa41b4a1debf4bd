"""Scores to probabilities, with a knob for each score and one for the temperature. Setting: scores."""

import math

import lesson_draw as draw
from dom import make


def softmax(scores, temperature):
    """exp(score / temperature), each divided by their sum; the largest comes off first."""
    top = max(scores)
    powers = [math.exp((score - top) / temperature) for score in scores]
    return [power / sum(powers) for power in powers]


def build(place, settings):
    scores = draw.numbers(settings, "scores", [2.0, 1.0, 0.0, -1.0])
    now = {"temperature": 1.0}
    names = [chr(ord("a") + at) for at in range(len(scores))]
    update = draw.bars(place, [(name, 0, "") for name in names])
    say = draw.said(place)

    def show():
        shares = softmax(scores, now["temperature"])
        update([(name + " " + draw.plain(score), share, draw.percent(share)) for name, score, share in zip(names, scores, shares)])
        best = shares.index(max(shares))
        say("At temperature " + draw.plain(now["temperature"]) + ", " + names[best] + " gets " + draw.percent(shares[best]) + ". Together they are 100 %.")

    def heat(value):
        now["temperature"] = value
        show()

    def score(at):
        def moved(value):
            scores[at] = value
            show()

        return moved

    draw.knob(place, "Temperature", 0.1, 5, 0.1, 1, heat)
    more = make("details", cls="plain")
    more.appendChild(make("summary", "Move the scores"))
    for at, name in enumerate(names):
        draw.knob(more, "Score of " + name, -5, 5, 0.5, scores[at], score(at))
    place.appendChild(more)
    show()
