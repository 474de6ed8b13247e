"""Whatever would make a number wrong is an error that says what came, what was expected and what to type."""

import functools

import pytest
import torch
from models import build
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

import eigenscape as es

X, Y = torch.randn(8, 3, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 2
NET = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
CE = nn.CrossEntropyLoss()


def product(obj, make=es.hessian):
    H = make(obj)
    return H @ torch.ones(H.n, dtype=H.dtype)


def test_dropout_in_training_mode_names_the_module():
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 2))
    with pytest.raises(es.TrainingModeError, match=r"1 \(Dropout\) drops units with p=0.5 .* model.eval\(\)"):
        es.Objective(model, CE, (X, Y))
    model.eval()
    obj = es.Objective(model, CE, (X, Y))
    H = es.hessian(obj)
    model.train()  # later
    with pytest.raises(es.TrainingModeError, match="Dropout"):
        H @ torch.ones(H.n)
    es.Objective(nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.0)), CE, (X, Y)).loss()


@pytest.mark.parametrize(
    "model",
    [nn.TransformerEncoderLayer(4, 2, 4, dropout=0.1), nn.MultiheadAttention(4, 2, dropout=0.1), nn.LSTM(3, 4, 2, dropout=0.1)],
)
def test_dropout_hidden_in_a_layer_is_found(model):
    with pytest.raises(es.TrainingModeError, match="drops units"):
        es.Objective(model, CE, (X, Y))


def test_batch_norm_in_training_mode_names_the_module():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    with pytest.raises(es.TrainingModeError, match=r"1 \(BatchNorm1d\).*batch statistics.*model.eval\(\).*check=False"):
        es.Objective(model, CE, (X, Y))


class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.line = nn.Linear(3, 2)

    def forward(self, x):
        return F.dropout(self.line(x), 0.5)


def test_randomness_inside_forward_is_measured():
    with pytest.raises(es.SelfTestError, match=r"two passes over the data gave losses .*relative difference"):
        product(es.Objective(Noisy(), CE, (X, Y)))


def test_a_loader_that_shuffles_or_augments_is_refused():
    torch.manual_seed(0)
    shuffled = DataLoader(TensorDataset(X, Y), batch_size=3, shuffle=True)

    class Augmented(Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, i):
            return X[i] + 0.1 * torch.randn(3), Y[i]

    for loader in (shuffled, DataLoader(Augmented(), batch_size=4)):
        with pytest.raises(es.DataError, match=r"batch 0 differs between two passes.*shuffle=False.*data=list\(loader\)"):
            product(es.Objective(NET, CE, loader))
        product(es.Objective(NET, CE, list(loader)))


def test_a_fixed_loader_equals_the_whole_set_and_leaves_the_random_state_alone():
    loader = DataLoader(TensorDataset(X, Y), batch_size=3)
    state = torch.get_rng_state()
    streamed = product(es.Objective(NET, CE, loader))
    assert torch.equal(state, torch.get_rng_state())
    torch.testing.assert_close(streamed, product(es.Objective(NET, CE, (X, Y))))


def test_a_generator_single_samples_or_nothing_is_refused():
    with pytest.raises(es.DataError, match=r"read only once.*data=list\(batches\)"):
        es.Objective(NET, CE, ((X, Y) for _ in range(2)))
    with pytest.raises(es.DataError, match=r"data is empty"):
        es.Objective(NET, CE, [])
    with pytest.raises(es.DataError, match=r"no sample with a weight"):
        es.Objective(NET, CE, (X[:0], Y[:0])).loss()
    with pytest.raises(es.DataError, match=r"TensorDataset of single samples.*DataLoader"):
        es.Objective(NET, CE, TensorDataset(X, Y))
    with pytest.raises(es.DataError, match=r"data is one tensor of shape \(8, 3\)"):
        es.Objective(NET, CE, X)
    with pytest.raises(es.DataError, match=r"batch 0 is 3 items; expected one \(inputs, targets\) pair"):
        es.Objective(NET, CE, [(X, Y, Y)]).loss()
    with pytest.raises(es.DataError, match=r"micro_batch is 0; expected a positive number"):
        es.Objective(NET, CE, (X, Y), micro_batch=0)


