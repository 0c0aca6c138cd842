"""Keeps Python's cycle collector away from work that makes many objects. Knows nothing about what they are."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collections() -> Iterator[None]:
    """Let nothing be collected inside: for building many objects that stay, which each collection would walk."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
