"""The figures of [cracking]: measured, drawn, judged, and the numbers behind them found again by other means."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from drawn import agreements, check_figure, judged, table

from eigenscape.ensembles import hessian, initialise, train
from eigenscape.experiments.machine import Rows, stream
from eigenscape.experiments.papers.cracking import FIGURES
from eigenscape.experiments.papers.cracking.correlations import alignments, correlate, knocked_out
from eigenscape.experiments.papers.cracking.depth_claims import of_depths
from eigenscape.experiments.papers.cracking.norm_claims import strongest
from eigenscape.experiments.papers.cracking.norms import END, START, Nets, cells, measure, sized
from eigenscape.experiments.papers.cracking.pairs import closest_pair, gaps_to
from eigenscape.experiments.synthetic import teacher
from eigenscape.solvers import eigsh

BY_ID = {figure.id.partition("/")[2]: figure for figure in FIGURES}
CPU = torch.device("cpu")


@pytest.mark.parametrize("name", BY_ID)
def test_every_figure_is_measured_drawn_and_judged(name):
    check_figure(BY_ID[name])


def test_every_figure_without_a_language_model_is_there():
    numbers = [1, 2, 3, 4, 7, 8, 9, *range(10, 23), 26, 27]
    assert {f"fig{n}" for n in numbers} <= set(BY_ID)


def test_closed_forms_are_the_spectra_of_the_networks():
    assert agreements(BY_ID["fig7"])[1] == "agrees"
    assert judged(BY_ID["fig2"])["the closed form is the spectrum of a head with d_K = 1000"].agreement == "agrees"
    for n in (3, 10, 11, 12, 13):
        found = judged(BY_ID[f"fig{n}"])
        if "the spectra are those of the networks" in found:
            assert found["the spectra are those of the networks"].agreement == "agrees"


def test_orthogonal_weights_and_decorrelated_data_have_their_pair():
    rows = table(BY_ID["fig10"]).where(weights="orthogonal", data="decorrelated")
    assert (rows["gap"] <= 1e-13 * rows["target"]).all(), "a theorem"


def test_the_closest_pair_by_trying_all():
    g = torch.Generator().manual_seed(0)
    for _ in range(20):
        values = torch.randn(9, generator=g, dtype=torch.float64).sort().values
        target = float(torch.randn(1, generator=g))
        gaps = sorted(abs(float(values[i] + values[j]) - target) for i in range(9) for j in range(i))
        pair = closest_pair(values, target)
        assert (pair.gap, pair.next_gap) == pytest.approx(gaps[:2])
        assert gaps_to(values, torch.tensor([target], dtype=torch.float64)).item() == pytest.approx(gaps[0])


def test_correlations_are_those_of_numpy_and_the_bootstrap_that_of_theory():
    g = torch.Generator().manual_seed(1)
    x = torch.randn(400, generator=g, dtype=torch.float64)
    Q = torch.stack([x + s * torch.randn(400, generator=g, dtype=torch.float64) for s in (0.1, 1.0, 10.0)], -1) + 1000
    found = correlate(x, Q, g, 2000)
    exact = [np.corrcoef(x, q)[0, 1] for q in Q.T]
    assert found.values.tolist() == pytest.approx(exact, abs=1e-12)
    assert found.errors.tolist() == pytest.approx([(1 - r * r) / 400**0.5 for r in exact], rel=0.2)


def test_knocked_out_products_and_alignments():
    g = torch.Generator().manual_seed(2)
    W = tuple(torch.randn(3, *shape, generator=g, dtype=torch.float64) for shape in ((5, 2), (5, 5), (5, 5), (2, 5)))
    torch.testing.assert_close(knocked_out(W, 0), W[3] @ W[2] @ W[1])
    torch.testing.assert_close(knocked_out(W, 1), W[3] @ W[2] @ W[0])
    torch.testing.assert_close(knocked_out(W, 3), W[2] @ W[1] @ W[0])
    spectral, frobenius, nuclear = alignments(W[3], W[0])[0].tolist()
    product = W[3][0] @ W[0][0]
    assert spectral == pytest.approx(torch.linalg.matrix_norm(product, 2).item())
    assert frobenius == pytest.approx(abs(torch.trace(product).item()))
    assert nuclear == pytest.approx(torch.linalg.matrix_norm(product, "nuc").item())


def test_of_one_input_the_sharpness_is_known_in_closed_form():
    # One input and output: the trained sharpness is close to s2 (|w|^2 + |v|^2), so that with |v| >> |w| it goes with |v|.
    rows = table(BY_ID["fig4"]).where(weights="sp", inputs=1, of="sharpness", kind="single")
    assert (rows.where(matrix=1)["pearson"] > 0.99).all()
    assert len({round(row["pearson"], 9) for row in rows.where(matrix=1, when=START)}) == 1, "the three norms are one"


def test_the_trace_is_the_sum_of_squared_frobenius_norms():
    # White inputs: tr H = D (|W_1|^2 + |W_2|^2), so that the two correlations add up to one where the matrices are as large.
    rows = table(BY_ID["fig26"]).where(weights="ntp", inputs=1, of="trace", when=START, norm="frobenius", kind="single")
    r = rows["pearson"]
    assert r.min() > 0.4
    rows = table(BY_ID["fig26"]).where(weights="sp", of="trace", norm="frobenius", kind="single", matrix=1)
    assert rows["pearson"].min() > 0.8


def test_a_row_is_what_the_networks_themselves_say():
    cell = sized(Nets("ntp", 1, depth=3), "smoke")
    rows = Rows(measure(cell, CPU))
    nets, _ = initialise("ntp", cell.widths, cell.count, stream(cell, "weights"))
    X, Y = teacher("linear", cell.samples, 1, 1, stream(cell, "data"))
    V, M, _ = nets.weights
    top = eigsh(hessian(nets, X, Y), 1, tol=1e-8).values[:, 0]
    expected = np.corrcoef(top, torch.linalg.matrix_norm(M @ V, 2).square())[0, 1]
    found = rows.where(when=START, of="sharpness", kind="product", matrix=3, norm="spectral")[0]
    assert found["pearson"] == pytest.approx(expected, abs=1e-5)


def test_measuring_twice_gives_the_same_rows():
    cell = sized(Nets("sp", 3, activation="relu"), "smoke")
    assert measure(cell, CPU) == measure(cell, CPU)


def test_diverged_networks_are_counted_and_left_out():
    cell = replace(sized(Nets("sp", 1), "smoke"), steps=400)
    rows = Rows(measure(replace(cell, lr=0.13), CPU))
    assert 0 < rows[0]["diverged"] < 12
    assert np.isfinite(rows.where(lambda row: row["kind"] != "training")["pearson"]).all()
    (told,) = measure(replace(cell, lr=0.5), CPU)
    assert told["diverged"] == 12, "of nobody there is no correlation"


def test_groups_do_not_change_what_is_trained():
    cell = replace(sized(Nets("sp", 2), "smoke"), count=25)
    whole, parts = measure(cell, CPU), measure(cell, CPU)
    assert whole == parts
    nets, rates = initialise("sp", cell.widths, 25)
    g = torch.Generator().manual_seed(0)
    X = torch.randn(64, 2, generator=g, dtype=torch.float64)
    together = train(nets, X, X, steps=30, lr=0.01, batch=16, rates=rates, seeds=range(25))
    alone = train(nets.select(slice(20, 25)), X, X, steps=30, lr=0.01, batch=16, rates=rates, seeds=range(20, 25))
    torch.testing.assert_close(together.ensemble.weights[0][20:], alone.ensemble.weights[0], rtol=1e-12, atol=1e-14)


def test_small_networks_are_checked_against_autograd():
    rows = table(BY_ID["fig17"]).where(kind="training", depth=2)
    assert (rows["error_start"] < 1e-6).all()
    assert (rows["error_end"] < 1e-6).all()


def lead(norm, lead_, error=0.01, when=END, inputs=10):
    return {"weights": "sp", "inputs": inputs, "of": "sharpness", "kind": "best", "norm": norm, "when": when} | {
        "pearson": 0.5,
        "lead": lead_,
        "error": error,
    }


@pytest.mark.parametrize(
    ("leads", "said"),
    [((0.2, 0.1), "agrees"), ((0.2, -0.1), "disagrees"), ((0.2, 0.1, -0.1), "partly"), ((0.1, 0.1, -0.005), "partly")],
)
def test_verdicts_follow_the_numbers(leads, said):
    found = []
    for when in (START, END):
        for D, value in enumerate(leads, 2):
            found += [
                lead(n, value if n == "spectral" else -value, when=when, inputs=D) for n in ("spectral", "frobenius", "nuclear")
            ]
    verdicts = strongest(Rows(found), "spectral", "here", "it leads")
    assert [str(v.agreement) for v in verdicts] == [said, said]
    assert f"at {sum(t > 0 for t in leads)} of {len(leads)} points" in verdicts[0].ours


def test_of_two_layers_the_product_without_one_matrix_is_the_other():
    rows = table(BY_ID["fig17"])
    single = of_depths(rows, "single", "spectral").where(depth=2, weights="sp", when=START)
    product = of_depths(rows, "product", "spectral").where(depth=2, weights="sp", when=START)
    one, other = ({row["matrix"]: row["pearson"] for row in part} for part in (single, product))
    assert one == {1: other[2], 2: other[1]}


def test_the_papers_sizes():
    found = cells("paper")
    assert all((c.count, c.samples, c.batch) == (200, 1024, 128) for c in found)
    assert {c.inputs for c in found if c.depth == 2 and c.activation == "linear"} >= {1, 10, 100}
    assert {c.depth for c in found} == {2, 3, 4, 5, 6}
    slow = {(c.weights, c.inputs) for c in found if c.lr == 1e-3}
    assert slow == {("sp", 1), ("mup", 1)}
    assert all(c.depth > 2 for c in found if c.lr == 1e-3)


def test_a_plane_is_never_left():
    assert agreements(BY_ID["corollary31"])[0] == "agrees"
