"""Request bodies: bytes to JSON to a schema, with errors that name the field. Knows nothing about endpoints."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails
from starlette.requests import ClientDisconnect, Request

from ninfer.core.errors import RequestError
from ninfer.server.errors import ClientGone, UnsupportedField

ModelT = TypeVar("ModelT", bound="RequestBody")

_MAX_SHOWN_CHARS: Final = 200


class InvalidField(RequestError):
    """A field is missing, of the wrong type or out of range."""

    code = "invalid_value"


class MissingField(InvalidField):
    """A required field is missing."""

    code = "missing_required_parameter"


class InvalidType(InvalidField):
    """A field is of the wrong type."""

    code = "invalid_type"


class InvalidJson(RequestError):
    """The body is not JSON in UTF-8, or not an object."""

    code = "invalid_json"


class RequestBody(BaseModel):
    """Base of all request bodies: exact types, null means absent, unknown fields are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)

    @classmethod
    def unsupported_fields(cls) -> Mapping[str, tuple[object, ...]]:
        """Return fields that are known but not supported, with the values that change nothing."""
        return {}


def json_body(model: type[ModelT]) -> Callable[[Request], Awaitable[ModelT]]:
    """Return a FastAPI dependency that reads the body as `model`."""

    async def read(request: Request) -> ModelT:
        try:
            raw = await request.body()
        except ClientDisconnect as error:
            raise ClientGone("The client left while it sent its request.") from error
        return parse_body(raw, model)

    return read


def parse_body(raw: bytes, model: type[ModelT]) -> ModelT:
    """Parse and validate a body.

    Args:
        raw: the bytes as received.
        model: what they should be.

    Raises:
        InvalidJson: not a JSON object in UTF-8; lone surrogates are not.
        UnsupportedField: a known field that is not supported has a value that means something.
        InvalidField: a field is missing, of the wrong type or out of range.
    """
    try:
        data = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise InvalidJson(f"The request body is not valid JSON in UTF-8: {error}") from error
    if not isinstance(data, dict):
        raise InvalidJson("The request body must be a JSON object.")
    _refuse_unsupported(data, model.unsupported_fields())
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise _field_error(error.errors(include_url=False)[0], data) from error
    except RecursionError as error:
        raise InvalidJson("The request body is nested too deeply.") from error


def _refuse_unsupported(data: dict[str, Any], table: Mapping[str, tuple[object, ...]]) -> None:
    for name, value in data.items():
        if name in table and value is not None and value not in table[name]:
            raise UnsupportedField(f"'{name}' is not supported by this server.", param=name)


def _field_error(problem: ErrorDetails, data: dict[str, Any]) -> InvalidField:
    param = _param_of(problem["loc"], data)
    if problem["type"] == "missing":
        return MissingField(f"'{param}' is required.", param=param)
    message = problem["msg"].removeprefix("Value error, ")
    kind = InvalidType if problem["type"].endswith("_type") else InvalidField
    return kind(f"Invalid '{param}': {message[:_MAX_SHOWN_CHARS]}", param=param)


def _param_of(location: tuple[int | str, ...], data: dict[str, Any]) -> str:
    """Name a field as `messages[0].content`, without the names pydantic adds for union members."""
    cursor: Any = data
    name = ""
    for part in location:
        if isinstance(cursor, dict) and isinstance(part, str):
            if part not in cursor and name and part != location[-1]:
                continue
            name = f"{name}.{part}" if name else part
            cursor = cursor.get(part)
        elif isinstance(cursor, list) and isinstance(part, int):
            name = f"{name}[{part}]"
            cursor = cursor[part] if part < len(cursor) else None
    return name
