"""Cheaper matrix products last as long as a product with the operator, and no longer."""

import pytest
import torch
from torch import nn

from eigenscape import Objective
from eigenscape.core import CurvatureError
from eigenscape.curvature import fisher, functional_hessian, ggn, hessian
from eigenscape.curvature.precision import products_in

MATRICES = [hessian, ggn, functional_hessian, fisher]
BACKENDS = [
    torch.backends.cuda.matmul,
    torch.backends.cudnn.conv,
    torch.backends.cudnn.rnn,
    torch.backends.mkldnn.matmul,
    torch.backends.mkldnn.conv,
    torch.backends.mkldnn.rnn,
]


def asked(question):
    """What torch answers; it refuses where settings were made in two ways."""
    try:
        return question()
    except RuntimeError:
        return "mixed"


def settings():
    """Everything that torch says about the precision of float32 products."""
    return [
        asked(torch.get_float32_matmul_precision),
        asked(lambda: torch.backends.cudnn.allow_tf32),
        asked(lambda: torch.backends.cuda.matmul.allow_tf32),
        *(b.fp32_precision for b in BACKENDS),
    ]


@pytest.fixture
def torch_settings():
    with products_in("highest"):  # puts everything back, as the tests below show
        torch.set_float32_matmul_precision("highest")
        yield


class Watcher(nn.Module):
    """A network that notes the precision its products are computed in."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(40, 30), nn.Tanh(), nn.Linear(30, 3))
        self.seen = []

    def forward(self, x):
        self.seen.append(torch.get_float32_matmul_precision())
        return self.layers(x)


def watched():
    torch.manual_seed(0)
    return Objective(Watcher(), nn.CrossEntropyLoss(), (torch.randn(50, 40), torch.arange(50) % 3))


@pytest.mark.parametrize("precision", ["highest", "high", "medium"])
@pytest.mark.parametrize("matrix", MATRICES)
def test_products_are_computed_as_asked_and_are_near_the_exact_ones(matrix, precision):
    obj = watched()
    v = torch.randn(obj.layout.size)
    before, H = settings(), matrix(obj, check=False, precision=precision, engine="uncached")
    out, (one,) = H @ v, H.block_products([obj.layout.names], [v])
    assert set(obj.model.seen) == {precision}
    assert settings() == before
    obj.model.double()
    exact = matrix(Objective(obj.model, obj.criterion, (next(obj.batches())[0].double(), torch.arange(50) % 3))) @ v.double()
    bound = 1e-5 if precision == "highest" else 2e-2  # 8 bits of bfloat16, where a device has it
    for found in (out, one):
        assert float((found.double() - exact).norm() / exact.norm()) < bound


def test_by_default_torch_decides(torch_settings):
    obj = watched()
    torch.set_float32_matmul_precision("medium")
    before, H = settings(), hessian(obj, check=False)
    H @ torch.ones(obj.layout.size)
    assert set(obj.model.seen) == {"medium"}
    assert settings() == before
    assert "precision" not in H.engine
    assert hessian(obj, precision="high").engine.endswith(", high precision")


@pytest.mark.parametrize("engine", ["auto", "reverse", "recorded", "difference"])
def test_settings_return_after_every_engine_and_after_errors(engine):
    obj = watched()
    before = settings()
    hessian(obj, engine=engine, precision="medium") @ torch.ones(obj.layout.size)
    assert settings() == before
    obj.model.layers[0].weight.data[0, 0] = float("nan")
    with pytest.raises(CurvatureError, match="NaN"):
        hessian(obj, engine=engine, precision="medium") @ torch.ones(obj.layout.size)
    with pytest.raises(CurvatureError, match="NaN"):
        hessian(obj, engine="reverse", check=False, precision="medium") @ torch.ones(obj.layout.size)
    assert settings() == before


def legacy():
    torch.set_float32_matmul_precision("high")


def convolutions():
    torch.backends.cudnn.allow_tf32 = False


def one_backend():
    torch.backends.cuda.matmul.fp32_precision = "tf32"


@pytest.mark.parametrize("change", [legacy, convolutions, one_backend])
@pytest.mark.parametrize("precision", ["highest", "high", "medium"])
def test_what_a_user_has_set_in_whatever_way_is_put_back(change, precision, torch_settings):
    change()
    before = settings()
    cheap = precision != "highest"

    def work():
        assert settings()[:3] == [precision, cheap, cheap]
        raise KeyError

    with pytest.raises(KeyError), products_in(precision):
        work()
    assert settings() == before


def test_an_unknown_precision_is_a_sentence():
    with pytest.raises(CurvatureError, match='precision is \'tf32\'; expected "highest" \\(float32\\), "high"'):
        hessian(watched(), precision="tf32")
