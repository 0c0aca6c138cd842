"""Bytes of one tier below the device: what is used, what is promised. Knows nothing about what the bytes are."""

from typing import Final

from ninfer.api.errors import InvariantBroken

FULL_S: Final = 60.0
"""How long a tier that refused an image counts as full. Then its capacity is tried again."""


class ByteLedger:
    """One byte budget for pages and state images together.

    Invariants:
        0 <= foreign_bytes <= used_bytes, 0 <= reserved_bytes, used_bytes + reserved_bytes <= capacity_bytes.

    Foreign bytes are those of images in a shared tier that others stored and that have no place in the tree.

    Args:
        capacity_bytes: what the tier may hold.

    Attributes:
        num_images: how many images the used bytes are.
    """

    def __init__(self, capacity_bytes: int) -> None:
        """Start empty."""
        self.capacity_bytes = capacity_bytes
        self.used_bytes = 0
        self.reserved_bytes = 0
        self.foreign_bytes = 0
        self.num_images = 0
        self._nominal_bytes = capacity_bytes
        self._full_since_s: float | None = None

    def found_full(self, now_s: float) -> None:
        """Believe that there is no more room than what is used and promised: the tier refused what should have fitted."""
        self.capacity_bytes = self.used_bytes + self.reserved_bytes
        self._full_since_s = now_s

    def try_again(self, now_s: float) -> bool:
        """Believe in the whole capacity again if the tier refused nothing for `FULL_S`; tell whether that is news."""
        if self._full_since_s is None or now_s - self._full_since_s < FULL_S:
            return False
        self.capacity_bytes = self._nominal_bytes
        self._full_since_s = None
        return True

    @property
    def free_bytes(self) -> int:
        """Bytes neither used nor promised."""
        return self.capacity_bytes - self.used_bytes - self.reserved_bytes

    def reserve(self, num_bytes: int) -> None:
        """Promise room before a copy begins.

        Raises:
            InvariantBroken: there is less; the caller must have asked first.
        """
        if num_bytes > self.free_bytes:
            msg = f"asked for {num_bytes} B, {self.free_bytes} B are free"
            raise InvariantBroken(msg)
        self.reserved_bytes += num_bytes

    def commit(self, num_bytes: int) -> None:
        """Turn the promise for one image into use."""
        self.reserved_bytes -= num_bytes
        self.used_bytes += num_bytes
        self.num_images += 1

    def cancel(self, num_bytes: int) -> None:
        """Give a promise back."""
        self.reserved_bytes -= num_bytes

    def release(self, num_bytes: int) -> None:
        """Give the room of one image back."""
        self.used_bytes -= num_bytes
        self.num_images -= 1

    def take_foreign(self, num_bytes: int) -> None:
        """Count an image without a place in the tree.

        Raises:
            InvariantBroken: there is less room; the caller must have asked first.
        """
        self.reserve(num_bytes)
        self.commit(num_bytes)
        self.foreign_bytes += num_bytes

    def give_foreign(self, num_bytes: int) -> None:
        """Stop counting an image without a place in the tree."""
        self.foreign_bytes -= num_bytes
        self.release(num_bytes)
