"""JSON answers, encoded by orjson. Knows nothing about what they say."""

from collections.abc import Mapping, Sequence

import orjson
from starlette.responses import Response


def json_response(
    payload: Mapping[str, object] | Sequence[Mapping[str, object]], *, status: int = 200
) -> Response:
    """Return `payload` as a JSON response."""
    return Response(orjson.dumps(payload), status, media_type="application/json")
