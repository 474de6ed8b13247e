"""Rows on the scalar ReLU network f(x) = w . relu(v x): [cracking] Thm 3.4, B.2; [closed-form] Thm 4, Cor 5, C.2."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from . import library, oracle
from .core import Ledger, Profile
from .evidence import Seen
from .oracle import excess, gap, kind_mask, normal, number_gap
from .scalar_cases import dot, pair

SECTION = Ledger()
row = SECTION.row
WIDTHS, SIZES = (1, 2, 3, 5), (1, 2, 6)
KINDS = (
    "random", "balanced", "all v > 0", "all v < 0", "some v = 0", "all v = 0", "x > 0", "x < 0", "x = 0", "some x = 0", "ties",
)  # fmt: skip


def network(theta: Tensor, x: Tensor) -> Tensor:
    """Outputs of `w . relu(v x)`, theta = (v, w)."""
    v, w = theta.chunk(2)
    return torch.relu(x.unsqueeze(-1) * v) @ w


def loss(theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Half the mean squared error."""
    return (network(theta, x) - y).square().mean() / 2


@dataclass(frozen=True)
class Cell:
    """One cell: its neurons, its samples, and averages over its own samples (0/0 where it has none)."""

    neurons: Bool[Tensor, "b m"]
    samples: Bool[Tensor, "b n"]
    w: Float[Tensor, "b m"]
    v: Float[Tensor, "b m"]
    x: Float[Tensor, "b n"]
    y: Float[Tensor, "b n"]

    @cached_property
    def share(self) -> Tensor:
        """n_cell / n."""
        return self.samples.to(torch.float64).mean(-1)

    @cached_property
    def s2(self) -> Tensor:
        """(1/n) sum of x^2 over the cell."""
        return (self.x.square() * self.samples).mean(-1)

    @cached_property
    def yx(self) -> Tensor:
        """(1/n) sum of x y over the cell."""
        return (self.x * self.y * self.samples).mean(-1)

    @cached_property
    def c(self) -> Tensor:
        """<w, v> over the cell."""
        return dot(self.w * self.neurons, self.v)

    @cached_property
    def d(self) -> Tensor:
        """(1/n) sum of x delta over the cell."""
        return self.c * self.s2 - self.yx

    @cached_property
    def norms(self) -> tuple[Tensor, Tensor]:
        """|w|^2 and |v|^2 over the cell."""
        return dot(self.w * self.neurons, self.w), dot(self.v * self.neurons, self.v)

    def outliers(self, share: Tensor | float = 1.0) -> tuple[Tensor, Tensor]:
        """`share` times Lambda of the averages over n `share` samples: the printed form with share = n_cell / n."""
        top, low = pair(*self.norms, self.c, self.s2 / share, self.d / share)
        return share * top, share * low


@dataclass(frozen=True)
class Relu:
    """A batch of ReLU networks and data sets of one shape."""

    w: Float[Tensor, "b m"]
    v: Float[Tensor, "b m"]
    x: Float[Tensor, "b n"]
    y: Float[Tensor, "b n"]

    @cached_property
    def theta(self) -> Tensor:
        """Parameters in the order (v, w)."""
        return torch.cat([self.v, self.w], -1)

    @cached_property
    def H(self) -> Tensor:
        """Hessian by autograd."""
        return oracle.hessians(loss, self.theta, self.x, self.y)

    @cached_property
    def unit(self) -> Tensor:
        """Return max(1, spectral radius)."""
        return oracle.scale(self.H)

    def cells(self, strict: bool = True) -> tuple[Cell, Cell]:
        """Return the cells x > 0 and x <= 0; the second takes the neurons v < 0, or v <= 0 as the papers write."""
        parts = (self.w, self.v, self.x, self.y)
        minus = self.v < 0 if strict else self.v <= 0
        return Cell(self.v > 0, self.x > 0, *parts), Cell(minus, self.x <= 0, *parts)


