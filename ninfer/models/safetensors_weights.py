"""Weights of a Hugging Face directory: one safetensors file or several with an index. Knows nothing about models."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import safetensors
import torch
from safetensors import SafetensorError
from torch import Tensor

from ninfer.api.errors import ModelError
from ninfer.kernels.weight import Weight

_INDEX: Final = "model.safetensors.index.json"


class SafetensorsWeights:
    """A `WeightFile` over safetensors files. Tensors are read when asked for."""

    def __init__(self, directory: Path) -> None:
        """Read the headers of all files.

        Raises:
            ModelError: no weights, a shard is missing or a file is damaged.
        """
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._files: dict[str, Path] = {}
        for path in _shards(directory):
            try:
                with safetensors.safe_open(path, framework="pt") as file:
                    for name in file.keys():  # noqa: SIM118 - not a mapping
                        self._shapes[name] = tuple(file.get_slice(name).get_shape())
                        self._files[name] = path
            except (OSError, SafetensorError) as error:
                raise ModelError(f"cannot read {path}: {error}") from error

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """See `WeightFile`."""
        return self._shapes

    def read_weight(self, name: str) -> Weight:
        """See `WeightFile`."""
        return Weight(self.read_tensor(name))

    def read_tensor(self, name: str) -> Tensor:
        """See `WeightFile`."""
        with safetensors.safe_open(self._files[name], framework="pt") as file:
            tensor: Tensor = file.get_tensor(name)
        if not tensor.is_floating_point() or tensor.dtype.itemsize < torch.bfloat16.itemsize:
            raise ModelError(
                f"tensor {name} has type {tensor.dtype}; supported: float16, bfloat16, float32, float64"
            )
        return tensor


def _shards(directory: Path) -> list[Path]:
    index = directory / _INDEX
    if not index.is_file():
        paths = sorted(directory.glob("*.safetensors"))
        if not paths:
            raise ModelError(f"{directory} has no *.safetensors files")
        return paths
    try:
        names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise ModelError(f"cannot read {index}: {error}") from error
    paths = sorted(directory / str(name) for name in names)
    missing = [path.name for path in paths if not path.is_file()]
    if missing:
        raise ModelError(f"{directory} lacks {', '.join(missing)}, which {_INDEX} names")
    return paths
