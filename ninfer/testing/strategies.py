"""Random keys, headers and payloads. Small on purpose: a short example is worth more than a large one."""

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy


def headers() -> SearchStrategy[bytes]:
    """Return headers of 1 to 200 bytes, any bytes."""
    return st.binary(min_size=1, max_size=200)


def payloads() -> SearchStrategy[bytes]:
    """Return payloads of 1 to 1,000 bytes, any bytes, long ones included."""
    short = st.binary(min_size=1, max_size=40)
    return st.tuples(short, st.integers(1, 25)).map(lambda pair: pair[0] * pair[1])
