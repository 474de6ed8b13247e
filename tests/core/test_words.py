"""Layouts, spectra, results and random streams keep what their docstrings say."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from eigenscape.core import (
    Density,
    Estimate,
    ExplicitSpace,
    Layout,
    OperatorError,
    SolverError,
    Spectrum,
    TheoryError,
    random_like,
    resolve_generator,
)

LAYOUT = Layout(("net.0.weight", "net.0.bias", "head"), ((3, 2), (3,), ()))
shapes = st.lists(st.lists(st.integers(0, 3), max_size=3).map(tuple), min_size=1, max_size=5)


@given(shapes, st.integers(0, 2))
def test_flatten_and_unflatten_are_inverse(shapes, lead):
    layout = Layout(tuple(f"p{i}" for i in range(len(shapes))), tuple(shapes))
    vector = torch.arange(float(layout.size))
    assert torch.equal(layout.flatten(layout.unflatten(vector)), vector)
    stack = torch.randn(*([2] * lead), layout.size, generator=torch.Generator().manual_seed(0))
    for name, part in layout.unflatten(stack).items():
        assert torch.equal(part.reshape(*stack.shape[:-1], -1), stack[..., layout.slice(name)])


def test_layouts_select_and_index():
    assert LAYOUT.size == 10
    assert LAYOUT.select("net.*") == ("net.0.weight", "net.0.bias")
    assert LAYOUT.select(["head", "*.bias"]) == ("net.0.bias", "head")
    assert LAYOUT.select(lambda name: name.endswith("t")) == ("net.0.weight",)
    assert LAYOUT.indices(("head", "net.0.bias")).tolist() == [6, 7, 8, 9]
    assert LAYOUT.indices(()).tolist() == []
    assert LAYOUT.sub(("head", "net.0.bias")).names == ("net.0.bias", "head")
    assert Layout.of({"a": torch.ones(2, 3)}) == Layout(("a",), ((2, 3),))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: LAYOUT.slice("tail"), "no parameter is named 'tail'; expected one of net.0.weight"),
        (lambda: LAYOUT.select("conv*"), r"'conv\*' matches no parameter"),
        (lambda: LAYOUT.unflatten(torch.ones(4)), r"the vector has shape \(4,\); expected \(..., 10\)"),
        (lambda: LAYOUT.flatten({"head": torch.ones(())}), "the mapping lacks .*net.0.bias"),
        (
            lambda: LAYOUT.flatten({**LAYOUT.unflatten(torch.ones(10)), "head": torch.ones(2)}),
            r"'head' has shape \(2,\); expected \(\)",
        ),
    ],
)
def test_wrong_layouts_are_sentences(call, message):
    with pytest.raises(OperatorError, match=message):
        call()


def test_a_spectrum_counts_multiplicities():
    s = Spectrum(
        torch.tensor([[5.0, 0.0, -2.0], [7.0, 1.0, 9.0]]), torch.tensor([[1, 3, 1], [2, 3, 0]]), ("outlier", "zero", "bulk")
    )
    assert s.expand().tolist() == [[-2, 0, 0, 0, 5], [1, 1, 1, 7, 7]]
    assert s.n == 5
    assert s.max.tolist() == [5, 7]  # the absent 9 is not there
    assert s.min.tolist() == [-2, 1]
    assert s.trace.tolist() == [3, 17]
    assert s.condition_number.tolist() == [float("inf"), 7]


def test_eigenspaces_project():
    Q = torch.linalg.qr(torch.randn(4, 2, generator=torch.Generator().manual_seed(0))).Q
    s = Spectrum(torch.tensor([1.0]), torch.tensor([2]), ("bulk",), (ExplicitSpace(Q),))
    v = torch.arange(4.0)
    assert torch.equal(s.eigenspace(0), Q)
    assert torch.allclose(s.project(0, v), Q @ Q.mT @ v)
    assert ExplicitSpace(Q).dim == 2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Spectrum(torch.ones(2), torch.ones(2), ("bulk",)), "labels are .* expected 2"),
        (lambda: Spectrum(torch.ones(1), torch.ones(1), ("big",)), "labels are"),
        (lambda: Spectrum(torch.ones(1), torch.ones(1), ("bulk",), ()), "0 eigenspaces came with 1 values"),
        (lambda: Spectrum(torch.ones(1), torch.ones(1), ("bulk",)).eigenspace(0), "carries no eigenvectors"),
        (lambda: Spectrum(torch.ones(2, 1), torch.tensor([[1], [2]]), ("bulk",)), "different sizes"),
    ],
)
def test_wrong_spectra_are_sentences(call, message):
    with pytest.raises(TheoryError, match=message):
        call()


def test_estimates_widen_with_level_and_few_samples():
    e = Estimate(torch.tensor(10.0), torch.tensor(1.0), dof=2, num_matvecs=3, status="")
    assert float(e) == 10
    assert e.interval(0.95).tolist() == pytest.approx([10 - 4.302653, 10 + 4.302653])  # Student's t table
    for level in (0, 1, 95):
        with pytest.raises(SolverError, match=f"level is {level}; expected a number between 0 and 1"):
            e.interval(level)


def test_density_bands_contain_the_cdf_and_shrink_with_the_level():
    d = Density(torch.tensor([[0.0, 1.0, 2.0], [0.0, 1.0, 2.0]]), torch.tensor([[0.2, 0.5, 0.3], [0.3, 0.4, 0.3]]), 50, 6, "")
    grid = d.grid(64)
    wide, narrow = d.band(0.99, grid), d.band(0.5, grid)
    assert (wide[0] <= d.cdf(grid) + 1e-12).all()
    assert (d.cdf(grid) <= wide[1] + 1e-12).all()
    assert (narrow[1] - narrow[0] <= wide[1] - wide[0] + 1e-12).all()
    assert ((wide[0] * 50).round() - wide[0] * 50).abs().max() < 1e-9  # whole eigenvalues
    with pytest.raises(SolverError, match="level is 2"):
        d.band(2)
    with pytest.raises(SolverError, match="axis is 'cubic'"):
        d.pdf(axis="cubic")


def test_random_numbers_follow_the_generator_alone():
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    first = random_like((4, 3), resolve_generator(None), dtype=torch.float32, device="cpu")
    again = random_like((4, 3), resolve_generator(None), dtype=torch.float64, device="cpu")
    assert torch.equal(first, again.float())
    assert torch.equal(before, torch.random.get_rng_state())
    signs = random_like((500,), torch.Generator().manual_seed(1), dtype=torch.float32, device="cpu", kind="rademacher")
    assert signs.unique().tolist() == [-1, 1]
    own = torch.Generator().manual_seed(3)
    assert resolve_generator(own) is own
    with pytest.raises(ValueError, match="kind is 'uniform'"):
        random_like((1,), own, dtype=torch.float32, device="cpu", kind="uniform")
