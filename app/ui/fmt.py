"""Numbers as people read them. A missing or non-finite value is a dash."""

DASH = "–"
SPACE = "\u00a0"  # between a number and its unit: they stay on one line


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
            return (fixed(value, 1) if value < 99.95 else count(round(value))) + SPACE + unit
    return count(bytes_) + (SPACE + ("byte" if bytes_ == 1 else "bytes"))


def rate(flops_per_second):
    """Floating-point operations a second: 3.4e12 -> 3.40 TFLOP/s"""
    if not finite(flops_per_second):
        return DASH
    for unit, scale in (("TFLOP/s", 1e12), ("GFLOP/s", 1e9), ("MFLOP/s", 1e6)):
        if flops_per_second >= scale * 0.9995:
            return significant(flops_per_second / scale) + SPACE + unit
    return "under 1" + SPACE + "MFLOP/s"


def duration(seconds):
    if not finite(seconds):
        return DASH
    whole = int(seconds + 0.5)
    if seconds < 1:
        return "under 1" + SPACE + "s"
    if whole < 60:
        return str(whole) + SPACE + "s"
    if whole < 3600:
        return _two(whole, 60, "min", "s")
    if whole < 172800:
        return _two(whole // 60, 60, "h", "min")
    return count(whole // 86400) + SPACE + "days"


def about(seconds):
    """A duration that is an estimate."""
    return ("" if finite(seconds) and seconds < 1 else "about ") + duration(seconds)


def _two(amount, per, large, small):
    """130, 60 -> 2 min 10 s"""
    rest = amount % per
    return str(amount // per) + SPACE + large + (" " + str(rest) + SPACE + small if rest else "")


def plural(n, one, many=None):
    return count(n) + " " + (one if n == 1 else many or one + "s")
