"""Ways in which a file can be damaged between two runs. Knows nothing about what the file means."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

_NUMBERS: Final = (-1, 0, 1e-320, 1e308, float("inf"), float("nan"), "x", None)


def damages_of(path: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield ways to damage a file: a name and what to call.

    Args:
        path: the file; read now. Whoever calls has to put it back.
    """
    whole = path.read_bytes()
    contents = {
        "emptied": b"",
        "cut in the middle": whole[: len(whole) // 2],
        "overwritten with zeros": bytes(len(whole)),
        "overwritten with text": b"not what you wrote \xff\xfe\n" * 4,
        "of somebody else": b'{"version": 99, "somebody": ["else", 1.5, null]}',
        "of somebody else, a list": b"[1, 2, 3]",
        "with a byte flipped": _flipped(whole),
    }
    for name, content in contents.items():
        yield name, partial(path.write_bytes, content)
    for number in _NUMBERS:
        changed = _with_numbers(whole, number)
        if changed is not None:
            name = f"with every number replaced by {number}"
            yield name, partial(path.write_bytes, changed)
    yield "replaced by a folder", partial(_make_folder, path)


def _flipped(whole: bytes) -> bytes:
    middle = len(whole) // 2
    return (
        whole[:middle]
        + bytes(byte ^ 0x40 for byte in whole[middle : middle + 1])
        + whole[middle + 1 :]
    )


def _make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _with_numbers(whole: bytes, number: object) -> bytes | None:
    """Return a JSON text with other numbers in it, None if it is no JSON."""
    try:
        parsed = json.loads(whole)
    except ValueError:
        return None
    return json.dumps(_replaced(parsed, number)).encode()


def _replaced(parsed: Any, number: object) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(parsed, dict):
        return {key: _replaced(value, number) for key, value in parsed.items()}
    if isinstance(parsed, list):
        return [_replaced(value, number) for value in parsed]
    is_number = isinstance(parsed, (int, float)) and not isinstance(parsed, bool)
    return number if is_number else parsed
