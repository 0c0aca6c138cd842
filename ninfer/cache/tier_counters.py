"""What a tier did since the start, as numbers. Knows nothing about tiers."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class TierCounters:
    """What a tier did since the start; written by its threads, read by anyone.

    Attributes:
        num_read: images read whole.
        num_missing: images that were not there any more.
        num_corrupt: images whose bytes were wrong.
        num_failed: I/O errors and exceptions.
        num_written: images stored.
        num_full: images refused for lack of room.
        num_deadline: transfers given up because the tier did not answer in time.
        read_bytes: payload bytes read.
        written_bytes: payload bytes stored.
        read_s: seconds of the thread that reads from it.
        write_s: seconds of the thread that writes to it.
        events: what the tier counts by itself since it was opened, by name.
    """

    num_read: int = 0
    num_missing: int = 0
    num_corrupt: int = 0
    num_failed: int = 0
    num_written: int = 0
    num_full: int = 0
    num_deadline: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    read_s: float = 0.0
    write_s: float = 0.0
    events: Mapping[str, int] = field(default_factory=dict)