def test_a_changing_number_of_batches_is_refused():
    class Growing:
        passes = 0

        def __iter__(self):
            self.passes += 1
            return iter([(X, Y)] * self.passes)

    with pytest.raises(es.DataError, match=r"differs between two passes|this pass had"):
        product(es.Objective(NET, CE, Growing()))


def test_parameter_selection_errors():
    with pytest.raises(es.CurvatureError, match=r"params is a list of 4 Parameter; expected names"):
        es.Objective(NET, CE, (X, Y), params=list(NET.parameters()))
    with pytest.raises(es.CurvatureError, match=r"params='head.\*' matches no parameter; expected .*0.weight, 0.bias"):
        es.Objective(NET, CE, (X, Y), params="head.*")
    with pytest.raises(es.CurvatureError, match=r"no parameter is selected"):
        es.Objective(NET, CE, (X, Y), params=lambda name, p: False)
    model = nn.Linear(3, 2)
    model.count = nn.Parameter(torch.zeros(2, dtype=torch.long), requires_grad=False)
    with pytest.raises(es.CurvatureError, match=r"'count' has dtype torch.int64; expected real floating-point"):
        es.Objective(model, CE, (X, Y), params="*")
    mixed = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2).double())
    with pytest.raises(es.CurvatureError, match=r"'1.weight' is torch.float64 on cpu, '0.weight' is torch.float32"):
        es.Objective(mixed, CE, (X, Y))
    with pytest.raises(es.CurvatureError, match=r"'1.weight' is torch.float32 on meta"):
        es.Objective(nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2, device="meta")), CE, (X, Y))


def test_selection_by_name_pattern_and_predicate():
    assert es.Objective(NET, CE, (X, Y), params=["2.weight", "0.bias"]).layout.names == ("0.bias", "2.weight")
    assert es.Objective(NET, CE, (X, Y), params="*.weight").layout.size == 20
    assert es.Objective(NET, CE, (X, Y), params=lambda name, p: p.ndim == 1).layout.names == ("0.bias", "2.bias")
    tied = build("tied-ignored").model
    assert es.Objective(tied, CE, (X, Y), params="head.*").layout.names == ("embed.weight",)


@pytest.mark.parametrize(
    ("criterion", "words"),
    [
        (nn.CrossEntropyLoss(reduction="none"), "CrossEntropyLoss has reduction='none'; expected the scalar mean"),
        (nn.CrossEntropyLoss(reduction="sum"), "reduction='sum'"),
        (functools.partial(F.cross_entropy, reduction="sum"), "cross_entropy has reduction='sum'"),
        (lambda f, t: F.cross_entropy(f, t, reduction="none"), r"the criterion returned shape \(8,\); expected a scalar"),
        (lambda f, t: 1.0, "the criterion returned a float; expected a scalar"),
        ("mse", "criterion is a str; expected a function"),
    ],
)
def test_criteria_that_are_not_scalar_means(criterion, words):
    with pytest.raises(es.CurvatureError, match=words):
        es.Objective(NET, criterion, (X, Y)).loss()


def test_partial_functions_keep_their_options():
    y = torch.where(torch.arange(8) < 3, 7, Y)
    partial = functools.partial(F.cross_entropy, ignore_index=7, label_smoothing=0.2)
    module = nn.CrossEntropyLoss(ignore_index=7, label_smoothing=0.2)
    for make in (es.hessian, es.ggn):
        a, b = (product(es.Objective(NET, c, [(X[:2], y[:2]), (X[2:], y[2:])]), make) for c in (partial, module))
        torch.testing.assert_close(a, b)


