"""The options of a plugin as a table, read from its configuration model."""

import inspect
import re
import types
from collections.abc import Iterable
from enum import Enum
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

OPTION_HEADERS: Final = ("OPTION", "TYPE", "DEFAULT", "MEANING")

_ATTRIBUTE: Final = re.compile(r"^    (\w+): ")


def option_rows(model: type[BaseModel]) -> list[tuple[str, str, str, str]]:
    """Return one row per option: name, type, default and meaning; "required" where there is no default.

    The meaning is the description of the field, else what "Attributes:" in the docstring of the class says.
    """
    documented = _documented(inspect.getdoc(model) or "")
    return [
        (
            name,
            type_text(field.annotation),
            _default_text(field.get_default(call_default_factory=True, validated_data={})),
            field.description or documented.get(name, ""),
        )
        for name, field in model.model_fields.items()
    ]


def type_text(annotation: Any) -> str:  # noqa: ANN401 - any annotation
    """Return a type as it would be written: `"auto" | ByteSize`."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return type_text(arguments[0])
    if origin is Literal:
        return " | ".join(repr(value).replace("'", '"') for value in arguments)
    if origin in {Union, types.UnionType}:
        return " | ".join(type_text(argument) for argument in arguments)
    if annotation is type(None):
        return "nothing"
    if origin is not None:
        inner = ", ".join(type_text(argument) for argument in arguments if argument is not Ellipsis)
        return f"{_name(origin)}[{inner}]"
    return _name(annotation)


def _name(annotation: object) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def _default_text(default: object) -> str:
    if default is PydanticUndefined:
        return "required"
    value = default.value if isinstance(default, Enum) else default
    return f'"{value}"' if isinstance(value, str) else str(value)


def _documented(text: str) -> dict[str, str]:
    _, _, attributes = text.partition("\nAttributes:\n")
    return dict(_entries(attributes.splitlines()))


def _entries(lines: Iterable[str]) -> list[tuple[str, str]]:
    entries: list[tuple[str, str]] = []
    for line in lines:
        match = _ATTRIBUTE.match(line)
        if match:
            entries.append((match[1], line[match.end() :].strip()))
        elif line.startswith("     ") and entries:
            name, so_far = entries[-1]
            entries[-1] = (name, f"{so_far} {line.strip()}")
        elif line.strip():
            break
    return entries
