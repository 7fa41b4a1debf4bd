"""The gate's verdict as a table: each figure before and after, what was asked, and whether it was kept."""

import fmt
from dom import el, empty, make, sentences, show, text

NATS, BYTES, SHARE = "nats", "bytes", "share"


def _told(value, unit):
    if not fmt.finite(value):
        return fmt.DASH
    if unit == SHARE:
        return fmt.fixed(100 * value, 0) + " %"
    return fmt.fixed(value, 3 if unit == NATS else 1)


def rows(f, b):
    """[(what, before, after, what is asked, passed or None)] of a gate's figures and bounds."""
    found = []

    def add(name, before, after, asked, passed, unit):
        if fmt.finite(after):
            found.append((name, _told(before, unit), _told(after, unit), asked, passed))

    def rise(name, before, after, bound, unit, words):
        keeps = fmt.finite(f.get(before)) and fmt.finite(f.get(after)) and f[after] - f[before] <= b[bound]
        add(name, f.get(before), f.get(after), "at most " + _told(b[bound], unit) + words, keeps, unit)

    def number(name):
        return f[name] if fmt.finite(f.get(name)) else float("nan")

    add("Corrections held out: loss", f.get("held_out_before_nats"), f.get("held_out_after_nats"), "lower by " + _told(b["held_out_margin_nats"], NATS),
        number("held_out_before_nats") - number("held_out_after_nats") >= b["held_out_margin_nats"], NATS)
    add("Corrections held out: better foreseen", None, f.get("held_out_wins"), "at least " + _told(b["held_out_wins"], SHARE), number("held_out_wins") >= b["held_out_wins"], SHARE)
    add("Corrections held out: loss a byte, beside its own text", f.get("base_nats_per_byte"), f.get("held_out_after_nats_per_byte"),
        "at most " + _told(b["held_out_above_base_nats_per_byte"], NATS) + " above", number("held_out_after_nats_per_byte") - number("base_nats_per_byte") <= b["held_out_above_base_nats_per_byte"], NATS)
    add("The better of two answers gains more", None, f.get("preference_accuracy"), "at least " + _told(b["preference_accuracy"], SHARE), number("preference_accuracy") >= b["preference_accuracy"], SHARE)
    rise("Its first text, unseen part: loss", "base_before_nats", "base_after_nats", "base_rise_nats", NATS, " higher")
    rise("Fixed passages: loss", "probe_before_nats", "probe_after_nats", "probe_rise_nats", NATS, " higher")
    add("The passage that suffered most", None, f.get("probe_worst_rise_nats"), "at most " + _told(b["probe_worst_rise_nats"], NATS) + " higher",
        number("probe_worst_rise_nats") <= b["probe_worst_rise_nats"], NATS)
    rise("Beginnings it recites word for word", "recital_before", "recital_after", "recital_rise", SHARE, " more")
    rise("Longest run copied from its text, bytes", "copied_before_bytes", "copied_after_bytes", "copied_rise_bytes", BYTES, " more")
    rise("Answers that come unasked, bytes", "answers_before_bytes", "answers_after_bytes", "answers_rise_bytes", BYTES, " more")
    return found


def draw(gate):
    """Show a verdict; None takes it away."""
    show("improve-verdict", bool(gate))
    empty("improve-figures")
    if not gate:
        return
    text("improve-verdict-text", "It passed." if gate.get("passed") else "It did not pass, so it was kept aside. What was on is still on.")
    sentences("improve-reasons", list(gate.get("reasons") or []) + list(gate.get("notes") or []))
    for name, before, after, asked, passed in rows(gate["figures"], gate["bounds"]) if gate.get("figures") else []:
        row = make("tr")
        row.appendChild(make("th", name, scope="row"))
        for words in (before, after, asked):
            row.appendChild(make("td", words))
        row.appendChild(make("td", "yes" if passed else "no", None if passed else "missed"))
        el("improve-figures").appendChild(row)
