"""Quantities with units."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer.config.kv_capacity import AUTO, KvCapacity, parse_kv_capacity
from ninfer.config.quantities import format_bytes, format_duration, parse_bytes, parse_duration_s


@pytest.mark.parametrize(
    ("value", "num_bytes"),
    [
        ("64GiB", 64 * 1024**3),
        ("8192MiB", 8 * 1024**3),
        ("1.5KiB", 1536),
        ("2 TiB", 2 * 1024**4),
        ("17B", 17),
        ("17", 17),
        (17, 17),
        (0, 0),
    ],
)
def test_bytes_are_read(value, num_bytes):
    assert parse_bytes(value) == num_bytes


@pytest.mark.parametrize(
    "value", ["8GB", "8gib", "eight", "", "-1GiB", "1e3KiB", "GiB", -1, 1.5, True, None]
)
def test_wrong_bytes_name_the_value_and_the_units(value):
    with pytest.raises(ValueError, match="B, KiB, MiB, GiB, TiB") as caught:
        parse_bytes(value)
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("250ms", 0.25),
        ("5m", 300.0),
        ("1h", 3600.0),
        ("2d", 172800.0),
        ("1.5s", 1.5),
        ("7", 7.0),
        (7, 7.0),
        (0.5, 0.5),
    ],
)
def test_durations_are_read(value, seconds):
    assert parse_duration_s(value) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "value", ["5min", "10 sec", "-1s", "", -1, True, float("inf"), float("nan"), [1]]
)
def test_wrong_durations_name_the_value_and_the_units(value):
    with pytest.raises(ValueError, match="ms, s, m, h, d") as caught:
        parse_duration_s(value)
    assert repr(value) in str(caught.value)


@given(st.integers(min_value=0, max_value=2**60))
def test_formatted_bytes_are_read_back_exactly(num_bytes):
    assert parse_bytes(format_bytes(num_bytes)) == num_bytes


@pytest.mark.parametrize("seconds", [0.0, 0.25, 1.0, 10.0, 300.0, 90000.0])
def test_formatted_durations_are_read_back(seconds):
    assert parse_duration_s(format_duration(seconds)) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("value", "capacity"),
    [
        ("auto", AUTO),
        (480_000, KvCapacity(num_tokens=480_000)),
        ("480000", KvCapacity(num_tokens=480_000)),
        ("8GiB", KvCapacity(num_bytes=8 * 1024**3)),
        (AUTO, AUTO),
    ],
)
def test_kv_capacity_is_tokens_or_bytes_or_auto(value, capacity):
    assert parse_kv_capacity(value) == capacity
    assert parse_kv_capacity(str(capacity)) == capacity
    assert capacity.is_auto == (capacity == AUTO)


@pytest.mark.parametrize("value", [0, "0", -5, "8GB", "lots", True, None, 1.5, "0GiB"])
def test_wrong_kv_capacity_says_what_is_allowed(value):
    with pytest.raises(ValueError, match='write "auto", a number of tokens'):
        parse_kv_capacity(value)
