"""The socket that a server listens on. Knows nothing about HTTP."""

import socket
from dataclasses import dataclass

from ninfer.api.errors import NinferError


class CannotListen(NinferError):
    """The address is in use, is not one of this machine, or needs more rights."""

    code = "cannot_listen"


@dataclass(frozen=True, slots=True)
class Listener:
    """A bound socket, not listening yet: clients are refused until the server is ready.

    Attributes:
        socket: owned by the server from its start on.
        url: where clients find it.
    """

    socket: socket.socket
    url: str


def bind_listener(host: str, port: int) -> Listener:
    """Bind an address. Quick, so that a port in use is noticed before a model is loaded.

    Args:
        host: name or address.
        port: 0 lets the system choose.

    Raises:
        CannotListen: the address cannot be used; the text says why.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise CannotListen(f"cannot listen on {host!r}: {error.strerror}") from error
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise CannotListen(
            f"cannot listen on {host}:{port}: {error.strerror}. Choose another with --port."
        ) from error
    shown = f"[{host}]" if ":" in host else host
    return Listener(bound, f"http://{shown}:{bound.getsockname()[1]}")
