"""How many state slots a device gets. Knows nothing about tensors or who uses slots."""

from dataclasses import dataclass
from typing import Final

from ninfer.core.step import PAGE_SIZE_TOKENS

IMAGES_PER_LANE: Final = 4
"""Saved states for each lane, whatever their size: end of the system prompt, of the prompt, of the answer, and one
that is on its way to or from another tier."""
STATE_SHARE: Final = 0.25
"""Room of saved states beyond that, as a part of the room of KV."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateNeed:
    """What decides about state slots.

    Attributes:
        image_bytes: bytes of one slot; 0 for a model without state.
        num_lanes: requests that run at once, each with a running state.
        num_scratch: slots that each lane keeps for the states after guesses.
        num_images: configured number of saved states; None to derive it.
    """

    image_bytes: int
    num_lanes: int
    num_scratch: int
    num_images: int | None = None

    @property
    def least_slots(self) -> int:
        """Slots there must be."""
        images = self.num_images or IMAGES_PER_LANE * self.num_lanes
        return self.num_lanes * (1 + self.num_scratch) + images

    @property
    def least_bytes(self) -> int:
        """Bytes there must be."""
        return self.least_slots * self.image_bytes

    @property
    def share(self) -> float:
        """Bytes that may be taken beyond `least_bytes`, as a part of those of KV."""
        return STATE_SHARE if self.image_bytes and self.num_images is None else 0.0

    def num_slots(self, kv_bytes: int, *, kv_tokens: int) -> int:
        """Decide.

        Args:
            kv_bytes: room of KV.
            kv_tokens: tokens in it; there is never more than one saved state per page.
        """
        more = int(kv_bytes * self.share) // self.image_bytes if self.image_bytes else 0
        return self.least_slots + min(more, kv_tokens // PAGE_SIZE_TOKENS)
