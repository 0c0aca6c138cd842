"""Copies page and state images between device and host memory. Knows nothing about tiers.

A page image is the page's bytes of every typed pool, pools in name order, each `[num_layers, 2, 64, num_kv_heads,
head_dim]` row-major.
"""

import threading
from collections.abc import Iterator, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ninfer.core.step import PAGE_SIZE_TOKENS
from ninfer.exec.host_memory import pin_ranges
from ninfer.exec.lane_states import LaneStates, NoStates
from ninfer.kernels.kv_pool import KvPool

Bytes = NDArray[np.uint8]


class HostCopier:
    """A `DeviceCopier` for a device whose memory is host memory.

    Copies with numpy, on the calling thread alone and without holding the interpreter lock, so a transfer never takes
    a core from the tensor library's threads. Thread-safe: keeps nothing between calls.
    """

    def __init__(self, pools: Mapping[str, KvPool], *, states: LaneStates | None = None) -> None:
        """View the pools.

        Args:
            pools: typed KV pools by name, on a CPU.
            states: recurrent states; None for a model without.
        """
        self._views = tuple(_byte_view(pools[name]) for name in sorted(pools))
        self._num_pages = min(pool.num_pages for pool in pools.values())
        self._image_bytes = sum(pool.layout.page_bytes for pool in pools.values())
        self._states: LaneStates = NoStates() if states is None else states

    def copy_page_out(self, page: int, buffer: memoryview) -> None:
        """Copy a page image to host memory of `page_image_bytes`.

        Raises:
            ValueError: the buffer has another length or is read-only.
            IndexError: there is no such page.
        """
        for image, view in self._parts(page, buffer):
            np.copyto(image, view)

    def copy_page_in(self, page: int, buffer: memoryview) -> None:
        """Copy a page image from host memory of `page_image_bytes`.

        Raises:
            ValueError: the buffer has another length.
            IndexError: there is no such page.
        """
        for image, view in self._parts(page, buffer):
            np.copyto(view, image)

    def copy_state_out(self, slot: int, buffer: memoryview) -> None:
        """Copy a state slot to host memory of `state_image_bytes`."""
        self._states.copy_out(slot, buffer)

    def copy_state_in(self, slot: int, buffer: memoryview) -> None:
        """Copy a state slot from host memory of `state_image_bytes`."""
        self._states.copy_in(slot, buffer)

    def _parts(self, page: int, buffer: memoryview) -> Iterator[tuple[Bytes, Bytes]]:
        """Yield each pool's part of the image and of the pool, of equal shape."""
        _check(page, buffer, self._num_pages, self._image_bytes)
        flat = np.frombuffer(buffer, np.uint8)
        offset = 0
        for pool_view in self._views:
            view = pool_view[:, :, page]
            yield flat[offset : offset + view.size].reshape(view.shape), view
            offset += view.size


class CudaCopier:
    """A `DeviceCopier` for a CUDA device: one stream per calling thread, so nothing waits for the model's kernels.

    Thread-safe. Relies on `ModelRunner.execute` to return only when the device is done.
    """

    def __init__(self, pools: Mapping[str, KvPool], *, states: LaneStates | None = None) -> None:
        """View the pools.

        Args:
            pools: typed KV pools by name, on one CUDA device.
            states: recurrent states; None for a model without.
        """
        self._pools = tuple(pools[name] for name in sorted(pools))
        self._num_pages = min(pool.num_pages for pool in self._pools)
        self._image_bytes = sum(pool.layout.page_bytes for pool in self._pools)
        self._states: LaneStates = NoStates() if states is None else states
        self._device = self._pools[0].device
        self._local = threading.local()

    def copy_page_out(self, page: int, buffer: memoryview) -> None:
        """Copy a page image to host memory of `page_image_bytes`; see `HostCopier`."""
        _check(page, buffer, self._num_pages, self._image_bytes)
        with torch.cuda.stream(self._stream()):
            parts = [_flat(pool.run(page, 1).contiguous()) for pool in self._pools]
            image = parts[0] if len(parts) == 1 else torch.cat(parts)
            for host, (low, high) in _host_pieces(buffer):
                host.copy_(image[low:high], non_blocking=True)
            self._stream().synchronize()

    def copy_page_in(self, page: int, buffer: memoryview) -> None:
        """Copy a page image from host memory of `page_image_bytes`; see `HostCopier`."""
        _check(page, buffer, self._num_pages, self._image_bytes)
        with torch.cuda.stream(self._stream()):
            image = torch.empty(self._image_bytes, dtype=torch.uint8, device=self._device)
            for host, (low, high) in _host_pieces(buffer):
                image[low:high].copy_(host, non_blocking=True)
            offset = 0
            for pool in self._pools:
                part = image[offset : offset + pool.layout.page_bytes]
                target = pool.run(page, 1)
                target.copy_(part.view(target.dtype).view(target.shape))
                offset += pool.layout.page_bytes
            self._stream().synchronize()

    def copy_state_out(self, slot: int, buffer: memoryview) -> None:
        """Copy a state slot to host memory of `state_image_bytes`."""
        with torch.cuda.stream(self._stream()):
            self._states.copy_out(slot, buffer)
            self._stream().synchronize()

    def copy_state_in(self, slot: int, buffer: memoryview) -> None:
        """Copy a state slot from host memory of `state_image_bytes`."""
        with torch.cuda.stream(self._stream()):
            self._states.copy_in(slot, buffer)
            self._stream().synchronize()

    def _stream(self) -> torch.cuda.Stream:
        stream: torch.cuda.Stream | None = self._local.__dict__.get("stream")
        if stream is None:
            stream = self._local.__dict__["stream"] = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        return stream


def build_copier(
    pools: Mapping[str, KvPool], *, states: LaneStates | None = None
) -> HostCopier | CudaCopier:
    """Make the copier that fits where the pools are.

    Args:
        pools: typed KV pools by name, on one device.
        states: recurrent states; None for a model without.
    """
    is_cuda = next(iter(pools.values())).device.type == "cuda"
    return CudaCopier(pools, states=states) if is_cuda else HostCopier(pools, states=states)


def _check(page: int, buffer: memoryview, num_pages: int, image_bytes: int) -> None:
    if not 0 <= page < num_pages:
        raise IndexError(f"page {page} is not in a pool of {num_pages}")
    if buffer.nbytes != image_bytes:
        raise ValueError(f"a page image has {image_bytes} bytes, the buffer has {buffer.nbytes}")


def _byte_view(pool: KvPool) -> Bytes:
    """View a pool as bytes `[num_layers, 2, num_pages, page bytes of one layer and half]`."""
    num_layers = pool.layout.num_layers
    row_bytes = pool.layout.page_bytes // (2 * num_layers)
    flat = pool.kv.view(torch.uint8).numpy()
    return flat.reshape(num_layers, 2, pool.num_slots // PAGE_SIZE_TOKENS, row_bytes)


def _flat(tensor: Tensor) -> Tensor:
    return tensor.view(-1).view(torch.uint8)


def _host_pieces(buffer: memoryview) -> Iterator[tuple[Tensor, tuple[int, int]]]:
    """Yield views of host memory that each lie in one pinned piece, with their range in the buffer."""
    if buffer.readonly:
        buffer = memoryview(bytearray(buffer))
    host = torch.frombuffer(buffer, dtype=torch.uint8)
    low = 0
    for _, length in pin_ranges(host.data_ptr(), buffer.nbytes):
        yield host[low : low + length], (low, low + length)
        low += length
