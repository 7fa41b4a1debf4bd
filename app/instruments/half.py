"""A gradient, a loss scale, and the sixteen bits that are left of it. Settings: gradient (power of ten), scale (power of two)."""

import math

import lesson_draw as draw
from dom import make

LARGEST = 65504.0


def halve(x):
    """x as f16 has it, with its 16 bits as text; "inf" where it is too large."""
    sign = "1" if x < 0 else "0"
    size = abs(x)
    if size == 0:
        return 0.0, sign + "0" * 15
    power = max(-14, math.floor(math.log(size) / math.log(2)))
    while power > -14 and 2.0**power > size:  # log rounds
        power -= 1
    while 2.0 ** (power + 1) <= size:
        power += 1
    step = 2.0 ** (power - 10)
    count = size / step
    whole = int(count)
    rest = count - whole
    if rest > 0.5 or (rest == 0.5 and whole % 2):
        whole += 1
    value = whole * step
    if value > LARGEST:
        return None, sign + "11111" + "0" * 10
    if whole >= 2048:
        power, whole = power + 1, 1024
    exponent = power + 15 if whole >= 1024 else 0
    return (-value if x < 0 else value), sign + binary(exponent, 5) + binary(whole % 1024, 10)


def binary(number, digits):
    """number in so many binary digits."""
    found = ""
    for _ in range(digits):
        found = str(number % 2) + found
        number //= 2
    return found


def small(x):
    """A number as 1.23e-5."""
    if x == 0:
        return "0"
    power = math.floor(math.log10(abs(x)))
    return draw.plain(round(x / 10.0**power, 2)) + "e" + str(power)


def build(place, settings):
    now = {"gradient": float(settings.get("gradient", "-6.3")), "scale": int(settings.get("scale", "0"))}
    strip = make("div", cls="half-bits")
    bits = []
    for at in range(16):
        bit = make("span", cls="half-bit " + ("sign" if at == 0 else "exponent" if at < 6 else "fraction"))
        strip.appendChild(bit)
        bits.append(bit)
    place.appendChild(strip)
    place.appendChild(make("p", "1 bit of sign, 5 of exponent, 10 of fraction.", cls="hint"))
    say = draw.said(place)

    def show():
        gradient = 10.0 ** now["gradient"]
        scale = 2.0 ** now["scale"]
        kept, shown = halve(gradient * scale)
        for bit, digit in zip(bits, shown):
            bit.textContent = digit
        words = "The gradient " + small(gradient) + (", scaled to " + small(gradient * scale) + "," if now["scale"] else "")
        if kept is None:
            say(words + " is too large for f16: infinite. The step is skipped and the scale halved.")
        elif kept == 0:
            say(words + " is too small for f16: it becomes 0 and is lost. Scale it up.")
        else:
            off = abs(kept / scale / gradient - 1)
            left = " Exponent 0: fewer digits are left down here." if shown[1:6] == "00000" else ""
            say(words + " comes back as " + small(kept / scale) + ", " + draw.plain(round(100 * off, 3)) + " % off." + left)

    def change(name):
        def moved(value):
            now[name] = value
            show()

        return moved

    draw.knob(place, "Gradient", -9, 1, 0.1, now["gradient"], change("gradient"), lambda value: small(10.0**value))
    draw.knob(place, "Loss scale", 0, 24, 1, now["scale"], change("scale"), lambda value: "2^" + str(int(value)))
    show()
