"""The numbers that matter about one analysis, each with its certificate: for the page, the terminal and the notebook."""

from html import escape
from typing import TYPE_CHECKING

from ..report import Fact
from ..report.numbers import interval, number
from .derived import Interval

if TYPE_CHECKING:
    from .record import Analysis


def summary(a: "Analysis") -> str:
    """Say in one sentence what was analysed."""
    samples = number(int(a.num_samples)) if a.num_samples == int(a.num_samples) else number(a.num_samples)
    return f"{number(a.num_parameters)} parameters, {samples} samples, {a.provenance.dtype} on {a.provenance.device}."


def certainty(x: Interval) -> str:
    """Say between which ends a number lies, and how surely.

    >>> certainty(Interval(1.0, 0.5, 1.5, 0.999))
    'in [0.5, 1.5] with probability 0.999'
    """
    sure = "surely" if x.probability == 1 else f"with probability {x.probability:.4g}"
    return f"in {interval(x.lower, x.upper)} {sure}"


def facts(a: "Analysis") -> list[Fact]:
    """Return the numbers that matter, each with its certificate and its meaning."""
    trace = a.trace.interval(0.95).tolist()
    known = float(a.trace.stderr) == 0
    found = [
        Fact("Loss", number(a.loss), "", "mean over all samples"),
        Fact("Sharpness", number(a.sharpness.value), certainty(a.sharpness), "largest eigenvalue of the Hessian"),
        Fact(
            "Critical learning rate",
            number(a.critical_learning_rate.value),
            certainty(a.critical_learning_rate),
            "2 / sharpness: gradient descent is stable on the quadratic model below it",
        ),
        Fact(
            "Trace of the Hessian",
            number(float(a.trace.value)),
            "exact" if known else f"95 % interval {interval(trace[0], trace[1])}",
            "sum of all eigenvalues",
        ),
        Fact("Gradient norm", number(a.gradient_norm), "", "Euclidean, over all parameters"),
        Fact(
            "Gradient in the top subspace",
            f"{100 * a.gradient_share:.3g} %",
            f"of its squared norm, top {len(a.hessian)} eigenvectors",
            "near 100 %: steps go mostly along sharp directions",
        ),
        Fact("Condition number", number(a.condition.value), a.condition.meaning),
    ]
    if a.closed_form is not None:
        top, off = float(a.closed_form.max), a.sharpness.value - float(a.closed_form.max)
        told = f"by theory.{a.theorem}; measured minus exact is {number(off, 2)}"
        found.insert(2, Fact("Sharpness, exact", number(top), told, "from a closed form, without measuring"))
    if a.learning_rate is not None:
        meaning = "gradient descent is unstable where the sharpness exceeds it"
        found.insert(2, Fact("2 / learning rate", number(2 / a.learning_rate), f"learning rate {a.learning_rate:g}", meaning))
    if a.gap is not None:
        meaning = "distance of the two largest eigenvalues"
        found.append(Fact("Hessian against Gauss-Newton", number(a.gap.value), certainty(a.gap), meaning))
    return found


def as_text(a: "Analysis") -> str:
    """Write the facts for a terminal, one a line."""
    found = facts(a)
    wide, digits = max(len(f.name) for f in found), max(len(f.value) for f in found)
    lines = [f"  {f.name:<{wide}}  {f.value:>{digits}}  {f.certificate}".rstrip() for f in found]
    return "\n".join([f"Curvature of {a.name}: {summary(a)}", *lines])


def as_html(a: "Analysis") -> str:
    """Write the facts as a small table that leaves the look to its surroundings."""
    rows = "".join(
        f"<tr><th>{escape(f.name)}</th><td>{escape(f.value)}</td><td>{escape(f.certificate)}</td></tr>" for f in facts(a)
    )
    return f"<table><caption>Curvature of {escape(a.name)}: {escape(summary(a))}</caption><tbody>{rows}</tbody></table>"
