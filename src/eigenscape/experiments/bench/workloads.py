"""The networks that are timed: an MLP, a CNN and a small GPT, slightly trained, on data that needs no download."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...curvature import Objective
from ...curvature.losses import next_token


class Block(nn.Module):
    """A pre-norm transformer block."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Attend, then think."""
        b, t, d = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))


class GPT(nn.Module):
    """A decoder-only language model with learned positions and a tied head."""

    def __init__(self, vocabulary: int = 256, length: int = 64, width: int = 128, depth: int = 4, heads: int = 4):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of the next token at every position."""
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def _mlp(generator: torch.Generator) -> tuple[nn.Module, Callable, Tensor, Tensor]:
    model = nn.Sequential(nn.Linear(784, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 10))
    x, teacher = torch.randn(2000, 784, generator=generator), torch.randn(784, 10, generator=generator)
    return model, nn.CrossEntropyLoss(), x, (x @ teacher).argmax(1)


def _cnn(generator: torch.Generator) -> tuple[nn.Module, Callable, Tensor, Tensor]:
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1),
        nn.GELU(),
        nn.Conv2d(16, 32, 3, 2, 1),
        nn.GELU(),
        nn.Conv2d(32, 64, 3, 2, 1),
        nn.GELU(),
        nn.Flatten(),
        nn.Linear(1024, 70),
        nn.GELU(),
        nn.Linear(70, 10),
    )
    x, teacher = torch.randn(500, 3, 32, 32, generator=generator), torch.randn(3072, 10, generator=generator)
    return model, nn.CrossEntropyLoss(), x, (x.flatten(1) @ teacher).argmax(1)


def walks(count: int, generator: torch.Generator) -> Tensor:
    """Draw token sequences for the GPT: each token is one to three after the one before."""
    return (torch.randint(1, 4, (count, 65), generator=generator).cumsum(1) % 256)[:, :-1]


def _gpt(generator: torch.Generator) -> tuple[nn.Module, Callable, Tensor, Tensor]:
    tokens = walks(8, generator)
    return GPT(), next_token, tokens, tokens


WORKLOADS: dict[str, Callable] = {"mlp": _mlp, "cnn": _cnn, "gpt": _gpt}


def workload(name: str, *, device: str = "cpu", dtype: torch.dtype = torch.float32, training: int = 20) -> Objective:
    """Build one of the timed networks after a few steps of training, always the same weights."""
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        model, criterion, x, y = WORKLOADS[name](generator)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(training):
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()
    optimizer.zero_grad()
    model = model.to(device, dtype).eval()
    x = x.to(device) if x.dtype == torch.long else x.to(device, dtype)
    return Objective(model, criterion, (x, y.to(device)))


def brief_workload(name: str) -> Objective:
    """Build the same network, the GPT smaller, on a few samples and untrained: for seeing that everything runs."""
    whole = workload(name, training=0)
    x, y = next(iter(whole.batches()))
    few = {"mlp": 32, "cnn": 4, "gpt": 1}[name]
    if name != "gpt":
        return Objective(whole.model, whole.criterion, (x[:few], y[:few]))
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return Objective(GPT(width=16, depth=1, heads=2).eval(), whole.criterion, (x[:few], y[:few]))


def networks(brief: bool) -> Iterator[tuple[str, Objective]]:
    """Build every network in turn; in brief two of them, small."""
    for name in ("mlp", "gpt") if brief else WORKLOADS:
        yield name, brief_workload(name) if brief else workload(name)
