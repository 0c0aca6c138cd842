"""Ways in which a file can be damaged between two runs. Knows nothing about what the file means."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final

_NUMBERS: Final = (-1, 0, 1e-320, 1e308, float("inf"), float("nan"), "x", None)
_MAX_NUMBERS: Final = 40


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
    for at in range(min(_num_numbers(whole), _MAX_NUMBERS)):
        for number in _NUMBERS:
            name = f"with number {at} replaced by {number!r}"
            yield name, partial(path.write_bytes, _with_number(whole, at, number))
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


def _num_numbers(whole: bytes) -> int:
    """Return how many numbers a JSON text has, 0 if it is no JSON."""
    try:
        parsed = json.loads(whole)
    except ValueError:
        return 0
    numbers = count()
    _replaced(parsed, numbers, -1, None)
    return next(numbers)


def _with_number(whole: bytes, at: int, number: object) -> bytes:
    """Return a JSON text with another number, or something else, in the place of one number."""
    return json.dumps(_replaced(json.loads(whole), count(), at, number)).encode()


def _replaced(parsed: Any, numbers: "count[int]", at: int, number: object) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(parsed, dict):
        return {key: _replaced(value, numbers, at, number) for key, value in parsed.items()}
    if isinstance(parsed, list):
        return [_replaced(value, numbers, at, number) for value in parsed]
    is_number = isinstance(parsed, (int, float)) and not isinstance(parsed, bool)
    return number if is_number and next(numbers) == at else parsed
