"""All mutants of tiers, and the suite that runs on one of them."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from ninfer.api import StorageTier
from ninfer.testing.faults import StorageFaults
from ninfer.testing.mutants.file_tier import FileTier
from ninfer.testing.mutants.shared_tier import SHARING_MUTANTS
from ninfer.testing.mutants.tier_contents import CONTENTS_MUTANTS
from ninfer.testing.mutants.tier_lifetime import LIFETIME_MUTANTS
from ninfer.testing.mutants.tier_room import ROOM_MUTANTS
from ninfer.testing.tier import StorageTierSuite

TIER_MUTANTS: Final[Mapping[type[FileTier], str]] = MappingProxyType({
    **CONTENTS_MUTANTS,
    **ROOM_MUTANTS,
    **LIFETIME_MUTANTS,
    **SHARING_MUTANTS,
})
"""Mutant -> the one requirement that it fails."""


def suite_on(tier: type[FileTier]) -> type[StorageTierSuite]:
    """Return the complete suite, all optional hooks filled in, on a FileTier or a mutant of it."""

    def open_tier(self: StorageTierSuite, root: Path) -> StorageTier:
        return tier(self.context(), root)

    def open_tier_of(self: StorageTierSuite, root: Path, capacity_bytes: int) -> StorageTier:
        return tier(self.context(), root, capacity_bytes)

    def open_tier_with_faults(
        self: StorageTierSuite, root: Path, faults: StorageFaults
    ) -> StorageTier:
        return tier(self.context(), root, faults=faults)

    return StorageTierSuite.derived(
        f"Test{tier.__name__}",
        {
            "open_tier": open_tier,
            "open_tier_of": open_tier_of,
            "open_tier_with_faults": open_tier_with_faults,
        },
    )