def draw(generator: torch.Generator, batch: int, m: int, n: int) -> Relu:
    """Random cases, kinds in turn."""
    w, v, x, y = (normal(generator, batch, k) for k in (m, m, n, n))

    def where(name: str, changed: Tensor, old: Tensor) -> Tensor:
        return torch.where(kind_mask(batch, KINDS, name).unsqueeze(-1), changed, old)

    alternate = (-1.0) ** torch.arange(m)
    v = where("balanced", v.abs() * alternate, where("all v > 0", v.abs(), where("all v < 0", -v.abs(), v)))
    v = where("some v = 0", v * (torch.arange(m) % 2), where("all v = 0", 0 * v, v))
    x = where("x > 0", x.abs(), where("x < 0", -x.abs(), where("x = 0", 0 * x, x)))
    x = where("some x = 0", x * (torch.arange(n) % 2), where("ties", x[:, :1].expand_as(x), x))
    return Relu(w, v, x, y)


def cases(generator: torch.Generator, profile: Profile, kinked: bool = True) -> Iterator[Relu]:
    """One batch per shape; without `kinked`, only cases in which no v_j is zero."""
    for m in WIDTHS:
        for n in SIZES:
            case = draw(generator, 3 * profile.batch * len(KINDS), m, n)
            smooth = (case.v != 0).all(-1)
            yield case if kinked else Relu(*(t[smooth] for t in (case.w, case.v, case.x, case.y)))


def literal_spectrum(cells: tuple[Cell, ...], i: int) -> Tensor:
    """Eigenvalues of member i as Thm 3.4 counts them: two outliers and (size - 1) signed pairs for each cell."""
    parts = []
    for cell in cells:
        size, bulk = int(cell.neurons[i].sum()), cell.d[i]
        top, low = cell.outliers()
        parts += [top[i : i + 1], low[i : i + 1], oracle.repeat(bulk, size - 1), -oracle.repeat(bulk, size - 1)]
    return torch.cat(parts)


def strict_spectrum(cells: tuple[Cell, Cell], i: int) -> Tensor:
    """The same with cells v > 0 and v < 0 only: nothing from a cell without neurons, two zeros per neuron with v_j = 0."""
    alive = [int(cell.neurons[i].sum()) for cell in cells]
    parts = [literal_spectrum((cell,), i) for cell, size in zip(cells, alive) if size]
    dead = cells[0].v.shape[-1] - sum(alive)
    return torch.cat([*parts, torch.zeros(2 * dead, dtype=torch.float64)])


def strict_gap(case: Relu) -> Tensor:
    """Error of the corrected count, member by member."""
    cells = case.cells()
    return torch.stack([gap(strict_spectrum(cells, i)[None], case.H[i : i + 1])[0] for i in range(len(case.v))])


def judged(case: Relu) -> Tensor:
    """Error of the library, member by member: multiplicities differ from one to the next."""
    spectra = [library.scalar_relu(*(t[i] for t in (case.w, case.v, case.x, case.y))) for i in range(len(case.v))]
    return gap(torch.stack(spectra), case.H)


def literal_gap(case: Relu, strict: bool) -> Tensor:
    """Error of Thm 3.4 as counted, member by member."""
    cells = case.cells(strict)
    return torch.stack([gap(literal_spectrum(cells, i)[None], case.H[i : i + 1])[0] for i in range(len(case.v))])


@row(
    "R1",
    "[cracking] Thm 3.4; [closed-form] Cor 5, eq. 43, 44",
    "The spectrum is, per cell of q neurons, q - 1 signed pairs and two outliers (n₊/n) Λ of the cell.",
    "corrected",
    "For q = 0 or q = m the count is wrong (-1 pairs): a cell without neurons contributes nothing.",
)
def relu_spectrum(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile, kinked=False):
        q = (case.v > 0).sum(-1)
        inside = (q > 0) & (q < case.v.shape[-1])
        yield Seen(literal_gap(case, False), strict_gap(case), inside)


@row(
    "R2",
    "[cracking] Sec. 3.2; [closed-form] Sec. 2",
    "Averages of a cell are sums over its samples divided by n₊ (or n₋).",
    "corrected",
    "0/0 for a cell without samples. With (1/n) sums over the cell no n₊ is needed, and an empty cell gives zeros.",
)
def cell_averages(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile, kinked=False):
        true = torch.linalg.eigvalsh(case.H)[:, -1]
        tops = [torch.stack(top_outliers(case, shared), 0).amax(0) for shared in (True, False)]
        yield Seen(number_gap(tops[0], true, case.unit), number_gap(tops[1], true, case.unit))


