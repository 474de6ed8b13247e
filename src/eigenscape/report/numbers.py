"""Numbers as people read them: enough digits to show what is known, and no more."""

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

PLAIN = (1e-3, 1e6)  # magnitudes written without an exponent


def number(value: float, digits: int = 4) -> str:
    """Write a number with `digits` significant digits, with an exponent only where it needs one.

    >>> number(12.3456), number(1.5e-7), number(26506), number(float("inf"))
    ('12.35', '1.500e-07', '26,506', 'inf')
    """
    if isinstance(value, int):
        return f"{value:,}"
    if not math.isfinite(value):
        return str(value)
    if value == 0:
        return "0"
    if PLAIN[0] <= abs(value) < PLAIN[1]:
        return f"{value:.{max(0, digits - 1 - math.floor(math.log10(abs(value))))}f}"
    return f"{value:.{digits - 1}e}"


def interval(lower: float, upper: float, digits: int = 2) -> str:
    """Write an interval with enough digits to tell its ends apart, rounded outwards.

    >>> interval(12.5031, 12.5118), interval(-0.5, 0.5), interval(1.23e-8, 1.25e-8)
    ('[12.5031, 12.5118]', '[-0.5, 0.5]', '[1.230, 1.250]e-08')
    """
    scale, width = max(abs(lower), abs(upper)), upper - lower
    if not math.isfinite(width) or width <= 0:
        return f"[{number(lower)}, {number(upper)}]"
    exponent = 0 if PLAIN[0] <= scale < PLAIN[1] else math.floor(math.log10(scale))
    last = max(math.floor(math.log10(width)) - digits + 1, math.floor(math.log10(scale)) - 14) - exponent
    quantum = Decimal(1).scaleb(min(last, 0))
    low = Decimal(repr(float(lower))).scaleb(-exponent).quantize(quantum, ROUND_FLOOR)
    high = Decimal(repr(float(upper))).scaleb(-exponent).quantize(quantum, ROUND_CEILING)
    return f"[{low:f}, {high:f}]" + (f"e{exponent:+03d}" if exponent else "")


def duration(seconds: float) -> str:
    """Write a time span.

    >>> duration(0.0123), duration(7.25), duration(95.0)
    ('0.01 s', '7.2 s', '1 min 35 s')
    """
    if seconds < 60:
        return f"{seconds:.2f} s" if seconds < 1 else f"{seconds:.1f} s"
    return f"{int(seconds // 60)} min {int(seconds % 60)} s"
