"""Recognised networks against the dense Hessian by double backward, in the order of their parameters; refusals in words."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrize
from torch.testing import assert_close

from eigenscape import Objective, losses
from eigenscape.analysis.recognise import spectrum
from eigenscape.core import NotRecognised
from eigenscape.curvature.self_attention import SelfAttention
from eigenscape.theory import balanced_minimum

DTYPE = torch.float64


def stream(seed):
    return torch.Generator().manual_seed(seed)


def filled(model, seed, scale=1.0):
    model = model.to(DTYPE)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(scale * torch.randn(p.shape, generator=stream(seed), dtype=DTYPE))
            seed += 1
    return model


def chain(widths, biased=(), act=None):
    parts = []
    for l, (a, b) in enumerate(zip(widths, widths[1:])):  # noqa: RUF007
        parts += [nn.Linear(a, b, bias=l in biased)] + ([act()] if act and l < len(widths) - 2 else [])
    return nn.Sequential(*parts)


def brute_force(obj):
    """Dense Hessian of the whole-set loss in the order of the objective's parameters, by backward over backward."""
    every = dict(obj.model.named_parameters())
    params = [every[name] for name in obj.layout.names]
    loss = sum(p.share * obj.criterion(obj.model(p.inputs), p.targets) for p in obj.pieces())
    grads = torch.autograd.grad(loss, params, create_graph=True, materialize_grads=True)
    flat = torch.cat([g.reshape(-1) for g in grads])
    rows = [
        torch.cat([h.reshape(-1) for h in torch.autograd.grad(g, params, retain_graph=True, materialize_grads=True)])
        for g in flat
    ]
    return torch.stack(rows)


def assert_exact(found, H, tol=1e-10):
    """Same eigenvalues with multiplicities, and every eigenspace consists of orthonormal eigenvectors of H."""
    size = max(1.0, float(torch.linalg.matrix_norm(H, 2)))
    assert_close(found.expand(), torch.linalg.eigvalsh(H), rtol=0, atol=1e-11 * size)
    bases = [found.eigenspace(i) for i in range(len(found.labels))]
    for value, Q in zip(found.values, bases):
        assert Q.numel() == 0 or (H @ Q - value * Q).abs().max() <= tol * size
    Q = torch.cat(bases, -1)
    assert_close(Q.T @ Q, torch.eye(found.n, dtype=DTYPE), rtol=0, atol=tol)


def regression(D, K, n=7, seed=0, scale=1.0):
    g = stream(seed)
    return scale * torch.randn(n, D, generator=g, dtype=DTYPE) + 0.3, torch.randn(n, K, generator=g, dtype=DTYPE)


def classes(n, K, seed=0):
    return (torch.rand(n, generator=stream(seed)) * K).long()


class Custom(nn.Module):
    """Layers registered in another order than they are applied, and a functional rectifier."""

    def __init__(self, rectify):
        super().__init__()
        self.head = nn.Linear(3, 2)
        self.dropout = nn.Dropout(0.5)
        self.body = nn.Linear(2, 3)
        self.rectify = rectify

    def forward(self, x):
        h = self.body(torch.flatten(x, 1))
        return self.head(self.dropout(F.relu(h) if self.rectify else h))


REGRESSION = {
    "scalar_linear": (lambda: chain((1, 3, 1)), "scalar_linear"),
    "scalar, one neuron": (lambda: chain((1, 1, 1)), "scalar_linear"),
    "scalar_linear_bias": (lambda: chain((1, 4, 1), {0}), "scalar_linear_bias"),
    "scalar with two biases": (lambda: chain((1, 4, 1), {0, 1}), "two_layer_linear"),
    "two_layer_linear": (lambda: chain((3, 4, 2)), "two_layer_linear"),
    "two_layer_linear, hidden bias": (lambda: chain((2, 6, 2), {0}), "two_layer_linear"),
    "two_layer_linear, output bias": (lambda: chain((2, 2, 3), {1}), "two_layer_linear"),
    "two_layer_linear, biases": (lambda: chain((2, 7, 2), {0, 1}), "two_layer_linear"),
    "scalar_relu": (lambda: chain((1, 5, 1), act=nn.ReLU), "scalar_relu"),
    "scalar relu with biases": (lambda: chain((1, 5, 1), {0, 1}, act=nn.ReLU), "two_layer_relu"),
    "two_layer_relu": (lambda: chain((2, 6, 2), act=nn.ReLU), "two_layer_relu"),
    "two_layer_relu, biases": (lambda: chain((2, 4, 3), {0, 1}, act=nn.ReLU), "two_layer_relu"),
    "leaky": (lambda: chain((2, 4, 2), {0}, act=nn.LeakyReLU), "two_layer_relu"),
    "one layer": (lambda: chain((3, 2)), "deep_linear_ggn"),
    "one layer, bias": (lambda: chain((3, 2), {0}), "deep_linear_ggn"),
    "bare Linear": (lambda: nn.Linear(2, 3), "deep_linear_ggn"),
    "nested": (
        lambda: nn.Sequential(nn.Flatten(), nn.Sequential(nn.Linear(2, 3), nn.Identity()), nn.Linear(3, 1)),
        "two_layer_linear",
    ),
    "custom": (lambda: Custom(False).eval(), "two_layer_linear"),
    "custom relu": (lambda: Custom(True).eval(), "two_layer_relu"),
}
CRITERIA = {"MSELoss": nn.MSELoss(), "mse_loss": F.mse_loss, "half_mse": losses.half_mse}


