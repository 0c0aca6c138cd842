"""Weights of a GGUF file under Hugging Face names. Knows nothing about how they are multiplied."""

import re
from collections.abc import Mapping
from typing import Final

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType
from torch import Tensor

from ninfer.api.errors import ModelError
from ninfer.kernels.weight import GROUP, Grid4, Weight
from ninfer.models.config import ModelConfig
from ninfer.models.gguf_file import GgufFile, GgufTensor
from ninfer.models.tensor_shapes import EMBEDDING, FINAL_NORM, OUTPUT
from ninfer.models.weight_file import FREQUENCY_FACTORS

_MODEL_NAMES: Final = {
    "token_embd.weight": EMBEDDING,
    "output_norm.weight": FINAL_NORM,
    "output.weight": OUTPUT,
    "rope_freqs.weight": FREQUENCY_FACTORS,
}
_LAYER_NAMES: Final = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_LAYER_PATTERN: Final = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")
_PERMUTED_PATTERN: Final = re.compile(r"self_attn\.[qk]_proj\.")
_Q4_1_BLOCK_BYTES: Final = 20


class GgufWeights:
    """A `WeightFile` over a GGUF file. Tensors are dequantised when read."""

    def __init__(self, file: GgufFile, config: ModelConfig) -> None:
        """Map the names; unknown tensors keep theirs."""
        self._file = file
        self._head_dim = config.head_dim
        self._is_permuted = config.family == "llama"
        self._tensors = {_name(t.name): t for t in file.tensors.values()}

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """See `WeightFile`."""
        return {name: tensor.shape for name, tensor in self._tensors.items()}

    def read_weight(self, name: str) -> Weight:
        """See `WeightFile`; a Q4_1 tensor keeps its grid."""
        tensor = self._tensors[name]
        if tensor.kind == GGMLQuantizationType.Q4_1:
            grid = self._q4_1(tensor)
            codes = grid.codes.view(len(grid.codes), -1, GROUP).float()
            dense = codes.mul_(grid.scale.unsqueeze(-1)).add_(grid.minimum.unsqueeze(-1)).flatten(1)
            weight = Weight(dense, grid)
        else:
            weight = Weight(self._dequantise(tensor))
        if self._is_permuted and _PERMUTED_PATTERN.search(name):
            return weight.select_outputs(_pairs_to_halves(tensor.shape[0], self._head_dim))
        return weight

    def read_tensor(self, name: str) -> Tensor:
        """See `WeightFile`."""
        tensor = self._tensors[name]
        values = self._dequantise(tensor)
        if self._is_permuted and _PERMUTED_PATTERN.search(name):
            values = values[_pairs_to_halves(tensor.shape[0], self._head_dim)]
        return values

    def _dequantise(self, tensor: GgufTensor) -> Tensor:
        stored = self._file.stored_bytes(tensor)
        if tensor.kind == GGMLQuantizationType.BF16:
            values = torch.from_numpy(stored.copy()).view(torch.bfloat16)
            return values.reshape(tensor.shape)
        if tensor.kind == GGMLQuantizationType.Q8_0:
            return _q8_0(torch.from_numpy(stored.copy())).reshape(tensor.shape)
        try:
            dense = gguf.quants.dequantize(stored, tensor.kind)
        except NotImplementedError as error:
            raise ModelError(
                f"{self._file.path}: tensor {tensor.name} is stored as {tensor.kind.name}, which cannot be read"
            ) from error
        return torch.from_numpy(np.array(dense, dtype=np.float32)).reshape(tensor.shape)

    def _q4_1(self, tensor: GgufTensor) -> Grid4:
        """Split blocks of 32: float16 scale and minimum, then 16 bytes with elements i (low bits) and i + 16."""
        num_outputs, num_inputs = tensor.shape
        stored = torch.from_numpy(self._file.stored_bytes(tensor).copy())
        blocks = stored.view(num_outputs, num_inputs // GROUP, _Q4_1_BLOCK_BYTES)
        scale, minimum = blocks[..., :4].contiguous().view(torch.float16).float().unbind(-1)
        packed = blocks[..., 4:]
        codes = torch.cat((packed & 15, packed >> 4), dim=-1).flatten(1)
        return Grid4(codes, scale, minimum)


def _q8_0(stored: Tensor) -> Tensor:
    """Dequantise blocks of 32: a float16 scale, then int8."""
    blocks = stored.view(-1, GROUP + 2)
    scale = blocks[:, :2].contiguous().view(torch.float16).float()
    return blocks[:, 2:].view(torch.int8).float().mul_(scale)


def _name(gguf_name: str) -> str:
    if gguf_name in _MODEL_NAMES:
        return _MODEL_NAMES[gguf_name]
    match = _LAYER_PATTERN.fullmatch(gguf_name)
    if match is None or match[2] not in _LAYER_NAMES:
        return gguf_name
    return f"model.layers.{match[1]}.{_LAYER_NAMES[match[2]]}.{match[3]}"


def _pairs_to_halves(num_outputs: int, head_dim: int) -> Tensor:
    """Index that undoes the permutation which llama GGUF conversion applies to query and key heads.

    Source: `LlamaModel.permute` in llama.cpp's convert_hf_to_gguf.py.
    """
    order = torch.arange(num_outputs).view(-1, head_dim // 2, 2)
    return order.transpose(1, 2).flatten()
