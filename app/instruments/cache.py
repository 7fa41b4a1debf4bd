"""Guessing ahead: how many tokens a pass gives, by how often a guess stands and how many are made."""

import random

import lesson_draw as draw
from dom import button, empty, make


def expected(chance, ahead):
    """Tokens of a pass on average: one of the model's own, and each guess as long as all before it stood."""
    total, stands = 1.0, 1.0
    for _ in range(ahead):
        stands *= chance
        total += stands
    return total


def build(place, settings):
    now = {"chance": 0.6, "ahead": 4}
    row = make("p", cls="guesses prose")
    place.appendChild(row)
    say = draw.said(place)

    def show():
        tokens = expected(now["chance"], now["ahead"])
        say("On average a pass gives " + draw.plain(round(tokens, 2)) + " tokens, instead of 1. With more guesses it would be at most " + draw.plain(round(1 / (1 - min(now["chance"], 0.999)), 1)) + ".")

    def roll(event=None):
        empty(row)
        stood = 0
        while stood < now["ahead"] and random.random() < now["chance"]:
            stood += 1
        for at in range(int(now["ahead"])):
            kind = "stood" if at < stood else "refused" if at == stood else "dropped"
            row.appendChild(make("span", {"stood": "✓ stands", "refused": "✗ refused", "dropped": "dropped"}[kind], "guess " + kind))
        row.appendChild(make("span", "the model’s own", "guess own"))
        say("This pass gave " + str(stood + 1) + (" tokens." if stood else " token, the model’s own."))

    def chance(value):
        now["chance"] = value
        show()

    def ahead(value):
        now["ahead"] = int(value)
        show()

    draw.knob(place, "A guess stands", 0, 0.95, 0.05, 0.6, chance, lambda value: str(int(round(100 * value))) + " %")
    draw.knob(place, "Guesses at a time", 1, 8, 1, 4, ahead)
    line = make("div", cls="row")
    line.appendChild(button("One pass", roll))
    place.appendChild(line)
    show()
