"""What es.analyze says agrees with brute force, and leaves nothing behind."""

import math

import pytest
import torch
from small_nets import brute_force, objective
from torch import nn
from torch.testing import assert_close

import eigenscape as es
from eigenscape.analysis import analyze


@pytest.fixture(scope="module")
def obj():
    return objective()


@pytest.fixture(scope="module")
def truth(obj):
    return brute_force(obj)


@pytest.fixture(scope="module")
def exact(obj):
    return analyze(obj, k=5)


@pytest.fixture(scope="module")
def sampled(obj):
    return analyze(obj, k=5, small=0, density_steps=30, density_probes=4, ggn_density=True, blocks=True)


def test_every_number_agrees_with_brute_force(exact, truth):
    g, H, G = truth
    top, low, both = torch.linalg.eigh(H), torch.linalg.eigvalsh(H)[:3], torch.linalg.eigvalsh(G).flip(0)[:5]
    assert_close(exact.hessian.values, top.eigenvalues.flip(0)[:5], rtol=1e-6, atol=0)
    assert_close(exact.lowest.values, low, rtol=1e-5, atol=1e-8)
    assert_close(exact.ggn.values, both, rtol=1e-6, atol=0)
    assert_close(exact.trace.value, H.trace())
    assert_close(exact.gradient_norm, float(g.norm()))
    share = float((top.eigenvectors[:, -5:].T @ g).norm() ** 2 / g.norm() ** 2)
    assert_close(exact.gradient_share, share, rtol=1e-3, atol=0)
    sharpness = float(top.eigenvalues[-1])
    assert_close(exact.critical_learning_rate.value, 2 / sharpness, rtol=1e-6, atol=0)
    assert_close(exact.gap.value, abs(sharpness - float(both[0])), rtol=1e-4, atol=0)
    magnitudes = top.eigenvalues.abs()
    assert_close(exact.condition.value, float(magnitudes.max() / magnitudes.min()), rtol=1e-6, atol=0)
    assert_close(exact.spectrum.expand(), top.eigenvalues)
    assert exact.num_parameters == len(H)
    assert exact.num_samples == 30


def test_intervals_hold_the_truth(sampled, truth):
    _, H, G = truth
    sharpest = float(torch.linalg.eigvalsh(H)[-1])
    gap = abs(sharpest - float(torch.linalg.eigvalsh(G)[-1]))
    assert sampled.sharpness.lower <= sharpest <= sampled.sharpness.upper
    assert sampled.critical_learning_rate.lower <= 2 / sharpest <= sampled.critical_learning_rate.upper
    assert sampled.gap.lower <= gap <= sampled.gap.upper
    low, high = sampled.trace.interval(0.9999).tolist()
    assert low < float(H.trace()) < high
    assert float(sampled.trace.stderr) > 0
    assert sampled.spectrum is None


def test_a_measured_density_holds_the_true_shares(sampled, truth):
    for density, M in ((sampled.density, truth[1]), (sampled.ggn_density, truth[2])):
        values = torch.linalg.eigvalsh(M)
        grid = torch.linspace(float(values[0]) - 1, float(values[-1]) + 1, 7, dtype=torch.float64)
        share = (values[None] <= grid[:, None]).double().mean(-1)
        lower, upper = density.band(0.999, grid)
        assert bool(((lower <= share) & (share <= upper)).all())


def test_the_density_of_a_small_problem_is_that_of_all_its_eigenvalues(exact, truth):
    values = torch.linalg.eigvalsh(truth[1])
    grid = torch.tensor([-1.0, 1e-3, 1.0], dtype=torch.float64)
    assert_close(exact.density.cdf(grid), (values[None] <= grid[:, None]).double().mean(-1))
    assert exact.density.num_matvecs == 0


def test_each_parameter_has_the_density_of_its_own_block(sampled, obj, truth):
    assert tuple(sampled.blocks) == obj.layout.names
    for name, d in sampled.blocks.items():
        part = obj.layout.slice(name)
        values = torch.linalg.eigvalsh(truth[1][part, part])
        assert_close(d.support[1], float(values[-1]), rtol=1e-6, atol=0)


def test_without_all_eigenvalues_the_condition_number_is_a_lower_bound_and_says_so(sampled, exact):
    assert sampled.condition.value <= exact.condition.value * (1 + 1e-9)
    assert "at least this" in sampled.condition.meaning


def test_leaving_a_measurement_out_changes_no_other(obj, sampled):
    less = analyze(obj, k=5, small=0, density=False)
    assert less.density is None
    assert less.blocks == {}
    assert float(less.trace.value) == float(sampled.trace.value)
    assert_close(less.ggn.values, sampled.ggn.values, rtol=0, atol=0)


def test_the_generator_decides(obj):
    def trace(seed):
        return float(analyze(obj, k=1, small=0, density=False, generator=torch.Generator().manual_seed(seed)).trace.value)

    assert trace(1) == trace(1) != trace(2)


