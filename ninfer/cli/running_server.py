"""Asks a server that runs what its plugins do. Knows nothing about how it is told to people."""

import json
import urllib.error
import urllib.request
from typing import Any, Final

from ninfer.api import NinferError

_TIMEOUT_S: Final = 10.0


def fetch_plugins(url: str, api_key: str) -> list[dict[str, Any]]:
    """Return what `GET /admin/plugins` of a server says.

    Args:
        url: of the server, for example "http://127.0.0.1:8000".
        api_key: sent along unless empty.

    Raises:
        NinferError: there is no such server, or it does not let us in.
    """
    address = f"{url.rstrip('/').removesuffix('/v1')}/admin/plugins"
    if not address.startswith(("http://", "https://")):
        raise NinferError(f"{url!r} is no address of a server; write http://HOST:PORT")
    request = urllib.request.Request(address)  # noqa: S310 - the scheme is checked
    if api_key:
        request.add_header("authorization", f"Bearer {api_key}")
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310 - as above
            found = json.load(answer)
    except urllib.error.HTTPError as error:
        hint = "; send its key with --api-key" if error.code == 401 else ""
        raise NinferError(f"{address} answers {error.code} {error.reason}{hint}") from error
    except (OSError, ValueError) as error:
        raise NinferError(f"{address} does not answer: {error}") from error
    return list(found)
