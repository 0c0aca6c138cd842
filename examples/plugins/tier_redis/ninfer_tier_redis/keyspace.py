"""Names of keys on the server, and back. Knows nothing about values."""

from typing import Final

from ninfer.api import ImageKey, ImageKind

FORMAT: Final = "1"
"""Version of names, values and scripts together; part of every key, so that formats never meet."""


class Keyspace:
    """Keys of one model below a prefix.

    All of them have the same hash tag in braces, so that a cluster keeps them on one node and a script may touch
    several of them.

    Args:
        prefix: of the installation.
        fingerprint: of model and layout.
    """

    def __init__(self, prefix: str, fingerprint: bytes) -> None:
        """Make the constant names."""
        base = f"{prefix}:{{{FORMAT}:{fingerprint.hex()}}}"
        self.meta = f"{base}:meta"
        """Hash: epoch, capacity, used, seq."""
        self.index = f"{base}:index"
        """Hash: field of an image -> entry."""
        self.log = f"{base}:log"
        """Stream of changes, numbered without gaps by `seq`."""
        self._images = f"{base}:image:"
        self._new = f"{base}:new:"

    def image(self, field: str) -> str:
        """Return the key of an image's value."""
        return self._images + field

    def new(self, writer: str, number: int) -> str:
        """Return the key under which a value waits to be committed."""
        return f"{self._new}{writer}:{number}"

    @property
    def image_pattern(self) -> str:
        """Matches the values of all images."""
        return self._images + "*"

    def field_of(self, key: bytes) -> str:
        """Return the field of a value's key."""
        return key.decode().removeprefix(self._images)


def field_of(key: ImageKey) -> str:
    """Return the name of an image within its model."""
    return key.text


def key_of(field: bytes) -> ImageKey | None:
    """Return the image that a field names, None if it names none."""
    kind, _, digest = field.decode("ascii", "replace").partition("-")
    try:
        return ImageKey(digest=bytes.fromhex(digest), kind=ImageKind(kind))
    except ValueError:
        return None
