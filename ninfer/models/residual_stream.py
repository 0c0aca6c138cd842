"""The rows that layers add to. Knows nothing about layers."""

from torch import Tensor

from ninfer.kernels.rms_norm import RmsNorm


class ResidualStream:
    """Rows, and what was added to them last, which the next norm takes in as it reads them."""

    def __init__(self, x: Tensor) -> None:
        """Begin.

        Args:
            x: `[num_rows, hidden_size]` in the type of the activations, contiguous; updated in place.
        """
        self._x = x
        self._added: Tensor | None = None

    def add(self, rows: Tensor) -> None:
        """Add `[num_rows, hidden_size]` of any float type; borrowed until the next norm."""
        self._settle()
        self._added = rows

    def normalised(self, norm: RmsNorm) -> Tensor:
        """Return the normalised rows, new."""
        added, self._added = self._added, None
        return norm(self._x, added)

    def rows(self) -> Tensor:
        """Return the rows as they are: `[num_rows, hidden_size]`, borrowed."""
        self._settle()
        return self._x

    def _settle(self) -> None:
        if self._added is not None:
            self._x.add_(self._added)
            self._added = None
