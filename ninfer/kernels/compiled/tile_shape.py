"""What a matrix tile is, whichever instructions multiply it.

A tile is 16 rows of 64 bytes. A product adds `A B` to 16 x 16 float32: A is 16 x 32 bf16, B has 16 rows of 16 pairs, the
numbers 2 i and 2 i + 1 of its columns.
"""

from typing import Final

TILE: Final = 16
TILE_BYTES: Final = 1024
