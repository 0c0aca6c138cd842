"""Typed reading of untyped configuration tables. Knows nothing about which fields exist."""

from collections.abc import Mapping

from ninfer.api.errors import ModelError


class Fields:
    """A table of a model file, read with type checks that name the field and the file."""

    def __init__(self, raw: Mapping[str, object], *, source: str, prefix: str = "") -> None:
        """Wrap a table.

        Args:
            raw: the table; null counts as absent.
            source: what to call it in errors.
            prefix: put before every name.
        """
        self._raw = raw
        self._source = source
        self._prefix = prefix

    def integer(self, name: str, *, default: int | None = None) -> int:
        """Return an integer; without a default, absence is a ModelError."""
        value = self._value(name, default)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        raise self._wrong(name, "an integer", value)

    def number(self, name: str, *, default: float | None = None) -> float:
        """Return a float; without a default, absence is a ModelError."""
        value = self._value(name, default)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
        raise self._wrong(name, "a number", value)

    def text(self, name: str, *, default: str | None = None) -> str:
        """Return a string; without a default, absence is a ModelError."""
        value = self._value(name, default)
        if isinstance(value, str):
            return value
        raise self._wrong(name, "a string", value)

    def flag(self, name: str, *, default: bool) -> bool:
        """Return a boolean."""
        value = self._value(name, default)
        if isinstance(value, bool):
            return value
        raise self._wrong(name, "true or false", value)

    def token_ids(self, name: str) -> tuple[int, ...]:
        """Return one token id or a list of them as a tuple; empty if absent."""
        value = self._raw.get(self._prefix + name)
        if value is None:
            return ()
        values = value if isinstance(value, list) else [value]
        if all(isinstance(v, int) and not isinstance(v, bool) for v in values):
            return tuple(values)
        raise self._wrong(name, "a token id or a list of them", value)

    def integers(self, name: str) -> tuple[int, ...]:
        """Return a list of integers as a tuple; empty if absent."""
        values = self._raw.get(self._prefix + name)
        if values is None:
            return ()
        if isinstance(values, list) and all(
            isinstance(v, int) and not isinstance(v, bool) for v in values
        ):
            return tuple(values)
        raise self._wrong(name, "a list of integers", values)

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of strings as a tuple; empty if absent."""
        values = self._raw.get(self._prefix + name)
        if values is None:
            return ()
        if isinstance(values, list) and all(isinstance(v, str) for v in values):
            return tuple(values)
        raise self._wrong(name, "a list of strings", values)

    def table(self, name: str) -> "Fields | None":
        """Return a nested table, None if absent."""
        value = self._raw.get(self._prefix + name)
        if value is None:
            return None
        if isinstance(value, dict):
            return Fields(value, source=f"{self._source}, {name}")
        raise self._wrong(name, "a table", value)

    def _value(self, name: str, default: object) -> object:
        value = self._raw.get(self._prefix + name)
        if value is None:
            value = default
        if value is None:
            raise ModelError(f"{self._source}: {self._prefix}{name} is missing")
        return value

    def _wrong(self, name: str, wanted: str, value: object) -> ModelError:
        return ModelError(f"{self._source}: {self._prefix}{name} must be {wanted}, got {value!r}")
