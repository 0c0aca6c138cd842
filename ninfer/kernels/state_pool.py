"""Slots for what gated delta layers remember of a lane. Knows nothing about who owns a slot."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor

ALIGNMENT_BYTES: Final = 64
"""Every slot starts at a multiple of this: a cache line, and a full vector register."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateLayout:
    """What one slot holds, in this order and row-major, filled up with zeros to a multiple of 64 bytes.

    1. recurrent state `[num_layers, num_heads, key_dim, value_dim]`
    2. convolution windows `[num_layers, window_rows, window_width]`, oldest row first
    3. last hidden state `[hidden_size]`: what `Transformer.forward` returned for the last token

    Attributes:
        num_layers: gated delta layers.
        num_heads: value heads per layer.
        key_dim: elements of a key head.
        value_dim: elements of a value head.
        window_rows: rows that the convolution looks back.
        window_width: channels of the convolution.
        hidden_size: width of the residual stream.
        dtype: element type of all parts: float32, or float64 for a float64 model.
    """

    num_layers: int
    num_heads: int
    key_dim: int
    value_dim: int
    window_rows: int
    window_width: int
    hidden_size: int
    dtype: torch.dtype

    @property
    def recurrent_elements(self) -> int:
        """Elements of the first part."""
        return self.num_layers * self.num_heads * self.key_dim * self.value_dim

    @property
    def window_elements(self) -> int:
        """Elements of the second part."""
        return self.num_layers * self.window_rows * self.window_width

    @property
    def image_bytes(self) -> int:
        """Bytes of one slot."""
        elements = self.recurrent_elements + self.window_elements + self.hidden_size
        return -(-elements * self.dtype.itemsize // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


class StatePool:
    """Slots of a `StateLayout` in one tensor `[num_slots, elements]`; satisfies `exec.lane_states.LaneStates`.

    Each slot is one range of bytes, so copying it is one copy. The pool is allocated once, zero-filled, and never
    grows. The state of position 0 is all zeros. Not synchronised: two threads must not use one slot at a time.

    Invariants:
        image_bytes == layout.image_bytes
    """

    def __init__(
        self, layout: StateLayout, num_slots: int, device: torch.device | str = "cpu"
    ) -> None:
        """Allocate the pool.

        Args:
            layout: content of a slot.
            num_slots: slots to allocate; >= 1.
            device: where the tensor lives.
        """
        if num_slots < 1:
            raise ValueError(f"num_slots must be >= 1, got {num_slots}")
        self.layout = layout
        self.num_slots = num_slots
        self.image_bytes = layout.image_bytes
        self.device = torch.device(device)
        elements = layout.image_bytes // layout.dtype.itemsize
        self.images = torch.zeros(num_slots, elements, dtype=layout.dtype, device=self.device)
        windows = layout.recurrent_elements
        hidden = windows + layout.window_elements
        heads = (layout.num_layers, layout.num_heads, layout.key_dim, layout.value_dim)
        self._recurrent = self.images[:, :windows].view(num_slots, *heads).unbind(1)
        rows = (layout.num_layers, layout.window_rows, layout.window_width)
        self._windows = self.images[:, windows:hidden].view(num_slots, *rows).unbind(1)
        self.last_hidden = self.images[:, hidden : hidden + layout.hidden_size]
        """View `[num_slots, hidden_size]`: the normalised hidden state of the last token."""

    @property
    def num_bytes(self) -> int:
        """Bytes of the whole pool."""
        return self.num_slots * self.image_bytes

    def recurrent(self, layer: int) -> Tensor:
        """View one layer's recurrent states: `[num_slots, num_heads, key_dim, value_dim]`, slots strided."""
        return self._recurrent[layer]

    def windows(self, layer: int) -> Tensor:
        """View one layer's convolution windows: `[num_slots, window_rows, window_width]`, slots strided."""
        return self._windows[layer]

    def copy(self, source: int | None, target: int) -> None:
        """Copy a slot to another; a source of None resets the target to the state of position 0.

        Raises:
            IndexError: there is no such slot.
        """
        self._check(target)
        if source is None:
            self.images[target].zero_()
            return
        self._check(source)
        if source == target:
            return
        if self.device.type == "cpu":
            # One thread: waking others takes longer than copying.
            np.copyto(self.images[target].numpy(), self.images[source].numpy())
        else:
            self.images[target].copy_(self.images[source])

    def copy_out(self, slot: int, buffer: memoryview) -> None:
        """Copy a slot to host memory of `image_bytes`; blocks until it is there.

        Copies without holding the interpreter lock and on the calling thread alone.

        Raises:
            IndexError: there is no such slot.
            ValueError: the buffer has another length or is read-only.
        """
        self._check(slot, buffer)
        image = self.images[slot].cpu().numpy().view(np.uint8)
        np.copyto(np.frombuffer(buffer, np.uint8), image)

    def copy_in(self, slot: int, buffer: memoryview) -> None:
        """Copy host memory of `image_bytes` to a slot; blocks until it is there.

        Raises:
            IndexError: there is no such slot.
            ValueError: the buffer has another length.
        """
        self._check(slot, buffer)
        source = np.frombuffer(buffer, np.uint8)
        if self.device.type == "cpu":
            np.copyto(self.images[slot].numpy().view(np.uint8), source)
        else:
            image = torch.from_numpy(source.copy()).view(self.layout.dtype)
            self.images[slot].copy_(image)

    def _check(self, slot: int, buffer: memoryview | None = None) -> None:
        if not 0 <= slot < self.num_slots:
            raise IndexError(f"state slot {slot} is not in a pool of {self.num_slots}")
        if buffer is not None and buffer.nbytes != self.image_bytes:
            raise ValueError(
                f"a state image has {self.image_bytes} bytes, the buffer has {buffer.nbytes}"
            )