def test_shapes_dtypes_and_models_that_do_not_fit():
    with pytest.raises(es.CurvatureError, match=r"the model failed on inputs of shape \(8, 5\)"):
        es.Objective(NET, CE, (torch.randn(8, 5), Y)).loss()
    with pytest.raises(es.DataError, match=r"outputs have shape \(8, 2\) and the targets \(8,\); expected equal shapes"):
        es.Objective(NET, nn.MSELoss(), (X, Y.float())).loss()
    with pytest.raises(es.DataError, match=r"the criterion failed on outputs of shape \(8, 2\) and targets of shape \(5,\)"):
        es.Objective(NET, CE, (X, Y[:5])).loss()
    with pytest.raises(es.DataError, match=r"the inputs are torch.float64, the parameters torch.float32; expected one dtype"):
        es.Objective(NET, CE, (X.double(), Y)).loss()
    with pytest.raises(es.CurvatureError, match=r"model is a function; expected a torch.nn.Module"):
        es.Objective(lambda x: x, CE, (X, Y))
    with pytest.raises(es.CurvatureError, match=r"a Sequential came; expected es.Objective"):
        es.hessian(NET)
    with pytest.raises(es.CurvatureError, match=r"the model returned a tuple; expected one tensor of outputs: pass forward="):
        product(es.Objective(nn.GRU(3, 2), lambda f, t: f[0].square().mean(), (X[None], Y[None])), es.ggn)
    with pytest.raises(es.CurvatureError, match=r'kind is "?\'?true'):
        es.fisher(es.Objective(NET, CE, (X, Y)), "true")


def test_negative_targets_with_an_unknown_criterion_need_a_weight():
    targets = torch.where(torch.arange(8) < 3, -100, Y)
    own = lambda f, t: F.cross_entropy(f, t)  # noqa: E731
    with pytest.raises(es.DataError, match=r"negative indices.*weight=lambda t: \(t != -100\).sum\(\)"):
        es.Objective(NET, own, (X, targets)).loss()
    batches = [(X[:4], targets[:4]), (X[4:], targets[4:])]
    by_hand = es.Objective(NET, own, batches, weight=lambda t: (t != -100).sum())
    torch.testing.assert_close(by_hand.loss(), CE(NET(X), targets).detach())


def test_nan_is_found_and_named():
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    with torch.no_grad():
        model[2].weight[0, 0] = torch.nan
    with pytest.raises(es.CurvatureError, match=r"parameter '2.weight' has 1 entries that are NaN or inf"):
        es.Objective(model, CE, (X, Y)).loss()
    with pytest.raises(es.CurvatureError, match=r"parameter '2.weight' has 1 entries"):
        product(es.Objective(model, CE, (X, Y)))
    bad = X.clone()
    bad[3] = torch.inf
    with pytest.raises(es.CurvatureError, match=r"the loss is nan; expected a finite number"):
        es.Objective(NET, CE, (bad, Y)).loss()
    with pytest.raises(es.CurvatureError, match=r"the loss is nan; expected a finite number"):
        product(es.Objective(NET, CE, (bad, Y)))


class WrongSquare(torch.autograd.Function):
    """x^2 whose second derivative is off by half."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**2

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (x + x.detach())


class Lopsided(torch.autograd.Function):
    """A sum whose backward forgets one half in its own derivative, so that the Hessian is not symmetric."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x[..., 0] * x[..., 1]

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.stack([g * x[..., 1], g * x[..., 0].detach()], -1)


