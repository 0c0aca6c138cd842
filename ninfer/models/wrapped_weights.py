"""The language model in a checkpoint that was wrapped for images. Knows nothing about file formats."""

from collections.abc import Mapping
from typing import Final

from torch import Tensor

from ninfer.kernels.weight import Weight
from ninfer.models.weight_file import WeightFile

_WRAPPED: Final = "model.language_model."
_PLAIN: Final = "model."
_SKIPPED: Final = ("model.visual.", "visual.")


class WrappedWeights:
    """A `WeightFile` that shows `model.language_model.x` as `model.x` and hides the vision tower."""

    def __init__(self, file: WeightFile) -> None:
        """Wrap a file; see `is_wrapped`."""
        self._file = file
        self._names = {_plain(name): name for name in file.shapes if not name.startswith(_SKIPPED)}

    @staticmethod
    def is_wrapped(file: WeightFile) -> bool:
        """Whether a file needs this."""
        return any(name.startswith(_WRAPPED) for name in file.shapes)

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """See `WeightFile`."""
        shapes = self._file.shapes
        return {plain: shapes[name] for plain, name in self._names.items()}

    def read_weight(self, name: str) -> Weight:
        """See `WeightFile`."""
        return self._file.read_weight(self._names[name])

    def read_tensor(self, name: str) -> Tensor:
        """See `WeightFile`."""
        return self._file.read_tensor(self._names[name])


def _plain(name: str) -> str:
    return _PLAIN + name.removeprefix(_WRAPPED) if name.startswith(_WRAPPED) else name
