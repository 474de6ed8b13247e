"""Losses with the papers' scaling, and for language models; each is a criterion `(outputs, targets) -> scalar mean`."""

from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

IGNORE_INDEX = -100


def half_mse(outputs: Float[Tensor, "n *k"], targets: Float[Tensor, "n *k"]) -> Float[Tensor, ""]:
    """Compute `1/(2n) sum_i |f(x_i) - y_i|^2`: sum over outputs, mean over samples; the loss of the closed forms.

    `torch.nn.functional.mse_loss` is 2/K times this for K outputs.

    >>> half_mse(torch.tensor([[1.0, 2.0], [3.0, 0.0]]), torch.zeros(2, 2))
    tensor(3.5000)
    """
    return 0.5 * (outputs - targets).square().sum() / outputs.shape[0]


def next_token(logits: Float[Tensor, "n t v"], tokens: Int[Tensor, "n t"]) -> Float[Tensor, ""]:
    """Cross-entropy of predicting `tokens[:, 1:]` from `logits[:, :-1]`, mean over tokens that are not -100.

    >>> next_token(torch.zeros(1, 3, 4), torch.tensor([[2, 1, -100]])).exp()
    tensor(4.)
    """
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=IGNORE_INDEX)
