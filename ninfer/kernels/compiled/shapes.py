"""How attention heads lie in a row. Knows nothing about models."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HeadShapes:
    """Counts and sizes of heads.

    Attributes:
        num_heads: query heads; a multiple of `num_kv_heads`.
        num_kv_heads: key heads, and as many value heads.
        head_dim: elements of a head.
        rotated_dim: leading elements that are rotated, even.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    rotated_dim: int
