"""Figures: every panel is labelled, nothing depends on the scale of the loss, and the same figure gives the same bytes."""

import re

import matplotlib as mpl
import pytest
import torch

from eigenscape import report
from eigenscape.core import Density, EigenPairs, Spectrum
from eigenscape.report.style import CSS_NAMES

SCALES = [1e-7, 1.0, 1e7]


def pairs(values, error=0.01):
    t = torch.tensor(values, dtype=torch.float64)
    r = error * t.abs()
    ends = torch.stack([t - r, t + r], -1)
    return EigenPairs(t, torch.zeros(100, len(t)), r, ends, 0, "made up", converged=True)


def top():
    return report.top_eigenvalues(pairs([10.0, 3.0, 1.0]), pairs([9.0, 2.0]), pairs([-0.5]), 0.1)


def measured(scale=1.0, n=1000):
    nodes = torch.tensor([[-0.5, -1e-3, 1e-4, 0.3, 9.0], [-0.4, -2e-3, 2e-4, 0.2, 10.0]], dtype=torch.float64)
    weights = torch.tensor([[0.01, 0.19, 0.7, 0.09, 0.01]], dtype=torch.float64).expand(2, 5)
    return Density(scale * nodes, weights, n, 10, "made up")


def closed_form(scale=1.0):
    values = scale * torch.tensor([-0.5, 0.0, 0.25, 10.0], dtype=torch.float64)
    return Spectrum(values, torch.tensor([10, 890, 99, 1]), ("bulk", "zero", "bulk", "outlier"))


def drawings(scale):
    top, low = pairs([10.0 * scale, 3.0 * scale, 1.0 * scale]), pairs([-0.5 * scale, -0.1 * scale])
    d, exact = measured(scale), {"Hessian": closed_form(scale)}
    return {
        "top": report.top_eigenvalues(top, pairs([9.0 * scale, 2.0 * scale]), low, 0.1 / scale),
        "density": report.density({"Hessian": d, "Gauss-Newton": measured(2 * scale)}, top.values, exact, 1e-7 * scale),
        "cumulative": report.cumulative({"Hessian": d}, exact),
        "layers": report.layers({"0.weight": d, "0.bias": measured(scale / 10)}),
        "overview": report.overview(top, None, {"Hessian": d}, learning_rate=0.1 / scale, title="made up"),
        "training": report.training_curve(
            [0, 1, 2], [scale, scale / 2, scale / 3], [0, 2], [8 * scale, 9 * scale], 0.2 / scale
        ),
    }


@pytest.mark.parametrize("scale", SCALES)
def test_every_panel_is_labelled_and_inside_its_limits(scale):
    for fig in drawings(scale).values():
        check(fig)


def check(fig):
    fig.draw_without_rendering()
    for ax in fig.axes:
        assert ax.get_xlabel() or ax.get_shared_x_axes().get_siblings(ax) != [ax]
        assert ax.get_ylabel() or ax.get_title(loc="left")
        low, high = ax.get_xlim()
        assert low < high
        ticks = [t for t in ax.get_xticks() if low <= t <= high]
        assert len(ticks) >= 2
    box, page = fig.get_tightbbox(), fig.bbox_inches
    assert box.x0 >= -0.02
    assert box.y0 >= -0.02
    assert box.x1 <= page.width + 0.02
    assert box.y1 <= page.height + 0.02


def line_heights(fig, panel):
    return [line.get_ydata() for line in fig.axes[panel].lines if len(line.get_ydata()) > 100]


def test_shapes_do_not_depend_on_the_scale():
    reference = drawings(1.0)["overview"]
    for scale in (1e-7, 1e7):
        scaled = drawings(scale)["overview"]
        for panel, factor in ((1, 1 / scale), (2, 1.0), (3, 1.0)):
            for a, b in zip(line_heights(reference, panel), line_heights(scaled, panel), strict=True):
                tall = a > 1e-6 * a.max()
                assert torch.allclose(torch.as_tensor(a[tall] * factor), torch.as_tensor(b[tall]), rtol=1e-3)


def test_a_single_outlier_of_a_large_matrix_stays_visible():
    d = Density(torch.tensor([[0.0, 50.0]]), torch.tensor([[1 - 1e-6, 1e-6]]), 1_000_000, 2, "made up")
    fig = report.density({"Hessian": d})
    for ax, where in zip(fig.axes, (50.0, 50.0)):
        bottom, top = ax.get_ylim()
        line = ax.lines[0]
        x, y = torch.as_tensor(line.get_xdata()), torch.as_tensor(line.get_ydata())
        height = float(y[(x - where).abs().argmin()])
        assert bottom < height < top


def test_densities_of_one_value_draw():
    for value in (0.0, 3.0):
        d = Density(torch.full((1, 1), value), torch.ones(1, 1), 7, 1, "made up")
        report.density({"Hessian": d}).draw_without_rendering()
        report.cumulative({"Hessian": d}).draw_without_rendering()


def test_svg_is_the_same_every_time_and_keeps_letters():
    once, again = (report.svg(top()) for _ in range(2))
    assert once == again
    assert "<text" in once
    assert "2 / learning rate = 20" in once


def test_inline_svg_has_its_own_ids_and_follows_the_page_colours():
    text = report.inline_svg(top(), "f7", "a label")
    ids = re.findall(r'\bid="([^"]*)"', text)
    assert ids
    assert all(i.startswith("f7-") for i in ids)
    assert all(u.startswith("f7-") for u in re.findall(r"url\(#([^)]*)\)", text) + re.findall(r'href="#([^"]*)"', text))
    assert 'aria-label="a label"' in text
    assert "var(--blue)" in text
    assert not any(colour in text for colour in CSS_NAMES)


def test_matplotlib_settings_are_left_alone():
    before = dict(mpl.rcParams)
    drawings(1.0)
    assert dict(mpl.rcParams) == before


def test_figures_are_written_as_png_and_svg(tmp_path):
    found = report.write_figures({"top": top()}, tmp_path / "new")
    assert found == {"top": tmp_path / "new" / "top.png"}
    assert found["top"].read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "new" / "top.svg").read_text().startswith("<?xml")


def test_text_on_a_page_is_escaped(tmp_path):
    fact = report.Fact("<a>", "1 < 2", "&", '"')
    table = report.Table(("<c>",), [["<d>"]], numeric=(0,))
    page = report.Page("<t>", "<s>", [fact], [report.Section("<h>", "<p>", table=table)])
    html = report.write(page, tmp_path / "page.html").read_text()
    for raw in ("<a>", "<c>", "<d>", "<s>", "<t>"):
        assert raw not in html.replace("<p><p>", "")
    assert "&lt;t&gt;" in html
    assert "1 &lt; 2" in html


@pytest.mark.parametrize("size", [1, 60])
def test_any_number_of_layers_draws(size):
    fig = report.layers({f"layer.{i}.weight": measured(10.0**-i) for i in range(size)})
    fig.draw_without_rendering()
    assert len(fig.axes[0].get_yticklabels()) == min(size, 40)