def top_outliers(case: Relu, shared: bool) -> list[Tensor]:
    """Top outlier of each cell that has neurons, from averages over its samples (`shared`) or from (1/n) sums."""
    tops = []
    for cell in case.cells():
        top = cell.outliers(cell.share if shared else 1.0)[0]
        tops.append(torch.where(cell.neurons.any(-1), top, -torch.inf))
    return tops


@row(
    "R3",
    "[cracking] Sec. 3.2; [closed-form] Sec. 2",
    "Neurons with v_j = 0 belong to the cell v ≤ 0.",
    "corrected",
    "There the loss has no Hessian. Autograd (relu'(0) = 0) gives two zero eigenvalues per such neuron; cells are strict.",
)
def dead_neurons(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile):
        w, v, x, y = case.w, case.v, case.x, case.y
        two_cells = (v > 0).any(-1) & (v <= 0).any(-1)
        kept = Relu(w[two_cells], v[two_cells], x[two_cells], y[two_cells])
        if len(kept.v):
            yield Seen(literal_gap(kept, False), strict_gap(kept), library=judged(kept))


@row(
    "R4",
    "[cracking] eq. 3, 54-61; [closed-form] Thm 4, eq. 4, 35-42",
    "f is linear per cell, and no Hessian entry couples neurons of different cells: H = (n₊/n) H₊ ⊕ (n₋/n) H₋.",
    "holds",
)
def decoupling(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile):
        plus, minus = case.cells(strict=False)
        f = (plus.c.unsqueeze(-1) * plus.samples + minus.c.unsqueeze(-1) * minus.samples) * case.x
        error = number_gap(f, oracle.values(network, case.theta, case.x)).amax(-1)
        side = torch.cat([plus.neurons, plus.neurons], -1)
        apart = side.unsqueeze(-1) != side.unsqueeze(-2)
        yield Seen(torch.maximum(error, (case.H * apart).abs().flatten(1).amax(-1)))


def cell_arrow(cell: Cell, value: Tensor, slope: Tensor) -> Tensor:
    """(value w + slope v; slope w + value v) on the neurons of a cell, zero elsewhere."""
    a, b = value.unsqueeze(-1), slope.unsqueeze(-1)
    return torch.cat([(a * cell.w + b * cell.v) * cell.neurons, (b * cell.w + a * cell.v) * cell.neurons], -1)


@row(
    "R5",
    "[cracking] eq. 62-67, Rem. B.1; [closed-form] eq. 64, 65, Rem. 2",
    "A cell's outlier eigenvector is (λ₊ w₊ + mean(xδ)₊ v₊; ...), with λ₊ scaled by n₊/n and mean(xδ)₊ not.",
    "corrected",
    "Both or neither scaled by n₊/n. (In [cracking] the lower component is lost as well.)",
)
def relu_outlier_vectors(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile, kinked=False):
        for cell in case.cells():
            for value in cell.outliers():
                z = [cell_arrow(cell, value, slope) for slope in (cell.d / cell.share, cell.d)]
                size = (value.abs() + cell.d.abs()) * (cell.norms[0] + cell.norms[1]).sqrt()
                sound = (z[1].norm(dim=-1) > 1e-3 * size) & (cell.share > 0)
                printed, corrected = (
                    oracle.residual(case.H, v.unsqueeze(-1), value.unsqueeze(-1)).squeeze(-1)[sound] for v in z
                )
                yield Seen(printed, corrected, (cell.share == 1)[sound])


@row(
    "R6",
    "[cracking] B.2, eigenvector paragraphs; [closed-form] C.2",
    "The bulk eigenvalues of the positive cell are ± mean(xδ)₊.",
    "corrected",
    "± (n₊/n) mean(xδ)₊, as the theorem has it; the sign rule of L16 applies cell by cell.",
    kind="misprint",
)
def relu_bulk(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile, kinked=False):
        true = torch.linalg.eigvalsh(case.H)
        for cell in case.cells():
            two = (cell.neurons.sum(-1) >= 2) & (cell.share > 0)
            nearest = [((t.unsqueeze(-1) - true).abs().amin(-1) / case.unit)[two] for t in (cell.d / cell.share, cell.d)]
            yield Seen(*nearest)


