"""Numbers as people read them. A missing or non-finite value is a dash."""

DASH = "–"


def finite(value):
    if value is None or isinstance(value, str):
        return False
    return value == value and value not in (float("inf"), float("-inf"))


def count(value):
    """1115394 -> 1,115,394"""
    if not finite(value):
        return DASH
    digits = str(int(abs(value)))
    groups = []
    while digits:
        groups.insert(0, digits[-3:])
        digits = digits[:-3]
    return ("-" if value < 0 else "") + ",".join(groups or ["0"])


def fixed(value, places=2):
    return "{:.{}f}".format(value, places) if finite(value) else DASH


def significant(value, digits=3):
    """0.00029871 -> 0.000299; never in exponent form unless very small."""
    if not finite(value):
        return DASH
    if value == 0:
        return "0"
    size = abs(value)
    if size < 1e-7 or size >= 1e9:
        return "{:.{}e}".format(value, digits - 1)
    places = digits - 1
    while size < 1:
        size *= 10
        places += 1
    while size >= 10 and places > 0:
        size /= 10
        places -= 1
    return "{:.{}f}".format(value, places)


def size(bytes_):
    """Bytes in the decimal units that file managers use."""
    if not finite(bytes_):
        return DASH
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if bytes_ >= scale * 0.9995:
            value = bytes_ / scale
            return (fixed(value, 1) if value < 99.95 else count(round(value))) + " " + unit
    return count(bytes_) + (" byte" if bytes_ == 1 else " bytes")


def duration(seconds):
    if not finite(seconds):
        return DASH
    whole = int(seconds + 0.5)
    if seconds < 1:
        return "under 1 s"
    if whole < 60:
        return str(whole) + " s"
    if whole < 3600:
        rest = whole % 60
        return str(whole // 60) + " min" + (" " + str(rest) + " s" if rest else "")
    minutes = whole // 60
    if minutes < 2880:
        rest = minutes % 60
        return str(minutes // 60) + " h" + (" " + str(rest) + " min" if rest else "")
    return count(minutes // 1440) + " days"


def plural(n, one, many=None):
    return count(n) + " " + (one if n == 1 else many or one + "s")
