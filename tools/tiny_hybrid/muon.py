"""The Muon optimizer in float32; torch's own works in bfloat16, which is slow on CPUs without it."""

from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor, nn

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)


class Muon:
    """Momentum whose update is made orthogonal.

    Source: Jordan and others, "Muon: an optimizer for hidden layers in neural networks", 2024.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], *, momentum: float = 0.95) -> None:
        self._groups: dict[tuple[int, ...], list[nn.Parameter]] = defaultdict(list)
        for parameter in parameters:
            self._groups[tuple(parameter.shape)].append(parameter)
        self._momentum = momentum
        self._means = {
            shape: torch.zeros(len(group), *shape) for shape, group in self._groups.items()
        }

    @torch.no_grad()
    def step(self, rate: float, *, decay: float) -> None:
        """Update all parameters from their gradients.

        Args:
            rate: size of the update; its root mean square is rate / sqrt(columns) for tall matrices.
            decay: share of a weight lost per unit of rate.
        """
        for shape, group in self._groups.items():
            grads = torch.stack([
                p.grad if p.grad is not None else torch.zeros_like(p) for p in group
            ])
            mean = self._means[shape].mul_(self._momentum).add_(grads)
            update = orthogonal(grads.add(mean, alpha=self._momentum))
            scale = rate * max(1.0, shape[0] / shape[1]) ** 0.5
            for parameter, change in zip(group, update, strict=True):
                parameter.mul_(1 - rate * decay).add_(change, alpha=-scale)

    def state_dict(self) -> dict[str, Tensor]:
        """Give the momenta by shape."""
        return {"x".join(map(str, shape)): mean for shape, mean in self._means.items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore momenta."""
        for shape, mean in self._means.items():
            mean.copy_(state["x".join(map(str, shape))])


def orthogonal(matrices: Tensor) -> Tensor:
    """Move the singular values of matrices [count, rows, columns] close to one, by Newton-Schulz steps."""
    is_tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.transpose(1, 2) if is_tall else matrices
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    first, second, third = _COEFFICIENTS
    for _ in range(5):
        square = x @ x.transpose(1, 2)
        x = first * x + (second * square + third * (square @ square)) @ x
    return x.transpose(1, 2) if is_tall else x