@row(
    "R7",
    "[cracking] Sec. 3.2",
    "λ_max is the larger of the two cells' top outliers.",
    "holds under",
    "Both cells have neurons (1 ≤ q ≤ m - 1) and no v_j is zero; otherwise only the cell that has neurons counts.",
)
def relu_sharpness(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile, kinked=False):
        top = torch.stack([cell.outliers()[0] for cell in case.cells()]).amax(0)
        both = (case.v > 0).any(-1) & (case.v < 0).any(-1)
        yield Seen(number_gap(top, torch.linalg.eigvalsh(case.H)[:, -1], case.unit), condition=both)


@row(
    "R8",
    "[closed-form] Sec. 2",
    "mean(yx)₊ = (1/n₊) Σ_{i=1..n₊} y_i x_i 1{x_i > 0}.",
    "corrected",
    "The sum runs over all n samples.",
    kind="misprint",
)
def sum_range(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile):
        plus = case.cells()[0]
        v, m = case.v, case.v.shape[-1]
        j = v.argmax(-1, keepdim=True)  # a neuron of the positive cell: H[w_j, v_j] = s2 w_j v_j + dx
        entry = torch.stack([case.H[i, m + int(k), int(k)] for i, k in enumerate(j[:, 0])])
        moment = plus.s2 * (plus.c + (case.w * v).gather(-1, j)[:, 0]) - entry
        counts = plus.samples.sum(-1, keepdim=True)
        first = (case.x * case.y * plus.samples * (torch.arange(case.x.shape[-1]) < counts)).mean(-1)
        alive = (v > 0).any(-1)
        yield Seen(number_gap(first, moment, case.unit)[alive], number_gap(plus.yx, moment, case.unit)[alive])


@row(
    "R9",
    "[cracking] Sec. 3.2; [closed-form] Sec. 2 (raised as a question)",
    "The spectrum is that of independent activation cells.",
    "holds under",
    "Input dimension 1. For D ≥ 2 cells overlap and couple through the Gauss-Newton part.",
)
def independent_cells(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    b, m, n = 20 * profile.batch, 6, 8
    for D in (1, 2, 3):
        V, w, X, y = (normal(generator, b, *s) for s in ((m, D), (m,), (n, D), (n,)))

        def many(theta: Tensor, X: Tensor, y: Tensor, D: int = D) -> Tensor:
            V, w = oracle.split(theta, (m, D), (m,))
            return (torch.relu(X @ V.T) @ w - y).square().mean() / 2

        H = oracle.hessians(many, oracle.pack(V, w), X, y)
        pattern = (V @ X.mT > 0).to(torch.float64)
        same = (pattern.unsqueeze(-3) - pattern.unsqueeze(-2)).abs().sum(-1) == 0
        neuron = torch.cat([torch.arange(m).repeat_interleave(D), torch.arange(m)])
        apart = H * same[:, neuron][:, :, neuron]
        top, true = torch.linalg.eigvalsh(apart)[:, -1], torch.linalg.eigvalsh(H)[:, -1]
        yield Seen(excess((top - true).abs(), torch.zeros_like(top), true), condition=torch.full((b,), D == 1))


@row(
    "R10",
    "[cracking] Sec. 3.2",
    "The eigenvalues of a cell are in proportion to its share n₊/n of the samples.",
    "holds",
    "At fixed weights and fixed averages over the cell. Samples with x = 0 belong to neither cell and dilute both.",
)
def density(generator: torch.Generator, profile: Profile) -> Iterator[Seen]:
    for case in cases(generator, profile, kinked=False):
        more = 2 * case.x.shape[-1]  # twice as many samples that only the other cell sees
        others, targets = -normal(generator, len(case.x), more).abs(), normal(generator, len(case.x), more)
        longer = Relu(case.w, case.v, torch.cat([case.x, others], -1), torch.cat([case.y, targets], -1))
        side = torch.cat([case.v > 0, case.v > 0], -1)
        both = side.unsqueeze(-1) & side.unsqueeze(-2)
        yield Seen(gap(torch.linalg.eigvalsh(case.H * both / 3), longer.H * both))
