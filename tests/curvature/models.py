"""A table of small models in float64, each with data and a criterion, and brute-force oracles for them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from eigenscape import losses


@dataclass
class Case:
    model: nn.Module
    criterion: Callable[[Any, Any], Tensor]
    inputs: Any
    targets: Any

    def outputs(self, parameters: dict[str, Tensor]) -> Any:
        args = self.inputs if isinstance(self.inputs, tuple) else () if isinstance(self.inputs, dict) else (self.inputs,)
        kwargs = self.inputs if isinstance(self.inputs, dict) else {}
        with sdpa_kernel(SDPBackend.MATH):
            out = functional_call(self.model, parameters, args, kwargs)
        return getattr(out, "logits", out)

    def loss(self, parameters: dict[str, Tensor]) -> Tensor:
        return self.criterion(self.outputs(parameters), self.targets)


def dense_hessian(case: Case, names: list[str] | None = None) -> Tensor:
    """Rows of the Hessian by double backward: the formulation that is right for every layer."""
    params = {n: p.detach().clone().requires_grad_() for n, p in case.model.named_parameters()}
    chosen = [params[n] for n in (names or [n for n, p in case.model.named_parameters() if p.requires_grad])]
    torch.backends.mha.set_fastpath_enabled(False)
    g = torch.autograd.grad(case.loss(params), chosen, create_graph=True, allow_unused=True, materialize_grads=True)
    torch.backends.mha.set_fastpath_enabled(True)
    flat = torch.cat([x.reshape(-1) for x in g])
    if not flat.requires_grad:
        return torch.zeros(flat.numel(), flat.numel(), dtype=flat.dtype)
    rows = []
    for x in flat:
        grads = torch.autograd.grad(x, chosen, retain_graph=True, allow_unused=True, materialize_grads=True)
        rows.append(torch.cat([y.reshape(-1) for y in grads]))
    return torch.stack(rows)


def dense_jacobian(case: Case) -> tuple[Tensor, Tensor]:
    """Outputs and their Jacobian, row by row by one backward each."""
    params = {n: p.detach().clone().requires_grad_() for n, p in case.model.named_parameters()}
    out = case.outputs(params)
    rows = []
    for x in out.reshape(-1):
        grads = torch.autograd.grad(x, list(params.values()), retain_graph=True, allow_unused=True, materialize_grads=True)
        rows.append(torch.cat([y.reshape(-1) for y in grads]))
    return out.detach(), torch.stack(rows)


def dense_ggn(case: Case) -> Tensor:
    out, J = dense_jacobian(case)
    M = torch.autograd.functional.hessian(lambda z: case.criterion(z, case.targets), out)
    return J.T @ M.reshape(out.numel(), out.numel()) @ J


class Attention(nn.Module):
    """A decoder layer of our own, through fused attention."""

    def __init__(self, d: int = 4, vocabulary: int = 5):
        super().__init__()
        self.embed, self.norm = nn.Embedding(vocabulary, d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, vocabulary)

    def forward(self, tokens):
        x = self.embed(tokens)
        q, k, v = (t.unflatten(-1, (2, -1)).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(x + y.transpose(1, 2).flatten(2))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(4, 2, dim_feedforward=5, dropout=0.0, batch_first=True)
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.layer(x).mean(1))


class MultiHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0].mean(1)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.mix, self.head = nn.Embedding(5, 3), nn.Linear(3, 3), nn.Linear(3, 5, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        return self.head(torch.tanh(self.mix(self.embed(tokens)))).movedim(-1, 1)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.head = nn.GRU(2, 3, batch_first=True), nn.Linear(3, 2)

    def forward(self, x):
        return self.head(self.cell(x)[0][:, -1])


class Two(nn.Module):
    """Two inputs, one unused parameter, one in which the loss is linear."""

    def __init__(self):
        super().__init__()
        self.a, self.unused, self.line = nn.Linear(3, 2), nn.Linear(2, 2), nn.Parameter(torch.ones(2))

    def forward(self, x, y):
        return torch.tanh(self.a(x)) + y


def _frozen() -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    model[0].weight.requires_grad_(False)
    return model


def _norms(norm: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), norm, nn.Tanh(), nn.Linear(4, 3))


def _gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=7, n_positions=6, n_embd=4, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
    return GPT2LMHeadModel(config)


def _llama() -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=7, hidden_size=4, intermediate_size=6, num_hidden_layers=1, num_attention_heads=2, bos_token_id=0,
        eos_token_id=0,
    )  # fmt: skip
    return LlamaForCausalLM(config)


def build(name: str) -> Case:
    torch.manual_seed(3)
    x, classes, y = torch.randn(9, 3).double(), torch.randint(0, 3, (9,)), torch.randn(9, 2).double()
    images, seq = torch.randn(5, 1, 6, 6).double(), torch.randn(5, 4, 4).double()
    tokens = torch.randint(0, 5, (4, 5))
    ce, mse = nn.CrossEntropyLoss(), nn.MSELoss()
    ignored = torch.randint(0, 5, (4, 5))
    ignored[0, :3], ignored[2, 4:] = -100, -100
    mlp = lambda k: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, k))  # noqa: E731
    cnn = nn.Sequential(nn.Conv2d(1, 2, 3, stride=2), nn.GELU(), nn.Flatten(), nn.Linear(8, 3))
    lm = {"input_ids": torch.randint(0, 7, (3, 5)), "attention_mask": torch.ones(3, 5, dtype=torch.long)}
    labels = lm["input_ids"].clone()
    labels[0, 3:] = -100
    weighted = nn.CrossEntropyLoss(weight=torch.tensor([0.5, 1.0, 2.0]).double(), label_smoothing=0.1)
    table: dict[str, Callable[[], Case]] = {
        "mlp-ce": lambda: Case(mlp(3), ce, x, classes),
        "mlp-ce-function": lambda: Case(mlp(3), F.cross_entropy, x, classes),
        "mlp-ce-weighted-smooth": lambda: Case(mlp(3), weighted, x, classes),
        "mlp-ce-probabilities": lambda: Case(mlp(3), ce, x, torch.rand(9, 3).double().softmax(-1)),
        "mlp-mse": lambda: Case(mlp(2), mse, x, y),
        "mlp-half-mse": lambda: Case(mlp(2), losses.half_mse, x, y),
        "mlp-bce": lambda: Case(
            mlp(2), nn.BCEWithLogitsLoss(pos_weight=torch.tensor([2.0, 0.5]).double()), x, (y > 0).double()
        ),
        "mlp-custom": lambda: Case(mlp(2), lambda f, t: (f - t).cosh().log().sum(-1).mean(), x, y),
        "mlp-huber": lambda: Case(mlp(2), nn.HuberLoss(), x, y),
        "cnn": lambda: Case(cnn, ce, images, classes[:5]),
        "layernorm": lambda: Case(_norms(nn.LayerNorm(4)), ce, x, classes),
        "groupnorm": lambda: Case(_norms(nn.GroupNorm(2, 4)), ce, x, classes),
        "rmsnorm": lambda: Case(_norms(nn.RMSNorm(4)), ce, x, classes),
        "batchnorm-eval": lambda: Case(_norms(nn.BatchNorm1d(4)), ce, x, classes),
        "attention": lambda: Case(Attention(), lambda f, t: F.cross_entropy(f.flatten(0, 1), t.flatten()), tokens, tokens),
        "encoder": lambda: Case(Encoder(), mse, seq, y[:5]),
        "multihead": lambda: Case(MultiHead(), losses.half_mse, seq, torch.randn(5, 4).double()),
        "tied-ignored": lambda: Case(Tied(), ce, tokens, ignored),
        "recurrent": lambda: Case(Recurrent(), ce, torch.randn(6, 3, 2).double(), classes[:6] % 2),
        "two-inputs-unused": lambda: Case(Two(), mse, (x, torch.randn(9, 2).double()), y),
        "frozen": lambda: Case(_frozen(), ce, x, classes % 2),
        "gpt2": lambda: Case(_gpt2(), losses.next_token, lm, labels),
        "llama": lambda: Case(_llama(), losses.next_token, lm, labels),
    }
    case = table[name]()
    case.model.double().eval()
    for module in case.model.modules():
        if isinstance(module, nn.LayerNorm | nn.BatchNorm1d | nn.GroupNorm):
            nn.init.normal_(module.weight)
            nn.init.normal_(module.bias)
    return case


NAMES = [
    "mlp-ce", "mlp-ce-function", "mlp-ce-weighted-smooth", "mlp-ce-probabilities", "mlp-mse", "mlp-half-mse", "mlp-bce",
    "mlp-custom", "mlp-huber", "cnn", "layernorm", "groupnorm", "rmsnorm", "batchnorm-eval", "attention", "encoder",
    "multihead", "tied-ignored", "recurrent", "two-inputs-unused", "frozen", "gpt2", "llama",
]  # fmt: skip
