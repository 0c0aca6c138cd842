"""What a matrix tile is, whichever instructions multiply it.

A tile is 16 rows of 64 bytes. A product adds `A B` to 16 x 16 float32: A is 16 x 32 bf16, B has 16 rows of 16 pairs, the
numbers 2 i and 2 i + 1 of its columns.
"""

from typing import Final

import numpy as np

TILE: Final = 16
TILE_BYTES: Final = 1024


def tile_config() -> np.ndarray:
    """Return what AMX is told, uint8 `[64]`: palette 1, eight tiles of 16 rows and 64 bytes."""
    config = np.zeros(64, np.uint8)
    config[0] = 1
    config[16:32:2] = 64
    config[48:56] = 16
    return config
