"""What a tier should hold, as a plain dict. Shares no code with any tier."""

from collections.abc import Callable
from dataclasses import dataclass, field

from ninfer.api import ImageKey


@dataclass(frozen=True, slots=True)
class Content:
    """Header and payload of one image."""

    header: bytes
    payload: bytes


@dataclass(slots=True)
class ImageOracle:
    """All images that a tier should hold now.

    Attributes:
        images: by key.
    """

    images: dict[ImageKey, Content] = field(default_factory=dict)

    def used_bytes(self, stored_bytes: Callable[[int, int], int]) -> int:
        """Return the bytes that a tier should report, given what it says of one image."""
        return sum(stored_bytes(len(c.header), len(c.payload)) for c in self.images.values())
