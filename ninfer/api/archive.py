"""The contract of offline access to what a durable tier keeps. Knows nothing about a running engine.

For people who look at, verify, thin out or move stored contexts while no server runs, or only look while one does.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ninfer.api.image import ImageKey, ImageRecord
from ninfer.api.tier import PutItem, PutResult, ReadItem, ReadResult


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreInfo:
    """The images of one fingerprint at one place.

    Attributes:
        store_id: its name at that place.
        fingerprint: 32 bytes, as `TierContext.fingerprint` when they were stored.
        model_name: for people; empty if it was not written down.
        page_image_bytes: payload length of a full page image, 0 if unknown.
        num_images: stored images.
        num_bytes: bytes of capacity they take, overhead included.
        is_in_use: a server has it open, so it can only be read.
    """

    store_id: str
    fingerprint: bytes
    model_name: str
    page_image_bytes: int
    num_images: int
    num_bytes: int
    is_in_use: bool


class TierArchive(ABC):
    """Everything that tiers of one kind keep at one place, whatever the model.

    Used by one thread. Looking changes nothing and is allowed beside a running server: an image that the server
    deletes meanwhile reads as MISSING.
    """

    @abstractmethod
    def stores(self) -> list[StoreInfo]:
        """List the stores, in the order of their names. Reads descriptions, no payload."""

    @abstractmethod
    def records(self, store_id: str) -> Iterator[ImageRecord]:
        """List the images of a store.

        Raises:
            TierError: there is no such store, or it cannot be read.
        """

    @abstractmethod
    def read_into(self, store_id: str, items: Sequence[ReadItem]) -> list[ReadResult]:
        """Read and verify images, as `StorageTier.read_into`; a damaged one is only reported.

        Raises:
            TierError: there is no such store, or it cannot be read.
        """

    @abstractmethod
    def delete(self, store_id: str, keys: Sequence[ImageKey]) -> list[bool]:
        """Remove images; for each key, tell whether it was there.

        Raises:
            TierUnavailable: a server has the store open.
            TierError: there is no such store.
        """

    @abstractmethod
    def put(self, info: StoreInfo, items: Sequence[PutItem]) -> list[PutResult]:
        """Add images to the store of `info.fingerprint`, which is made if it does not exist.

        Raises:
            TierUnavailable: a server has the store open.
        """

    @abstractmethod
    def close(self) -> None:
        """Release what was opened."""
