"""Names everything that must match for stored contexts to be usable. Knows nothing about how they are stored."""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

FORMAT_VERSION: Final = 1
"""Changes whenever the meaning of stored bytes changes."""

_WHOLE_FILE_BYTES: Final = 256 * 1024**2
_SAMPLE_BYTES: Final = 1024**2
_NUM_SAMPLES: Final = 64


def weights_digest(files: Iterable[Path]) -> bytes:
    """Return 32 bytes that name the weights.

    Files up to 256 MiB are hashed whole; of larger ones the size and 64 samples of 1 MiB, first and last bytes
    included, so that naming a 50 GB model takes a fraction of a second.

    Args:
        files: all weight files.
    """
    digest = hashlib.sha256()
    for path in sorted(files):
        num_bytes = path.stat().st_size
        digest.update(f"{path.name} {num_bytes}\n".encode())
        with path.open("rb") as file:
            if num_bytes <= _WHOLE_FILE_BYTES:
                digest.update(hashlib.file_digest(file, "sha256").digest())
                continue
            for number in range(_NUM_SAMPLES):
                file.seek(number * (num_bytes - _SAMPLE_BYTES) // (_NUM_SAMPLES - 1))
                digest.update(file.read(_SAMPLE_BYTES))
    return digest.digest()


def fingerprint(
    *,
    weights: bytes,
    tokenizer: bytes,
    dtype: str,
    weight_format: str,
    page_pools: Iterable[tuple[str, int]],
    state_image_bytes: int,
    drafter: str,
) -> bytes:
    """Return 32 bytes of which every stored image must carry the same.

    Args:
        weights: digest of the weights.
        tokenizer: digest of the tokenizer: token ids are identity.
        dtype: element type of KV.
        weight_format: packed formats compute slightly different KV.
        page_pools: (name, page bytes) of each typed pool.
        state_image_bytes: bytes of a state image.
        drafter: decoder whose state is part of the images, empty for none.
    """
    digest = hashlib.sha256()
    parts = (
        f"format {FORMAT_VERSION}",
        f"weights {weights.hex()}",
        f"tokenizer {tokenizer.hex()}",
        f"kv {dtype} {weight_format}",
        f"pools {sorted(page_pools)}",
        f"state {state_image_bytes}",
        f"drafter {drafter}",
    )
    for part in parts:
        digest.update(f"{len(part)} {part}\n".encode())
    return digest.digest()
