"""An analysis as pictures and as a page: which number goes where, and the sentence that says how to read it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from matplotlib.figure import Figure

from .. import report
from ..core import Density, EigenPairs, Spectrum
from ..report import Page, Section, Table
from ..report.numbers import duration, interval, number
from .facts import facts, summary
from .reading import READING

if TYPE_CHECKING:
    from .record import Analysis


def _curves(a: "Analysis") -> dict[str, Density]:
    named = {"Hessian": a.density, "Gauss-Newton": a.ggn_density}
    return {name: d for name, d in named.items() if d is not None}


def _exact(a: "Analysis") -> dict[str, Spectrum]:
    """A closed form to lay over a measured density."""
    return {"Hessian": a.closed_form} if a.closed_form is not None and a.density is not None else {}


def _noise(a: "Analysis") -> float:
    """Magnitudes that rounding cannot tell from zero: eps times the largest one."""
    return torch.finfo(getattr(torch, a.provenance.dtype)).eps * float(a.hessian.values.abs().max())


def figures(a: "Analysis") -> dict[str, Figure]:
    """Draw every picture, by name."""
    curves, exact = _curves(a), _exact(a)
    drawn = {"top_eigenvalues": report.top_eigenvalues(a.hessian, a.ggn, a.lowest, a.learning_rate)}
    if curves:
        drawn["density"] = report.density(curves, a.hessian.values, exact, _noise(a))
        drawn["cumulative"] = report.cumulative(curves, exact)
    if a.blocks:
        drawn["layers"] = report.layers(a.blocks)
    return drawn


def sheet(a: "Analysis") -> Figure:
    """Draw everything on one sheet."""
    title = f"{a.name}: {number(a.num_parameters)} parameters, loss {number(a.loss)}"
    rate = a.learning_rate
    return report.overview(a.hessian, a.ggn, _curves(a), learning_rate=rate, exact=_exact(a), noise=_noise(a), title=title)


def _eigenvalue_table(a: "Analysis") -> Table:
    kinds: list[tuple[str, EigenPairs]] = [("Hessian, largest", a.hessian), ("Hessian, smallest", a.lowest)]
    if a.ggn is not None:
        kinds.insert(1, ("Gauss-Newton, largest", a.ggn))
    rows = [
        [kind, str(i + 1), number(value, 6), interval(*ends), number(residual, 2)]
        for kind, pairs in kinds
        for i, (value, ends, residual) in enumerate(
            zip(pairs.values.tolist(), pairs.intervals.tolist(), pairs.residual_norms.tolist())
        )
    ]
    return Table(("matrix", "rank", "eigenvalue", "surely holds one", "residual norm"), rows, numeric=(1, 2, 3, 4))


def _exact_section(a: "Analysis") -> list[Section]:
    """The closed form beside the measurement, eigenvalue by eigenvalue."""
    if a.closed_form is None:
        return []
    said = next(s.status for s in a.provenance.stages if s.name == "closed form")
    values = a.closed_form.expand()
    ends = (("largest", a.hessian, values.flip(0)), ("smallest", a.lowest, values))
    rows = [
        [end, str(i + 1), number(exact, 8), number(found, 8), number(found - exact, 2)]
        for end, pairs, known in ends
        for i, (exact, found) in enumerate(zip(known.tolist(), pairs.values.tolist()))
    ]
    trace = float(a.closed_form.trace)
    rows.append(["trace", "", number(trace, 8), number(float(a.trace.value), 8), number(float(a.trace.value) - trace, 2)])
    table = Table(("of the Hessian", "rank", "exact", "measured", "difference"), rows, numeric=(1, 2, 3, 4))
    return [Section("Exact beside measured", f"This network has a closed form: {said}.", table=table)]


def _stage_table(a: "Analysis") -> Table:
    rows = [[s.name, duration(s.seconds), number(s.num_matvecs), s.status] for s in a.provenance.stages]
    total = ["together", duration(a.provenance.seconds), number(a.provenance.num_matvecs), ""]
    return Table(("measurement", "time", "products", "how it ended"), [*rows, total], numeric=(1, 2))


def _setting_table(a: "Analysis") -> Table:
    how = a.provenance
    rows = [
        ["command", how.command],
        ["started", how.started],
        ["versions", ", ".join(f"{name} {version}" for name, version in how.versions.items())],
        ["device", f"{how.device}, {how.dtype}, {how.threads} CPU thread{'s' if how.threads != 1 else ''}"],
        ["products", how.engine],
        ["seed", str(how.seed)],
        *([name, text] for name, text in a.notes.items()),
    ]
    return Table(("what", "value"), rows)


def _layout_table(a: "Analysis") -> Table:
    rows = [
        [name, " x ".join(map(str, shape)) or "scalar", number(size)]
        for name, shape, size in zip(a.layout.names, a.layout.shapes, a.layout.sizes)
    ]
    return Table(("parameter", "shape", "entries"), rows, numeric=(1, 2))


def page(a: "Analysis", opening: Sequence[Section] = ()) -> Page:
    """Lay out the report; `opening` sections come first."""
    titles = {
        "top_eigenvalues": "Sharpest directions",
        "density": "Density of eigenvalues",
        "cumulative": "Share of eigenvalues below a point",
        "layers": "Layer by layer",
    }
    drawn = [Section(titles[name], figure=fig, reading=READING[name]) for name, fig in figures(a).items()]
    products = "A product is one multiplication of a matrix with a vector: about as much work as two gradients."
    rest = [
        *_exact_section(a),
        Section("All eigenvalues found", table=_eigenvalue_table(a)),
        Section("What was measured", products, table=_stage_table(a)),
        Section("How to measure it again", table=_setting_table(a)),
        Section("Parameters", table=_layout_table(a)),
    ]
    return Page(f"Curvature of {a.name}", summary(a), facts(a), [*opening, *drawn, *rest])
