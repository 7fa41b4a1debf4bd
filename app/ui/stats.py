"""The numbers beside the chart, the progress bar and the live sample."""

import math

from pyscript.js_modules import bridge

import fmt
from dom import el, empty, make, show, text

NAMES = ["loss", "validation", "perplexity", "bits", "speed", "norm", "lr", "step", "elapsed", "eta"]
MOST_SAMPLES = 20

_best = None
_samples = 0
_last_sample = None
_bytes_per_token = 1.0  # of the run that is shown


def run(event):
    """A run is shown, in its own tokens."""
    global _bytes_per_token
    _bytes_per_token = event.get("bytes_per_token") or 1.0


def reset():
    global _best, _samples, _last_sample
    for name in NAMES:
        text("stat-" + name, fmt.DASH)
    _best = None
    _samples = 0
    _last_sample = None
    empty("sample-history")
    show("sample-history-box", False)
    text("sample-step", "")
    text("sample-prompt", "")
    text("sample-text", "A sample appears here while it trains.")
    el("sample-text").className = "quiet"
    progress(0, 1)


def progress(step, steps):
    bar = el("train-progress")
    bar.max = max(steps or 1, 1)
    bar.value = step


def loss_alone(loss_nats):
    """A loss with the two figures that follow from it."""
    known = fmt.finite(loss_nats)
    losses(loss_nats, math.exp(min(loss_nats, 700)) if known else None, loss_nats / _bytes_per_token / math.log(2) if known else None)


def losses(loss_nats, perplexity, bits_per_byte):
    text("stat-loss", fmt.fixed(loss_nats, 3))
    text("stat-perplexity", fmt.significant(perplexity))
    text("stat-bits", fmt.fixed(bits_per_byte, 3))


def step(event):
    losses(event.get("loss_nats"), event.get("perplexity"), event.get("bits_per_byte"))
    text("stat-norm", fmt.significant(event.get("gradient_norm")))
    text("stat-lr", fmt.significant(event.get("learning_rate")))
    text("stat-speed", fmt.count(event.get("tokens_per_second")))
    text("stat-step", fmt.count(event.get("step")) + " of " + fmt.count(event.get("steps")))
    text("stat-elapsed", fmt.duration(event.get("elapsed_seconds")))
    text("stat-eta", fmt.duration(event.get("eta_seconds")))
    progress(event.get("step") or 0, event.get("steps"))


def back_to(step, steps, loss_nats, validation_loss_nats):
    """The run stands at an earlier step again."""
    global _best
    _best = None  # it may have been measured after that step
    loss_alone(loss_nats)
    text("stat-validation", fmt.fixed(validation_loss_nats, 3))
    for name in ("speed", "norm", "lr", "eta"):
        text("stat-" + name, fmt.DASH)
    text("stat-step", fmt.count(step) + " of " + fmt.count(steps))
    progress(step, steps)


def nothing_left():
    """The run is over."""
    text("stat-eta", fmt.DASH)


def evaluation(event):
    global _best
    loss = event.get("validation_loss_nats")
    if not fmt.finite(loss):
        return
    _best = loss if _best is None or loss < _best else _best
    validation(loss, event.get("bits_per_byte"))
    if loss > _best:
        el("stat-validation").appendChild(make("small", "best " + fmt.fixed(_best, 3)))
    bridge.chart.validation(event.get("step"), loss)


def validation(loss, bits_per_byte=None):
    """The loss on the text kept aside; where tokens are not bytes also as bits per byte, which compare."""
    if fmt.finite(loss):
        text("stat-validation", fmt.fixed(loss, 3))
        if _bytes_per_token != 1 and fmt.finite(bits_per_byte):
            el("stat-validation").appendChild(make("small", fmt.fixed(bits_per_byte, 3) + " bits per byte"))


def sample(event):
    """Show the newest sample; the one before moves to the list, so its progress can be read."""
    global _samples, _last_sample
    if _last_sample is not None:
        item = make("li")
        item.appendChild(make("span", _steps_of(_last_sample, "Step", "Steps"), "hint"))
        body = make("p")
        body.appendChild(make("span", _prompt(_last_sample), "prompt"))
        body.appendChild(make("span", _last_sample.get("text") or ""))
        item.appendChild(body)
        history = el("sample-history")
        history.insertBefore(item, history.firstChild)
        _samples += 1
        if _samples > MOST_SAMPLES:  # keep the first one: the contrast with it is the point
            history.children.item(MOST_SAMPLES - 1).remove()
            _samples -= 1
        show("sample-history-box", True)
    _last_sample = event
    text("sample-step", _steps_of(event, "at step", "written at steps"))
    text("sample-prompt", _prompt(event))
    text("sample-text", event.get("text") or "")
    el("sample-text").className = ""


def _steps_of(event, at, during):
    """When a sample was written: a model that trains meanwhile changes from one letter to the next."""
    first, last = event.get("first_step"), event.get("step")
    if first is None or first == last:
        return at + " " + fmt.count(last)
    return during + " " + fmt.count(first) + "–" + fmt.count(last)


def _prompt(event):
    """What the sample began with, as shown: a mere line break needs no empty line."""
    prompt = event.get("prompt") or ""
    return prompt if prompt.strip() else ""


def describe(step_event, validation_loss=None):
    """One sentence about the chart, for screen readers; set when a run pauses or ends, not at each step."""
    if not step_event:
        return
    sentence = "Training loss {} after {}".format(fmt.fixed(step_event.get("loss_nats"), 2), fmt.plural(step_event.get("step"), "step"))
    if fmt.finite(validation_loss):
        sentence += ", validation loss " + fmt.fixed(validation_loss, 2)
    bridge.chart.describe(sentence + ".")
