"""Digests of prompt pages for the request log, so that a log can be replayed. Keeps neither text nor tokens."""

import hashlib
import os
import secrets
from pathlib import Path
from typing import Final

from ninfer.api import ConfigError
from ninfer.cache.identity import PAGE_TOKEN_BYTES, encode_tokens
from ninfer.core.request import GenerationRequest

_SALT_BYTES: Final = 32
_DIGEST_BYTES: Final = 8


class PageDigests:
    """Names the full pages of prompts: equal names mean equal tokens up to there, for the same tenant.

    Without the salt, which never leaves its file, nobody can try out which text a name belongs to.

    Args:
        salt: of this server, 32 bytes.
    """

    def __init__(self, salt: bytes) -> None:
        """Keep the salt."""
        self._salt = salt

    @classmethod
    def open(cls, path: Path) -> "PageDigests":
        """Read the salt of a log, made on first use, private to the user (0600).

        Raises:
            ConfigError: the file cannot be read or made, or holds something else.
        """
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            pass
        except OSError as error:
            raise ConfigError(
                f"server.request_log_digests: cannot write {path}: {error.strerror}"
            ) from error
        else:
            with os.fdopen(descriptor, "wb") as file:
                file.write(secrets.token_bytes(_SALT_BYTES))
        try:
            salt = path.read_bytes()
        except OSError as error:
            raise ConfigError(
                f"server.request_log_digests: cannot read {path}: {error.strerror}"
            ) from error
        if len(salt) != _SALT_BYTES:
            raise ConfigError(
                f"server.request_log_digests: {path} has {len(salt)} bytes instead of {_SALT_BYTES}; remove it"
            )
        return cls(salt)

    def of(self, request: GenerationRequest) -> list[str]:
        """Return the names of the full pages of a prompt. Cost: about 2 us per page."""
        encoded = encode_tokens(request.prompt_token_ids)
        running = hashlib.blake2b(
            request.cache.salt.encode(), key=self._salt, digest_size=_DIGEST_BYTES
        )
        names = []
        for end in range(PAGE_TOKEN_BYTES, len(encoded) + 1, PAGE_TOKEN_BYTES):
            running.update(encoded[end - PAGE_TOKEN_BYTES : end])
            names.append(running.copy().hexdigest())
        return names
