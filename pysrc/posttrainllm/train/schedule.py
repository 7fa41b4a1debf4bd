"""The learning rate of a step and AdamW's recipe slot, with arithmetic that is the same on every platform.

libm's cos and pow may differ in the last bit between systems, and one bit in a weight is one bit too many for the
same-bits contract; sums and products of doubles do not differ.
"""

from __future__ import annotations

from collections.abc import Mapping


def cosine(fraction: float) -> float:
    """cos(π·fraction) for fraction in [0, 1] by its Taylor series about 1/2, error below 1e-15; cos(π/2 + t) = -sin t."""
    t = (fraction - 0.5) * 3.141592653589793
    term, total = t, t
    for k in range(1, 12):
        term = -term * t * t / ((2 * k) * (2 * k + 1))
        total += term
    return -total


def integer_power(base: float, exponent: int) -> float:
    """base**exponent by squaring: multiplications only."""
    result = 1.0
    while exponent:
        if exponent & 1:
            result *= base
        base *= base
        exponent >>= 1
    return result


def learning_rate(step: int, settings: Mapping) -> float:
    """Rate of step 1, 2, …: linear warm-up to the peak at step warmup_steps + 1, a cosine from there to the floor at
    step decay_steps, then the floor.

    It does not depend on how many steps are asked for, so a run that stops and goes on equals one that did not stop.
    """
    peak = settings["learning_rate"]
    warmup, horizon = settings["warmup_steps"], settings["decay_steps"]
    floor = peak * settings["minimum_learning_rate_fraction"]
    if step <= warmup:
        return peak * step / (warmup + 1)
    if step >= horizon:
        return floor
    fraction = (step - 1 - warmup) / (horizon - 1 - warmup)
    return floor + 0.5 * (peak - floor) * (1.0 + cosine(fraction))


def recipe(step: int, settings: Mapping) -> tuple[float, ...]:
    """[lr, beta1, beta2, eps, weight_decay, clip, correction1, correction2] of step 1, 2, …"""
    beta1, beta2 = settings["beta1"], settings["beta2"]
    return (
        learning_rate(step, settings),
        beta1,
        beta2,
        settings["eps"],
        settings["weight_decay"],
        settings["clip"],
        1.0 / (1.0 - integer_power(beta1, step)),
        1.0 / (1.0 - integer_power(beta2, step)),
    )
