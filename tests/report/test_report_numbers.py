"""Numbers on a page are readable, and their intervals are never narrower than what was measured."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from eigenscape.report.numbers import duration, interval, number

finite = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e30, max_value=1e30)


@given(finite, st.integers(1, 10))
def test_a_number_is_written_to_its_digits(value, digits):
    written = float(number(value, digits).replace(",", ""))
    assert written == pytest.approx(value, rel=0.51 * 10 ** (1 - digits), abs=0)


@given(finite, finite)
def test_an_interval_is_rounded_outwards(a, b):
    lower, upper = min(a, b), max(a, b)
    assume(upper - lower > 1e-12 * max(abs(lower), abs(upper)))
    body, _, exponent = interval(lower, upper).partition("]")
    low, high = (float(f"{end}{exponent}") for end in body.removeprefix("[").split(", "))
    assert low <= lower + 1e-15 * abs(lower)
    assert high >= upper - 1e-15 * abs(upper)
    assert high - low <= 1.3 * (upper - lower) + 1e-13 * max(abs(lower), abs(upper))


@pytest.mark.parametrize(
    ("ends", "text"),
    [((2.0, 2.0), "[2.000, 2.000]"), ((1.0, math.inf), "[1.000, inf]"), ((-1e-9, 3e7), "[-0.1, 3.0]e+07")],
)
def test_interval_corner_cases(ends, text):
    assert interval(*ends) == text


def test_durations_and_counts():
    assert duration(0.5) == "0.50 s"
    assert duration(3600) == "60 min 0 s"
    assert number(1234567) == "1,234,567"
    assert number(float("nan")) == "nan"
    assert number(0.0) == "0"
