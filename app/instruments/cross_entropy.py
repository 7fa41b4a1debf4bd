"""The surprise at a letter, and the gradient of its score, by the probability it was given."""

import math

import lesson_draw as draw


def build(place, settings):
    update = draw.bars(place, [("loss", 0, ""), ("gradient", 0, "")])
    say = draw.said(place)

    def show(percent):
        chance = percent / 100
        nats = -math.log(chance)
        update([("loss", nats / math.log(256), draw.plain(round(nats, 2)) + " nats"), ("push", 1 - chance, draw.plain(round(1 - chance, 3)))])
        say(
            "A letter that was given " + draw.plain(percent) + " % surprises by " + draw.plain(round(nats, 3)) + " nats, " + draw.plain(round(nats / math.log(2), 3))
            + " bits. Its score is pushed up by " + draw.plain(round(1 - chance, 3)) + "."
        )

    draw.knob(place, "Probability of what came", 0.4, 100, 0.4, 50, show, lambda value: draw.plain(round(value, 1)) + " %")
    show(50)
