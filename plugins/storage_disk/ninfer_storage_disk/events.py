"""What happened to a store since it was opened, counted by name. Knows no files."""

from collections import Counter

from ninfer.api import PutResult, PutStatus
from ninfer_storage_disk.files import FULL_ERRORS


class Events(Counter[str]):
    """Counts of faults, as `TierUsage.events` names them, and "lost": images whose files somebody deleted."""

    def quarantined(self, number: int = 1) -> None:
        """Count what was damaged and put aside or given up."""
        self["quarantined"] += number

    def lost(self, number: int) -> None:
        """Count images whose files are gone."""
        self["lost"] += number

    def failure(self, error: OSError) -> PutResult:
        """Return the answer to a write that failed; one for want of room is counted."""
        if error.errno not in FULL_ERRORS:
            return PutResult(status=PutStatus.FAILED, message=str(error))
        self["no_space"] += 1
        return PutResult(status=PutStatus.FULL, message=str(error))
