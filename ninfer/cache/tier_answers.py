"""Checks of what a plugin's tier answers. Each returns the answer as promised, or raises WrongAnswer."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from ninfer.api import (
    ImageKey,
    ImageRecord,
    PutResult,
    PutStatus,
    ReadResult,
    ReadStatus,
    TierChanges,
    TierUsage,
)
from ninfer.core.plugin_guard import WrongAnswer

T = TypeVar("T")


def put_results(answer: object, num_items: int) -> list[PutResult]:
    """Return one result per item. Raises WrongAnswer."""
    results = _list_of(PutResult, answer, num_items)
    _require_all(PutStatus, [result.status for result in results], "status")
    return results


def read_results(answer: object, num_items: int) -> list[ReadResult]:
    """Return one result per item. Raises WrongAnswer."""
    results = _list_of(ReadResult, answer, num_items)
    _require_all(ReadStatus, [result.status for result in results], "status")
    _require_all(bytes, [result.header for result in results], "header")
    return results


def record_list(answer: object) -> list[ImageRecord]:
    """Return the records that a tier lists. Raises WrongAnswer."""
    if not isinstance(answer, Iterable):
        raise WrongAnswer(f"returned {_shown(answer)}, not records")
    records = []
    for record in answer:
        _require(ImageRecord, record, "a record")
        _require(bytes, record.header, "header")
        records.append(record)
    return records


def changes_of(answer: object) -> TierChanges:
    """Return what a shared tier tells. Raises WrongAnswer."""
    if not isinstance(answer, TierChanges):
        raise WrongAnswer(f"returned {_shown(answer)}, not TierChanges")
    _require(bytes, answer.cursor, "cursor")
    record_list(answer.records)
    for key in answer.removed:
        _require(ImageKey, key, "a removed image")
    return answer


def sentences(answer: object) -> list[str]:
    """Return what `check` found. Raises WrongAnswer."""
    if not isinstance(answer, list | tuple):
        raise WrongAnswer(f"returned {_shown(answer)}, not a list of sentences")
    return [str(sentence) for sentence in answer]


def truths(answer: object, num_items: int) -> list[bool]:
    """Return one yes or no per item. Raises WrongAnswer."""
    return _list_of(bool, answer, num_items)


def usage_of(answer: object) -> TierUsage:
    """Return a usage whose numbers are counts of bytes and images. Raises WrongAnswer."""
    if not isinstance(answer, TierUsage):
        raise WrongAnswer(f"returned {_shown(answer)}, not TierUsage")
    byte_count("capacity_bytes", answer.capacity_bytes)
    byte_count("used_bytes", answer.used_bytes)
    _require(Mapping, answer.events, "events")
    for name, number in answer.events.items():
        _require(str, name, "the name of an event")
        byte_count(name, number)
    return answer


def byte_count(what: str, answer: object) -> int:
    """Return a number of bytes. Raises WrongAnswer."""
    if type(answer) is not int or answer < 0:
        shown = answer if isinstance(answer, int | float) else _shown(answer)
        raise WrongAnswer(f"{what} is {shown}, not a number of bytes")
    return answer


def run_in_place(answer: object, num_keys: int) -> tuple[Sequence[bytes], memoryview] | None:
    """Return headers and payloads of `view_run`, these as plain bytes. Raises WrongAnswer."""
    match answer:
        case None:
            return None
        case (list() | tuple() as headers, memoryview() as payloads) if payloads.c_contiguous:
            if not 1 <= len(headers) <= num_keys:
                raise WrongAnswer(f"showed {len(headers)} images for {num_keys} keys")
            _require_all(bytes, headers, "a header")
            return headers, payloads.cast("B") if payloads.nbytes else memoryview(b"")
        case _:
            raise WrongAnswer(f"returned {_shown(answer)}, not (headers, payloads)")


def allocated(answer: object, payload_bytes: int) -> memoryview | None:
    """Return the buffer of `allocate`. Raises WrongAnswer."""
    if answer is None:
        return None
    if not isinstance(answer, memoryview) or answer.readonly or not answer.c_contiguous:
        raise WrongAnswer(f"returned {_shown(answer)} that cannot be written to")
    if answer.nbytes != payload_bytes:
        raise WrongAnswer(f"gave {answer.nbytes} B for {payload_bytes} B")
    return answer


def _list_of(wanted: type[T], answer: object, num_items: int) -> list[T]:
    if not isinstance(answer, list | tuple):
        raise WrongAnswer(f"returned {_shown(answer)}, not a list of {wanted.__name__}")
    if len(answer) != num_items:
        raise WrongAnswer(f"returned {len(answer)} results for {num_items} items")
    _require_all(wanted, answer, "a result")
    return list(answer)


def _require_all(wanted: type[object], values: Sequence[object], what: str) -> None:
    if set(map(type, values)) != {wanted}:  # not so simple: a subclass, none at all, or wrong
        for value in values:
            _require(wanted, value, what)


def _require(wanted: type[object], value: object, what: str) -> None:
    if not isinstance(value, wanted):
        raise WrongAnswer(f"{what} is {_shown(value)}, not {wanted.__name__}")


def _shown(value: object) -> str:
    return f"a value of type {type(value).__qualname__}"
