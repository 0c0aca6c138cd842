"""What a tier should hold, as a plain dict. Shares no code with any tier."""

from collections.abc import Callable
from dataclasses import dataclass, field

from typing_extensions import override

from ninfer.api import ImageKey
from ninfer.testing.base import shown


@dataclass(frozen=True, slots=True, repr=False)
class Content:
    """Header and payload of one image."""

    header: bytes
    payload: bytes

    @override
    def __repr__(self) -> str:
        """Return a short text: payloads may be long."""
        return f"Content({shown(self.header)}, {shown(self.payload)})"


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
