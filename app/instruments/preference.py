"""What DPO's loss sees: two answers that gain or lose, and all the others that it does not look at."""

import math

import lesson_draw as draw

CHOSEN, REJECTED = 0.35, 0.45  # before the first step; the rest is for all other answers


def shares(chosen_gain, rejected_gain):
    """Probabilities after gains in nats: chosen, rejected, all others. What is above 1 together is scaled down."""
    chosen, rejected = CHOSEN * math.exp(chosen_gain), REJECTED * math.exp(rejected_gain)
    whole = max(1.0, chosen + rejected)
    return chosen / whole, rejected / whole, max(0.0, 1 - (chosen + rejected) / whole)


def loss_of(margin):
    return max(-margin, 0.0) + math.log(1 + math.exp(-abs(margin)))


def build(place, settings):
    now = {"chosen": 0.0, "rejected": 0.0, "beta": 0.1}
    update = draw.bars(place, [("", 0, "") for _ in range(3)])
    meter = draw.bars(place, [("", 0, ""), ("", 0, "")])
    say = draw.said(place)

    def show():
        chosen, rejected, others = shares(now["chosen"], now["rejected"])
        update([("chosen", chosen, draw.percent(chosen)), ("rejected", rejected, draw.percent(rejected)), ("others", others, draw.percent(others))])
        # Gains as they are once the three shares make up a whole.
        gained, lost = math.log(chosen / CHOSEN), math.log(rejected / REJECTED)
        margin = now["beta"] * (gained - lost)
        loss, pull = loss_of(margin), 1 / (1 + math.exp(margin))
        meter([("loss", loss / 1.4, draw.plain(round(loss, 3))), ("pull", pull, draw.plain(round(pull, 3)))])
        words = "The margin is " + draw.plain(round(margin, 2)) + ", the loss " + draw.plain(round(loss, 3)) + ". "
        if margin > 0.01 and gained < -0.5:
            words += "The loss is better than at the start, and the chosen answer is less likely than it was. Others have taken its place."
        elif margin > 0.01:
            words += "The chosen answer has gained on the rejected one."
        elif margin < -0.01:
            words += "The rejected answer has gained: the pull is at its strongest."
        else:
            words += "As at the start: the logarithm of 2."
        say(words)

    set_ = draw.setter(now, show)
    draw.knob(place, "Chosen, nats gained", -6, 1, 0.1, 0, set_("chosen"))
    draw.knob(place, "Rejected, nats gained", -9, 1, 0.1, 0, set_("rejected"))
    draw.knob(place, "Beta", 0.05, 1, 0.05, 0.1, set_("beta"))
    show()
