"""Settings of a host tier. Knows nothing about the arena."""

from pathlib import Path
from typing import Literal

from pydantic import ByteSize, Field

from ninfer.api import PluginConfig
from ninfer_storage_host.memory import available_memory_bytes

AUTO_SHARE = 0.25
AUTO_MAX_BYTES = 8 << 30


class HostConfig(PluginConfig):
    """Settings of one tier of kind `host`.

    Attributes:
        capacity: bytes of host memory taken at start, as a number or like "64GiB"; "auto" takes a quarter of
            the memory available then, at most 8 GiB.
    """

    capacity: Literal["auto"] | ByteSize = Field(default="auto")

    @classmethod
    def sample(cls, root: Path) -> "HostConfig":
        """Return a small configuration; `root` is not used because nothing is stored in files."""
        del root
        return cls(capacity=ByteSize(1 << 20))

    def resolve_capacity_bytes(self) -> int:
        """Return the capacity in bytes. With "auto", asks the operating system."""
        if self.capacity == "auto":
            return min(int(available_memory_bytes() * AUTO_SHARE), AUTO_MAX_BYTES)
        return int(self.capacity)
