"""Sizes of tiers as people write them: blocks, tokens or bytes. Knows nothing else."""

import re
from typing import Final

from ninfer.api import ConfigError
from ninfer.config.quantities import parse_bytes

_COUNT: Final = re.compile(r"([0-9][0-9_,]*)(k)?\s*(blocks?|tokens?|tok)?", re.IGNORECASE)
_THOUSAND: Final = 1_000


def parse_blocks(text: str, *, block_tokens: int, bytes_per_token: int, flag: str) -> int:
    """Return a size in blocks, rounded down.

    Args:
        text: "2000" or "2k" blocks, "480k tokens", or bytes with a unit such as "8GiB".
        block_tokens: tokens of one block.
        bytes_per_token: KV of one token.
        flag: named in errors.

    Raises:
        ConfigError: the text is no size, or less than one block.
    """
    counted = _COUNT.fullmatch(text.strip())
    if counted:
        number = int(re.sub("[_,]", "", counted[1])) * (_THOUSAND if counted[2] else 1)
        is_tokens = (counted[3] or "").lower().startswith("tok")
        num_blocks = number // block_tokens if is_tokens else number
    else:
        try:
            num_blocks = parse_bytes(text) // (block_tokens * bytes_per_token)
        except ValueError as error:
            msg = (
                f'{flag} {text}: neither blocks ("2000"), tokens ("480k tokens") nor bytes ("8GiB")'
            )
            raise ConfigError(msg) from error
    if num_blocks < 1:
        block_bytes = block_tokens * bytes_per_token
        raise ConfigError(
            f"{flag} {text} is less than one block ({block_tokens} tokens, {block_bytes:,} B)"
        )
    return num_blocks
