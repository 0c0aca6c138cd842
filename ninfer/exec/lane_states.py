"""Where fixed-size recurrent states live. Knows nothing about what is in them or who owns a slot."""

from typing import Protocol


class LaneStates(Protocol):
    """Slots of equal length that hold everything besides KV which a lane needs to go on.

    Attributes:
        num_slots: slots; 0 for models without state.
        image_bytes: bytes of one slot.
    """

    @property
    def num_slots(self) -> int: ...  # noqa: D102
    @property
    def image_bytes(self) -> int: ...  # noqa: D102

    def copy(self, source: int | None, target: int) -> None:
        """Copy a slot to another; a source of None resets the target to the state of position 0."""
        ...

    def copy_out(self, slot: int, buffer: memoryview) -> None:
        """Copy a slot to host memory of `image_bytes`; blocks until it is there."""
        ...

    def copy_in(self, slot: int, buffer: memoryview) -> None:
        """Copy host memory of `image_bytes` to a slot; blocks until it is there."""
        ...


class NoStates:
    """For models without state: has no slots, so every use is a mistake."""

    num_slots = 0
    image_bytes = 0

    def copy(self, source: int | None, target: int) -> None:
        """Raise ValueError."""
        raise ValueError(f"this model has no state to copy ({source} to {target})")

    def copy_out(self, slot: int, buffer: memoryview) -> None:
        """Raise ValueError."""
        raise ValueError(f"this model has no state slot {slot} ({buffer.nbytes} bytes wanted)")

    def copy_in(self, slot: int, buffer: memoryview) -> None:
        """Raise ValueError."""
        raise ValueError(f"this model has no state slot {slot} ({buffer.nbytes} bytes given)")