@pytest.mark.parametrize("scale", [1e-7, 1e7])
def test_all_scales_with_the_loss(scale, sampled, truth):
    a = analyze(objective(scale=scale), k=5, small=0, density_steps=30, density_probes=4)
    assert_close(a.hessian.values, scale * sampled.hessian.values, rtol=1e-6, atol=0)
    assert_close(float(a.trace.value), scale * float(sampled.trace.value), rtol=1e-9, atol=0)
    assert_close(a.condition.value, sampled.condition.value, rtol=1e-3, atol=0)
    assert_close(a.gradient_share, sampled.gradient_share, rtol=1e-3, atol=0)
    low, high = (scale * end for end in (sampled.density.support))
    assert_close(a.density.support, (low, high), rtol=1e-6, atol=0)


def test_the_model_is_left_as_it_was(obj):
    before = {name: p.clone() for name, p in obj.model.state_dict().items()}
    state = torch.get_rng_state()
    analyze(obj, k=1)
    assert all(torch.equal(p, before[name]) for name, p in obj.model.state_dict().items())
    assert all(p.grad is None and p.requires_grad for p in obj.model.parameters())
    assert torch.equal(state, torch.get_rng_state())


def test_progress_hears_of_every_stage_and_its_end(obj):
    heard = []
    a = analyze(obj, k=2, small=0, density_steps=5, density_probes=2, progress=lambda *event: heard.append(event))
    assert [s.name for s in a.provenance.stages] == list(dict.fromkeys(name for name, _, _ in heard))
    for stage in a.provenance.stages:
        assert heard[[i for i, e in enumerate(heard) if e[0] == stage.name][-1]] == (
            stage.name,
            stage.num_matvecs,
            stage.num_matvecs,
        )
    assert ("density of the Hessian", 10, 10) in heard
    assert a.provenance.num_matvecs == sum(s.num_matvecs for s in a.provenance.stages) > 0


def test_a_criterion_without_gauss_newton_matrix_is_analysed_without_it():
    model = nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 1))
    a = analyze(es.Objective(model, lambda f, y: f.mean(), (torch.ones(4, 3), torch.zeros(4, 1))), k=2)
    assert a.ggn is None
    assert a.gap is None
    assert any("not defined here" in s.status for s in a.provenance.stages)
    assert "Gauss-Newton" not in repr(a)


def test_a_stationary_point_and_a_single_parameter():
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    a = analyze(es.Objective(model, nn.MSELoss(), (torch.tensor([[2.0]]), torch.zeros(1, 1))))
    assert math.isnan(a.gradient_share)
    assert a.hessian.values.tolist() == [8.0]
    assert a.condition.value == 1.0
    assert "nan" in repr(a)


def test_flat_loss_has_an_infinite_critical_learning_rate():
    model = nn.Linear(2, 1)
    a = analyze(es.Objective(model, lambda f, y: 0 * f.mean(), (torch.ones(3, 2), torch.zeros(3, 1))))
    assert a.critical_learning_rate.value == math.inf
    assert a.hessian.values.tolist() == [0.0, 0.0, 0.0]


def test_what_is_not_an_objective_is_refused():
    with pytest.raises(es.CurvatureError, match=r"a Linear came; expected es\.Objective"):
        analyze(nn.Linear(2, 2))  # pyright: ignore[reportArgumentType]


def test_repr_and_notebook_table_show_the_facts(exact):
    text, table = repr(exact), exact._repr_html_()
    assert text.startswith("Curvature of Sequential: 136 parameters, 30 samples, float64 on cpu.")
    for name in ("Loss", "Sharpness", "Trace of the Hessian", "Condition number", "Critical learning rate"):
        assert name in text
        assert f"<th>{name}</th>" in table
    assert f"{exact.hessian.values[0]:.3f}" in text


def linear_network():
    g = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 20, bias=False), nn.Linear(20, 2, bias=False)).double()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=g, dtype=torch.float64) / 3)
    X, Y = (torch.randn(12, d, generator=g, dtype=torch.float64) for d in (3, 2))
    return es.Objective(model, es.losses.half_mse, (X, Y))


def test_a_closed_form_stands_beside_the_measurement_by_name(tmp_path):
    a = analyze(linear_network(), k=3, small=0, density_steps=20, density_probes=2)
    assert a.theorem == "two_layer_linear"
    assert_close(a.closed_form.expand().flip(0)[:3], a.hessian.values, rtol=1e-5, atol=0)
    assert_close(a.closed_form.expand()[:3], a.lowest.values, rtol=1e-5, atol=0)
    low, high = a.trace.interval(0.9999).tolist()
    assert low - 1e-9 < float(a.closed_form.trace) < high + 1e-9
    assert a.condition.value == float(a.closed_form.condition_number)
    assert "Sharpness, exact" in repr(a)
    page = a.report(tmp_path / "page.html").read_text()
    assert "Exact beside measured" in page
    assert "by theory.two_layer_linear" in page
    assert "Hessian (exact)" in page
    again = es.load(a.save(tmp_path))
    assert again.theorem == a.theorem
    assert_close(again.closed_form.expand(), a.closed_form.expand(), rtol=0, atol=0)


def test_a_network_without_closed_form_says_why(exact):
    assert exact.closed_form is None
    assert exact.theorem is None
    (status,) = [s.status for s in exact.provenance.stages if s.name == "closed form"]
    assert status.startswith("none: ")
    assert "Sharpness, exact" not in repr(exact)