def sizes(model):
    linears = [m for m in model.modules() if isinstance(m, nn.Linear)]
    if isinstance(model, Custom):
        return 2, 2
    return linears[0].in_features, linears[-1].out_features


@pytest.mark.parametrize("criterion", CRITERIA.values(), ids=CRITERIA)
@pytest.mark.parametrize(("make", "theorem"), REGRESSION.values(), ids=REGRESSION)
def test_squared_errors(make, theorem, criterion):
    model = filled(make(), 1)
    obj = Objective(model, criterion, regression(*sizes(model)))
    found = spectrum(obj)
    assert found.theorem == theorem
    assert found.layout is obj.layout
    assert_exact(found, brute_force(obj))


BINARY = nn.BCEWithLogitsLoss(pos_weight=torch.tensor([0.5, 2.0]), weight=torch.tensor([1.0, 3.0]))
CLASSIFICATION = {
    "plain": nn.CrossEntropyLoss(),
    "function": F.cross_entropy,
    "smoothed": nn.CrossEntropyLoss(label_smoothing=0.2),
    "weighted": nn.CrossEntropyLoss(weight=torch.tensor([0.5, 2.0, 1.0], dtype=DTYPE)),
    "ignoring class 1": nn.CrossEntropyLoss(
        ignore_index=1, weight=torch.tensor([0.5, 2.0, 1.0], dtype=DTYPE), label_smoothing=0.1
    ),
}


@pytest.mark.parametrize("criterion", CLASSIFICATION.values(), ids=CLASSIFICATION)
@pytest.mark.parametrize("act", [None, nn.ReLU])
def test_cross_entropy_with_every_option(criterion, act):
    model = filled(chain((2, 5, 3), {0, 1}, act), 2)
    X, y = regression(2, 3, n=9)[0], classes(9, 3)
    batches = [(X[:4], y[:4]), (X[4:], y[4:])]
    obj = Objective(model, criterion, batches, micro_batch=3)
    assert_exact(spectrum(obj), brute_force(obj))


def test_probabilities_as_targets():
    model = filled(chain((2, 5, 3)), 2)
    X, Y = regression(2, 3)
    obj = Objective(model, nn.CrossEntropyLoss(), (X, Y.softmax(-1)))
    assert_exact(spectrum(obj), brute_force(obj))


@pytest.mark.parametrize("make", [lambda: chain((2, 3, 2), {0}), lambda: chain((2, 4, 2), {1}, nn.ReLU)])
def test_binary_cross_entropy(make):
    model = filled(make(), 3)
    X, Y = regression(2, 2)
    obj = Objective(model, BINARY, (X, (Y > 0).to(DTYPE)))
    assert_exact(spectrum(obj), brute_force(obj))


def test_logistic_regression():
    model = filled(nn.Linear(3, 1), 3)
    X, Y = regression(3, 1)
    obj = Objective(model, nn.BCEWithLogitsLoss(), (X, (Y > 0).to(DTYPE)))
    assert_exact(spectrum(obj), brute_force(obj))


def test_weights_of_batches_count():
    model = filled(chain((2, 4, 2)), 4)
    X, Y = regression(2, 2)
    data = [(X[:5], Y[:5]), (X[5:], Y[5:])]
    obj = Objective(model, nn.MSELoss(), data, weight=lambda targets: len(targets) ** 2)
    assert_exact(spectrum(obj), brute_force(obj))