class Custom(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.line, self.function = nn.Linear(3, 2), function

    def forward(self, x):
        return self.function.apply(self.line(x))


def test_a_wrong_second_derivative_is_found():
    loss = lambda f, t: f.mean()  # noqa: E731
    with pytest.raises(es.SelfTestError, match=r"the Hessian disagrees with central differences .* \|Hv\| ="):
        product(es.Objective(Custom(WrongSquare), loss, (X, Y)))
    with pytest.raises(es.SelfTestError, match=r"the Hessian is not symmetric: u'Hv = "):
        product(es.Objective(Custom(Lopsided), loss, (X, Y)))
    H = es.hessian(es.Objective(Custom(WrongSquare), loss, (X, Y)), check=False)
    H @ torch.ones(H.n)


def test_a_linear_criterion_has_no_ggn():
    model = nn.Sequential(nn.Linear(3, 2), nn.LogSoftmax(-1))
    with pytest.raises(es.CurvatureError, match=r"NLLLoss is linear in the model's outputs.*CrossEntropyLoss"):
        product(es.Objective(model, nn.NLLLoss(), (X, Y)), es.ggn)
    product(es.Objective(model, nn.NLLLoss(), (X, Y)))


def test_an_unknown_likelihood_cannot_be_sampled():
    with pytest.raises(es.CurvatureError, match=r"HuberLoss has no known likelihood to sample from"):
        product(es.Objective(NET, nn.HuberLoss(), (X, X[:, :2])), lambda o: es.fisher(o, "sampled"))


def test_nothing_of_the_model_changes():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).eval()
    model[0].bias.requires_grad_(False)
    CE(model(X), Y).backward()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    grads = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    flags = [p.requires_grad for p in model.parameters()]
    versions = [p._version for p in model.parameters()]
    rng, fast = torch.get_rng_state(), torch.backends.mha.get_fastpath_enabled()
    obj = es.Objective(model, CE, (X, Y))
    obj.loss()
    obj.gradient()
    for make in (es.hessian, es.ggn, es.functional_hessian, es.ntk):
        product(obj, make)
    product(obj, lambda o: es.fisher(o, "sampled"))
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert all(g is p.grad is None or torch.equal(g, p.grad) for g, p in zip(grads, model.parameters()))
    assert flags == [p.requires_grad for p in model.parameters()]
    assert versions == [p._version for p in model.parameters()]
    assert not model.training
    assert torch.equal(rng, torch.get_rng_state())
    assert fast == torch.backends.mha.get_fastpath_enabled()


def test_padding_rows_are_constants_as_for_autograd():
    model = nn.Sequential(nn.Embedding(5, 3, padding_idx=0), nn.Flatten(), nn.Linear(6, 2)).double()
    nn.init.normal_(model[0].weight)
    tokens = torch.randint(0, 5, (8, 2), generator=torch.Generator().manual_seed(0))
    H = es.hessian(es.Objective(model, CE, (tokens, Y)))
    dense = H @ torch.eye(H.n, dtype=H.dtype)
    assert (dense[:3] == 0).all()
    assert (dense[:, :3] == 0).all()


def test_compiled_models_are_measured_through_the_original():
    compiled = torch.compile(NET, backend="eager")
    torch.testing.assert_close(product(es.Objective(compiled, CE, (X, Y))), product(es.Objective(NET, CE, (X, Y))))


def test_own_forward_and_nested_inputs():
    model = build("two-inputs-unused")
    whole = es.Objective(model.model, model.criterion, (model.inputs, model.targets))
    as_dict = es.Objective(model.model, model.criterion, ({"x": model.inputs[0], "y": model.inputs[1]}, model.targets))
    own = es.Objective(
        model.model, model.criterion, (model.inputs, model.targets), forward=lambda m, inputs: m(inputs[0], inputs[1])
    )
    torch.testing.assert_close(whole.loss(), as_dict.loss())
    torch.testing.assert_close(whole.gradient(), own.gradient())


def test_the_start_up_test_leaves_flattened_targets_whole():
    class Tokens(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(7, 4), nn.Linear(4, 7)

        def forward(self, x):
            return self.head(self.embed(x)).flatten(0, 1)

    tokens = torch.randint(0, 7, (9, 50))
    H = es.hessian(es.Objective(Tokens(), CE, (tokens, tokens.flatten())))
    assert bool((H @ torch.ones(H.n)).isfinite().all())
