"""Stored headers against the header of what is wanted."""

from dataclasses import replace

import pytest

from ninfer.api import ImageKind
from ninfer.cache.identity import ImageHeader, encode_tokens

WANTED = ImageHeader(
    kind=ImageKind.PAGE,
    end_tokens=128,
    num_uses=1,
    created_unix_s=1.0,
    last_use_unix_s=2.0,
    parent_digest=b"p" * 32,
    domain=b"salt",
    tokens=encode_tokens(range(64)),
)
USED_LATER = replace(
    WANTED, num_uses=7, created_unix_s=3.0, last_use_unix_s=4.0, retain_s=5.0, retain_until_unix_s=6
)
OTHERS = {
    "kind": replace(WANTED, kind=ImageKind.STATE),
    "position": replace(WANTED, end_tokens=64),
    "parent": replace(WANTED, parent_digest=b"q" * 32),
    "domain": replace(WANTED, domain=b"sale"),
    "tokens": replace(WANTED, tokens=encode_tokens([*range(63), 0])),
    "border": replace(WANTED, domain=b"sal", tokens=b"t" + WANTED.tokens),
}


def test_a_packed_header_of_the_same_content_is_known_whenever_it_was_used():
    assert WANTED.is_named_by(WANTED.pack())
    assert WANTED.is_named_by(USED_LATER.pack())


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_a_packed_header_of_other_content_is_not(other):
    assert not WANTED.is_named_by(other.pack())
    assert not other.is_named_by(WANTED.pack())


def test_bytes_that_are_no_header_name_nothing():
    packed = WANTED.pack()
    nothing = replace(WANTED, domain=b"", tokens=b"")
    for damaged in (b"", packed[:-1], packed + b"\0", b"XXXX" + packed[4:]):
        assert not WANTED.is_named_by(damaged)
        assert not nothing.is_named_by(damaged)