@pytest.mark.parametrize("biased", [(), {0}, {2}, {0, 1, 2}])
@pytest.mark.parametrize("criterion", [nn.MSELoss(), losses.half_mse])
def test_deep_linear_where_residuals_are_uncorrelated_with_inputs(biased, criterion):
    model = filled(chain((2, 3, 4, 2), biased), 5, scale=0.5)
    X, noise = regression(2, 2, n=9)
    ones = torch.cat([X, torch.ones_like(X[:, :1])], -1)
    Q = torch.linalg.qr(ones).Q
    with torch.no_grad():
        Y = model(X) + noise - Q @ (Q.T @ noise)
    obj = Objective(model, criterion, (X, Y))
    found = spectrum(obj)
    assert found.theorem == "deep_linear_ggn"
    assert "uncorrelated" in found.status
    assert_exact(found, brute_force(obj), tol=1e-9)


def test_balanced_minimum_is_recognised_as_a_minimum():
    X, Y = regression(3, 2, n=12)
    minimum = balanced_minimum(X, Y, 3)
    model = chain((3, 2, 2, 2)).to(DTYPE)
    with torch.no_grad():
        for layer, W in zip(model, minimum.weights):
            layer.weight.copy_(W)
    obj = Objective(model, losses.half_mse, (X, Y))
    found = spectrum(obj)
    assert_close(found.expand(), minimum.spectrum.expand(), rtol=0, atol=1e-11)
    assert_exact(found, brute_force(obj))


def test_aligned_layers_far_from_a_minimum():
    g = stream(8)
    R, U = (torch.linalg.qr(torch.randn(d, d, generator=g, dtype=DTYPE)).Q for d in (3, 2))
    X = torch.linalg.qr(torch.randn(9, 3, generator=g, dtype=DTYPE)).Q @ R.T
    Y = X @ R[:, :2] @ torch.diag(torch.tensor([5.0, 2.0], dtype=DTYPE)) @ U.T
    model = chain((3, 2, 2, 2)).to(DTYPE)
    with torch.no_grad():
        model[0].weight.copy_(torch.diag(torch.tensor([0.3, 0.1], dtype=DTYPE)) @ R[:, :2].T)
        model[1].weight.copy_(torch.diag(torch.tensor([0.7, 1.1], dtype=DTYPE)))
        model[2].weight.copy_(U @ torch.diag(torch.tensor([1.3, 0.2], dtype=DTYPE)))
    obj = Objective(model, nn.MSELoss(), (X, Y))
    found = spectrum(obj)
    assert found.theorem == "aligned_deep_linear"
    assert found.min < 0
    assert_exact(found, brute_force(obj))


def test_float32_models_are_computed_in_float64():
    model = filled(chain((2, 4, 2), {0}), 6).float()
    X, Y = regression(2, 2)
    found = spectrum(Objective(model, nn.MSELoss(), (X.float(), Y.float())))
    exact = spectrum(Objective(model.double(), nn.MSELoss(), (X.float().double(), Y.float().double())))
    assert found.values.dtype == DTYPE
    assert_close(found.expand(), exact.expand(), rtol=0, atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 3),
    st.integers(1, 6),
    st.integers(1, 3),
    st.sampled_from([(), (0,), (1,), (0, 1)]),
    st.sampled_from([None, nn.ReLU, nn.LeakyReLU]),
    st.sampled_from(["half_mse", "mse", "cross_entropy"]),
    st.integers(0, 10**6),
)
def test_any_two_layers(D, m, K, biased, act, loss, seed):
    model = filled(chain((D, m, K), biased, act), seed)
    X, Y = regression(D, K, seed=seed)
    criterion = {"half_mse": losses.half_mse, "mse": nn.MSELoss(), "cross_entropy": nn.CrossEntropyLoss()}[loss]
    obj = Objective(model, criterion, (X, classes(7, K, seed) if loss == "cross_entropy" else Y))
    assert_exact(spectrum(obj), brute_force(obj))


def test_the_model_is_left_as_it_was():
    model = filled(chain((2, 3, 1)), 7)
    before = {n: p.clone() for n, p in model.named_parameters()}
    spectrum(Objective(model, nn.MSELoss(), regression(2, 1)))
    for name, p in model.named_parameters():
        assert_close(p, before[name], rtol=0, atol=0)
        assert p.requires_grad
        assert p.grad is None


ATTENTION = {
    "one head": lambda: SelfAttention(3, dtype=DTYPE),
    "width 1": lambda: SelfAttention(1, dtype=DTYPE),
    "heads, causal, sink": lambda: SelfAttention(2, heads=3, causal=True, sink=0.7, dtype=DTYPE),
}


