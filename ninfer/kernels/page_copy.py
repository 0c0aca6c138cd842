"""Bit-exact page copies: page to page, and pages to host bytes and back. Knows nothing about tiers.

The image of a page is `[num_layers, 2, 64, num_kv_heads, head_dim]`, contiguous, in the pool's element type and the
machine's byte order; its length is `KvLayout.page_bytes`.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from ninfer.core.step import PAGE_SIZE_TOKENS
from ninfer.kernels.kv_pool import KvPool


def copy_page(pool: KvPool, source_page: int, target_page: int, *, num_tokens: int) -> None:
    """Copy the first tokens of a page to another page, all layers (copy on write).

    Args:
        pool: both pages live here.
        source_page: read, unchanged.
        target_page: slots [0, num_tokens) are overwritten, the rest is untouched.
        num_tokens: 1 to 64.

    Raises:
        ValueError: `num_tokens` is out of range.
        IndexError: a page is not in the pool.
    """
    if not 1 <= num_tokens <= PAGE_SIZE_TOKENS:
        raise ValueError(f"num_tokens must be 1 to {PAGE_SIZE_TOKENS}, got {num_tokens}")
    source = pool.run(source_page, 1)[:, :, :num_tokens]
    pool.run(target_page, 1)[:, :, :num_tokens].copy_(source)


def copy_out(pool: KvPool, page_id: int, buffer: memoryview) -> None:
    """Copy one page to host bytes.

    Args:
        pool: read, unchanged.
        page_id: the page.
        buffer: writable, contiguous, exactly `page_bytes` long; borrowed until return.

    Raises:
        ValueError: the buffer has the wrong length or is read-only.
        IndexError: the page is not in the pool.

    Blocks until the bytes are in the buffer.
    """
    _image(pool, buffer).copy_(pool.run(page_id, 1))


def copy_in(pool: KvPool, page_id: int, buffer: memoryview) -> None:
    """Copy one page image from host bytes into the pool.

    Args:
        pool: page `page_id` is overwritten.
        page_id: the page.
        buffer: writable or not, contiguous, exactly `page_bytes` long; borrowed until return.

    Raises:
        ValueError: the buffer has the wrong length.
        IndexError: the page is not in the pool.
    """
    pool.run(page_id, 1).copy_(_image(pool, buffer, is_target=False))


def copy_run_out(pool: KvPool, first_page: int, buffers: Sequence[memoryview]) -> None:
    """Copy consecutive pages `first_page`, `first_page + 1`, ... to one buffer each; see `copy_out`.

    Every buffer is checked before the first byte is written.
    """
    pages = _pages(pool, first_page, len(buffers))
    images = [_image(pool, buffer) for buffer in buffers]
    for image, page in zip(images, pages, strict=True):
        image.copy_(page)


def copy_run_in(pool: KvPool, first_page: int, buffers: Sequence[memoryview]) -> None:
    """Copy one buffer each into consecutive pages `first_page`, `first_page + 1`, ...; see `copy_in`.

    Every buffer is checked before the first page is changed.
    """
    pages = _pages(pool, first_page, len(buffers))
    images = [_image(pool, buffer, is_target=False) for buffer in buffers]
    for image, page in zip(images, pages, strict=True):
        page.copy_(image)


def _pages(pool: KvPool, first_page: int, num_pages: int) -> tuple[Tensor, ...]:
    if num_pages == 0:
        return ()
    run = pool.run(first_page, num_pages)
    return run.view(*run.shape[:2], num_pages, PAGE_SIZE_TOKENS, *run.shape[3:]).unbind(2)


def _image(pool: KvPool, buffer: memoryview, *, is_target: bool = True) -> Tensor:
    """View host bytes as a page image in the pool's element type."""
    layout = pool.layout
    if buffer.nbytes != layout.page_bytes:
        raise ValueError(
            f"a page image has {layout.page_bytes} bytes, the buffer has {buffer.nbytes}"
        )
    if buffer.readonly:
        if is_target:
            raise ValueError("the buffer is read-only")
        # torch.frombuffer warns about read-only memory even when it is only read.
        buffer = memoryview(bytearray(buffer))
    shape = (layout.num_layers, 2, PAGE_SIZE_TOKENS, layout.num_kv_heads, layout.head_dim)
    return torch.frombuffer(buffer, dtype=torch.uint8).view(layout.dtype).view(shape)
