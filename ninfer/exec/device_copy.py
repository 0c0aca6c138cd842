"""Copies page and state images between device and host memory. Knows nothing about tiers.

A page image is the page's bytes of every typed pool, pools in name order, each `[num_layers, 2, 64, num_kv_heads,
head_dim]` row-major.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence

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
        self.copy_pages_out([page], buffer)

    def copy_page_in(self, page: int, buffer: memoryview) -> None:
        """Copy a page image from host memory of `page_image_bytes`.

        Raises:
            ValueError: the buffer has another length.
            IndexError: there is no such page.
        """
        self.copy_pages_in([page], buffer)

    def copy_pages_out(self, pages: Sequence[int], buffer: memoryview) -> None:
        """Copy page images to host memory, one behind the other; pages that follow each other in one go."""
        for images, views in self._parts(pages, buffer):
            np.copyto(images, views)

    def copy_pages_in(self, pages: Sequence[int], buffer: memoryview) -> None:
        """Copy page images that lie one behind the other in host memory; see `copy_pages_out`."""
        for images, views in self._parts(pages, buffer):
            np.copyto(views, images)

    def copy_state_out(self, slot: int, buffer: memoryview) -> None:
        """Copy a state slot to host memory of `state_image_bytes`."""
        self._states.copy_out(slot, buffer)

    def copy_state_in(self, slot: int, buffer: memoryview) -> None:
        """Copy a state slot from host memory of `state_image_bytes`."""
        self._states.copy_in(slot, buffer)

    def _parts(self, pages: Sequence[int], buffer: memoryview) -> Iterator[tuple[Bytes, Bytes]]:
        """Yield, for each run of pages and each pool, its part of the images and of the pool, of equal shape."""
        _check(pages, buffer, self._num_pages, self._image_bytes)
        images = np.frombuffer(buffer, np.uint8).reshape(len(pages), self._image_bytes)
        for at, first, count in _runs(pages):
            offset = 0
            for pool_view in self._views:
                num_layers, halves, _, row_bytes = pool_view.shape
                size = num_layers * halves * row_bytes
                part = images[at : at + count, offset : offset + size]
                part = part.reshape(count, num_layers, halves, row_bytes).transpose(1, 2, 0, 3)
                yield part, pool_view[:, :, first : first + count]
                offset += size


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
        self.copy_pages_out([page], buffer)

    def copy_page_in(self, page: int, buffer: memoryview) -> None:
        """Copy a page image from host memory of `page_image_bytes`; see `HostCopier`."""
        self.copy_pages_in([page], buffer)

    def copy_pages_out(self, pages: Sequence[int], buffer: memoryview) -> None:
        """Copy page images to host memory, one behind the other: gathered on the device, sent in one piece."""
        _check(pages, buffer, self._num_pages, self._image_bytes)
        with torch.cuda.stream(self._stream()):
            images = self._images(len(pages))
            for at, count, part, target in self._parts(pages, images):
                part[at : at + count].copy_(target)
            flat = images.view(-1)
            for host, (low, high) in _host_pieces(buffer):
                host.copy_(flat[low:high], non_blocking=True)
            self._stream().synchronize()

    def copy_pages_in(self, pages: Sequence[int], buffer: memoryview) -> None:
        """Copy page images that lie one behind the other in host memory; see `copy_pages_out`."""
        _check(pages, buffer, self._num_pages, self._image_bytes)
        with torch.cuda.stream(self._stream()):
            images = self._images(len(pages))
            flat = images.view(-1)
            for host, (low, high) in _host_pieces(buffer):
                flat[low:high].copy_(host, non_blocking=True)
            for at, count, part, target in self._parts(pages, images):
                target.copy_(part[at : at + count])
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

    def _images(self, num_pages: int) -> Tensor:
        return torch.empty((num_pages, self._image_bytes), dtype=torch.uint8, device=self._device)

    def _parts(
        self, pages: Sequence[int], images: Tensor
    ) -> Iterator[tuple[int, int, Tensor, Tensor]]:
        """Yield, for each pool and run of pages, (at, count, the pool's part of all images, those pages of the pool).

        Both are of bytes, `[pages, num_layers, 2, page bytes of one layer and half]`.
        """
        offset = 0
        for pool in self._pools:
            size, num_layers = pool.layout.page_bytes, pool.layout.num_layers
            part = images[:, offset : offset + size].view(len(pages), num_layers, 2, -1)
            whole = pool.kv.view(torch.uint8).view(
                num_layers, 2, pool.num_slots // PAGE_SIZE_TOKENS, -1
            )
            for at, first, count in _runs(pages):
                yield at, count, part, whole[:, :, first : first + count].permute(2, 0, 1, 3)
            offset += size

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


def _check(pages: Sequence[int], buffer: memoryview, num_pages: int, image_bytes: int) -> None:
    if not 0 <= min(pages) <= max(pages) < num_pages:
        raise IndexError(f"pages {list(pages)} are not all in a pool of {num_pages}")
    if buffer.nbytes != len(pages) * image_bytes:
        raise ValueError(
            f"a page image has {image_bytes} bytes, the buffer for {len(pages)} has {buffer.nbytes}"
        )


def _runs(pages: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield (place in `pages`, first page, number of pages) of pages that follow each other."""
    at = 0
    for end in range(1, len(pages) + 1):
        if end == len(pages) or pages[end] != pages[end - 1] + 1:
            yield at, pages[at], end - at
            at = end


def _byte_view(pool: KvPool) -> Bytes:
    """View a pool as bytes `[num_layers, 2, num_pages, page bytes of one layer and half]`."""
    num_layers = pool.layout.num_layers
    row_bytes = pool.layout.page_bytes // (2 * num_layers)
    flat = pool.kv.view(torch.uint8).numpy()
    return flat.reshape(num_layers, 2, pool.num_slots // PAGE_SIZE_TOKENS, row_bytes)


def _host_pieces(buffer: memoryview) -> Iterator[tuple[Tensor, tuple[int, int]]]:
    """Yield views of host memory that each lie in one pinned piece, with their range in the buffer."""
    if buffer.readonly:
        buffer = memoryview(bytearray(buffer))
    host = torch.frombuffer(buffer, dtype=torch.uint8)
    low = 0
    for _, length in pin_ranges(host.data_ptr(), buffer.nbytes):
        yield host[low : low + length], (low, low + length)
        low += length
