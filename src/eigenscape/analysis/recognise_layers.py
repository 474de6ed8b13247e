"""Reading a module as a chain of linear layers and rectifiers, or saying what stands in the way."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, fx, nn
from torch.nn import functional as F

from ..core import NotRecognised

KNOWN = "expected Linear layers with ReLU, LeakyReLU or nothing between them"
INERT = (nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout)
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
RELUS: tuple[Callable[..., Any], ...] = (F.relu, torch.relu)


@dataclass(frozen=True, eq=False)
class Layers:
    """`nn.Linear` layers in the order they are applied, with the negative slope of the rectifier after each (1: none)."""

    linears: tuple[nn.Linear, ...]
    slopes: tuple[float, ...]
    flat: bool

    @property
    def depth(self) -> int:
        """Number of linear layers."""
        return len(self.linears)

    @property
    def is_linear(self) -> bool:
        """No rectifier anywhere."""
        return all(slope == 1 for slope in self.slopes)

    @property
    def weights(self) -> list[Float[Tensor, "_ _"]]:
        """Weights in float64."""
        return [layer.weight.detach().double() for layer in self.linears]

    @property
    def biases(self) -> list[Float[Tensor, "_"] | None]:
        """Biases in float64, None where there is none."""
        return [None if layer.bias is None else layer.bias.detach().double() for layer in self.linears]

    @property
    def tensors(self) -> list[Tensor]:
        """The parameters, each weight followed by its bias."""
        return [t for layer in self.linears for t in (layer.weight, layer.bias) if t is not None]

    def activations(self, X: Float[Tensor, "n D"]) -> list[Float[Tensor, "n _"]]:
        """What enters each layer, then the outputs."""
        seen = [X]
        for W, b, slope in zip(self.weights, self.biases, self.slopes):
            H = seen[-1] @ W.mT if b is None else seen[-1] @ W.mT + b
            seen.append(H if slope == 1 else torch.where(H > 0, H, slope * H))
        return seen

    def preactivation_at_kink(self, X: Float[Tensor, "n D"]) -> int:
        """How many pre-activations of the first layer are exactly 0."""
        W, b = self.weights[0], self.biases[0]
        H = X @ W.mT if b is None else X @ W.mT + b
        return int((H == 0).sum())


def read_layers(model: nn.Module) -> Layers:
    """Trace the forward method symbolically and read it as a chain; whatever else it does is refused by name."""
    check_plain(model)
    root = nn.Sequential(model)  # a bare nn.Linear is then a leaf like any other
    try:
        graph = fx.Tracer().trace(root)
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise NotRecognised(f"the forward method of {type(model).__name__} cannot be traced ({reason}); {KNOWN}.") from error
    return _read(graph, dict(root.named_modules()))


def check_plain(model: nn.Module) -> None:
    """Refuse hooks and methods that would make a module compute something else than its class says."""
    for name, module in model.named_modules():
        label = f"{name or 'the model'} ({type(module).__name__})"
        if any(getattr(module, hooks) for hooks in HOOKS):
            raise NotRecognised(f"{label} has hooks, which may change what it computes; expected none.")
        if "forward" in vars(module):
            raise NotRecognised(f"{label} has a forward method of its own instance; expected that of its class.")


def _read(graph: fx.Graph, modules: dict[str, nn.Module]) -> Layers:
    linears: list[nn.Linear] = []
    slopes: list[float] = []
    flat, previous = False, None
    for node in graph.nodes:
        if node.op == "placeholder":
            previous = node
            continue
        label = _label(node, modules)
        if node.op == "get_attr" or node.all_input_nodes != [previous]:
            raise NotRecognised(f"{label} does not act on the layer before it alone; {KNOWN}, one after the other.")
        previous = node
        if node.op == "output":
            continue
        module = modules[node.target] if node.op == "call_module" else None
        if type(module) is nn.Linear:
            if any(module is seen for seen in linears):
                raise NotRecognised(f"{label} is used twice; expected every layer once.")
            linears.append(module)
            slopes.append(1.0)
        elif _is_flatten(node, module):
            if linears:
                raise NotRecognised(f"{label} comes after a Linear layer; expected it first.")
            flat = True
        elif not _is_inert(module):
            slope = _slope(node, module)
            if slope is None:
                raise NotRecognised(f"{label} is not part of any closed form; {KNOWN}.")
            if not linears:
                raise NotRecognised(f"{label} comes before the first Linear layer; {KNOWN}.")
            if slopes[-1] != 1:
                raise NotRecognised(f"{label} follows another rectifier; {KNOWN}.")
            slopes[-1] = slope
    if not linears:
        raise NotRecognised(f"the model has no Linear layer; {KNOWN}.")
    if slopes[-1] != 1:
        raise NotRecognised("the last layer is followed by a rectifier; expected a Linear layer to give the outputs.")
    tensors = [t for layer in linears for t in (layer.weight, layer.bias) if t is not None]
    if len({id(t) for t in tensors}) < len(tensors):
        raise NotRecognised("two layers share a parameter; expected every layer to have its own.")
    return Layers(tuple(linears), tuple(slopes), flat)


def _label(node: fx.Node, modules: dict[str, nn.Module]) -> str:
    if node.op == "call_module":
        module = modules[str(node.target)]
        name = str(node.target).removeprefix("0").removeprefix(".")
        return f"{name or 'the model'} ({type(module).__name__})"
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
    return str(name)


def _is_flatten(node: fx.Node, module: nn.Module | None) -> bool:
    """All axes but the first become one."""
    if isinstance(module, nn.Flatten):
        return (module.start_dim, module.end_dim) == (1, -1)
    return (node.target is torch.flatten or node.target == "flatten") and node.args[1:] == (1,) and not node.kwargs


def _is_inert(module: nn.Module | None) -> bool:
    """Passes its input on."""
    return type(module) in INERT and not (module.training and getattr(module, "p", 0) > 0)  # type: ignore[union-attr]


def _slope(node: fx.Node, module: nn.Module | None) -> float | None:
    """Negative slope of a rectifier; None for anything else."""
    if type(module) is nn.ReLU or node.target in RELUS or (node.op == "call_method" and node.target == "relu"):
        return 0.0
    if type(module) is nn.LeakyReLU:
        return float(module.negative_slope)
    if node.target is F.leaky_relu:
        given = node.args[1] if len(node.args) > 1 else node.kwargs.get("negative_slope", 0.01)
        return float(given) if isinstance(given, int | float) else None
    return None