@pytest.mark.parametrize("criterion", [nn.MSELoss(), losses.half_mse, nn.BCEWithLogitsLoss()])
@pytest.mark.parametrize("make", ATTENTION.values(), ids=ATTENTION)
def test_self_attention(make, criterion):
    X, Y = regression(4, 4, n=5)
    Y = (Y > 0).to(DTYPE) if isinstance(criterion, nn.BCEWithLogitsLoss) else Y
    obj = Objective(make(), criterion, [(X[:2], Y[:2]), (X[2:], Y[2:])])
    found = spectrum(obj)
    assert found.theorem == "self_attention_heads"
    assert_exact(found, brute_force(obj))


def test_self_attention_is_refused_where_tokens_mix():
    model, X = SelfAttention(2), torch.ones(3, 4)
    with pytest.raises(NotRecognised, match="cross-entropy couples the tokens of a sequence"):
        spectrum(Objective(model, nn.CrossEntropyLoss(), (X, classes(3, 4))))
    with pytest.raises(NotRecognised, match=r"batches have inputs of widths \[4, 5\]"):
        spectrum(Objective(model, nn.MSELoss(), [(X, X), (torch.ones(1, 5), torch.ones(1, 5))]))


def test_the_attention_module_checks_its_sizes_and_says_what_it_is():
    with pytest.raises(ValueError, match="width is 0 and heads is 1; expected at least 1 of each"):
        SelfAttention(0)
    assert repr(SelfAttention(2, heads=3)) == "SelfAttention(2, heads=3, causal=False, sink=0.0)"


def residual():
    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(2, 2)

        def forward(self, x):
            return x + self.inner(x)

    return Residual()


def branching():
    class Branching(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(2, 2)

        def forward(self, x):
            return self.inner(x) if x.sum() > 0 else self.inner(-x)

    return Branching()


def raw():
    class Raw(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2, 2))

        def forward(self, x):
            return x @ self.weight

    return Raw()


def tied():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight = model[0].weight
    return model


def twice():
    layer = nn.Linear(2, 2)
    return nn.Sequential(layer, nn.ReLU(), layer)


def hooked():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[0].register_forward_hook(lambda module, inputs, outputs: 2 * outputs)
    return model


def overridden():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[0].forward = lambda x: x
    return model


def parametrised():
    class Double(nn.Module):
        def forward(self, W):
            return 2 * W

    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    parametrize.register_parametrization(model[0], "weight", Double())
    return model


def with_spare():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model.register_parameter("spare", nn.Parameter(torch.ones(3)))
    return model


def frozen():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[0].weight.requires_grad_(False)
    return model


two = lambda: nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))  # noqa: E731
REFUSED_MODELS = {
    "tanh": (
        lambda: chain((2, 3, 2), act=nn.Tanh),
        r"^1 \(Tanh\) is not part of any closed form; expected Linear layers with ReLU",
    ),
    "deep relu": (lambda: chain((2, 3, 3, 2), act=nn.ReLU), r"ReLU network of 3 Linear layers has no closed form here"),
    "deep linear": (
        lambda: filled(chain((2, 3, 3, 2)), 1).float(),
        r"3 linear layers have a closed form where they are aligned",
    ),
    "residual": (residual, r"add does not act on the layer before it alone"),
    "branching": (branching, r"forward method of Branching cannot be traced"),
    "raw parameter": (raw, r"weight does not act on the layer before it alone"),
    "tied": (tied, r"two layers share a parameter"),
    "twice": (twice, r"2 \(Linear\) is used twice|0 \(Linear\) is used twice"),
    "hooked": (hooked, r"0 \(Linear\) has hooks"),
    "overridden": (overridden, r"0 \(Linear\) has a forward method of its own instance"),
    "parametrised": (parametrised, r"0 \(ParametrizedLinear\) is not part of any closed form"),
    "spare": (with_spare, r"parameter 'spare' belongs to no layer of the chain"),
    "frozen": (frozen, r"parameter '0.weight' is not selected; expected all 4 of the network"),
    "relu last": (lambda: nn.Sequential(two(), nn.ReLU()), r"last layer is followed by a rectifier"),
    "relu first": (lambda: nn.Sequential(nn.ReLU(), two()), r"0 \(ReLU\) comes before the first Linear layer"),
    "two relus": (lambda: nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.ReLU(), nn.Linear(2, 2)), r"2 \(ReLU\) follows another"),
    "late flatten": (lambda: nn.Sequential(nn.Linear(2, 2), nn.Flatten()), r"1 \(Flatten\) comes after a Linear layer"),
    "no layer": (lambda: nn.Sequential(nn.Identity()), r"no parameter is selected|model has no Linear layer"),
}


