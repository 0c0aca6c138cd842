"""Settings of a disk tier. Knows nothing about the files it writes."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import ByteSize, Field

from ninfer.api import PluginConfig

MIN_CAPACITY_BYTES = 512 << 10


class DiskConfig(PluginConfig):
    """Settings of one tier of kind `disk`.

    Attributes:
        path: directory of the tier; below the cache folder of ninfer if not given. May be shared by several
            models and processes.
        capacity: hard cap in bytes over everything in `path`, as a number or like "800GiB".
        sync: "batch" flushes payload and journal once for each batch of images, so that a power loss shows old
            or new; "none" never flushes: safe when the process dies, and after a power loss damaged images are
            found by their checksum and dropped.
        reclaim_other_models: when the tier opens and images of other models take more than half of the cap,
            delete whole stores of other models, the longest unused first, until they do not.
    """

    path: Path | None = None
    capacity: Annotated[ByteSize, Field(ge=MIN_CAPACITY_BYTES)] = ByteSize(64 << 30)
    sync: Literal["batch", "none"] = "batch"
    reclaim_other_models: bool = True

    @classmethod
    def sample(cls, root: Path) -> "DiskConfig":
        """Return a small configuration below `root`."""
        return cls(path=root / "disk", capacity=ByteSize(4 << 20))