@pytest.mark.parametrize(("make", "message"), REFUSED_MODELS.values(), ids=REFUSED_MODELS)
def test_models_without_a_closed_form_are_refused_in_words(make, message):
    X, Y = (t.float() for t in regression(2, 2))
    with pytest.raises((NotRecognised, ValueError), match=message):
        spectrum(Objective(make(), nn.MSELoss(), (X, Y)))


def objective(criterion=None, data=None, **options):
    X, Y = (t.float() for t in regression(2, 2))
    return Objective(two(), criterion or nn.MSELoss(), data or (X, Y), **options)


REFUSED_OBJECTIVES = {
    "huber": (lambda: objective(nn.HuberLoss()), r"criterion HuberLoss has no closed form here; expected MSELoss"),
    "own function": (lambda: objective(lambda f, y: (f - y).square().mean()), r"criterion <lambda> has no closed form here"),
    "subset": (lambda: objective(params="0.*"), r"parameter '1.weight' is not selected; expected all 4"),
    "forward": (lambda: objective(forward=lambda model, x: 2 * model(x)), r"has a forward= of its own"),
    "sequences": (lambda: objective(data=(torch.ones(3, 4, 2), torch.ones(3, 4, 2))), r"inputs have shape \(3, 4, 2\)"),
    "keywords": (
        lambda: objective(data=({"input": torch.ones(3, 2)}, torch.ones(3, 2))),
        r"inputs are a dict; expected one tensor",
    ),
}


@pytest.mark.parametrize(("make", "message"), REFUSED_OBJECTIVES.values(), ids=REFUSED_OBJECTIVES)
def test_objectives_without_a_closed_form_are_refused_in_words(make, message):
    with pytest.raises(NotRecognised, match=message):
        spectrum(make())


def test_classification_by_one_layer_or_many_is_refused():
    X, y = regression(2, 2)[0].float(), classes(7, 2)
    with pytest.raises(NotRecognised, match="single Linear layer under a loss that couples its outputs"):
        spectrum(Objective(nn.Linear(2, 2), nn.CrossEntropyLoss(), (X, y)))
    with pytest.raises(NotRecognised, match="3 linear layers have a closed form under squared errors of equal weight only"):
        spectrum(Objective(chain((2, 2, 2, 2)), nn.CrossEntropyLoss(), (X, y)))


def test_large_eigenproblems_are_announced_and_not_solved():
    obj = Objective(chain((30, 40, 20)), nn.MSELoss(), tuple(t.float() for t in regression(30, 20)))
    with pytest.raises(NotRecognised, match=r"eigenvalues of a matrix of size 1800, and limit is 100; .*limit=1800"):
        spectrum(obj, limit=100)


def test_data_too_large_for_second_derivatives_is_refused(monkeypatch):
    monkeypatch.setattr("eigenscape.analysis.recognise_samples.MOST", 10)
    obj = Objective(two(), nn.CrossEntropyLoss(), (torch.ones(3, 2), classes(3, 2)))
    with pytest.raises(NotRecognised, match=r"3 samples with 2 outputs have 12 second derivatives; expected at most 1e\+01"):
        spectrum(obj)


def test_a_criterion_with_hooks_is_refused():
    criterion = nn.MSELoss()
    criterion.register_forward_hook(lambda module, inputs, outputs: 2 * outputs)
    with pytest.raises(NotRecognised, match=r"MSELoss\) has hooks"):
        spectrum(objective(criterion))


def test_active_dropout_is_refused_even_unchecked():
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5), nn.Linear(2, 2))
    with pytest.raises(NotRecognised, match=r"1 \(Dropout\) is not part of any closed form"):
        spectrum(Objective(model, nn.MSELoss(), (torch.ones(3, 2), torch.ones(3, 2)), check=False))


def test_a_subclass_of_linear_may_do_anything_and_is_refused():
    class Sly(nn.Linear):
        pass

    with pytest.raises(NotRecognised, match=r"weight does not act on the layer before it alone"):
        spectrum(Objective(nn.Sequential(Sly(2, 2)), nn.MSELoss(), (torch.ones(3, 2), torch.ones(3, 2))))
