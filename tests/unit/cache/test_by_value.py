"""The order in which images of a smaller tier are kept."""

import random

from ninfer.api import ImageKey, ImageKind, ImageRecord
from ninfer.cache.identity import ImageHeader, encode_tokens, sha256
from ninfer.cache.recovery import by_value

ROOT = sha256(b"domain")


def record(kind, parent, tokens, end, last_use):
    encoded = encode_tokens(tokens)
    header = ImageHeader(
        kind=kind,
        end_tokens=end,
        num_uses=1,
        created_unix_s=0.0,
        last_use_unix_s=last_use,
        parent_digest=parent,
        domain=b"",
        tokens=encoded,
    )
    digest = sha256(b"page" + parent + encoded)
    if kind is ImageKind.STATE:
        digest = sha256(b"state" + digest)
    return ImageRecord(key=ImageKey(digest=digest, kind=kind), header=header.pack(), num_bytes=1)


def context(name, num_pages, last_use, *, parent=ROOT, start=0):
    """Pages of a context and a state at its end."""
    records = []
    for page in range(start, start + num_pages):
        tokens, end = [name] * 64, 64 * (page + 1)
        records.append(record(ImageKind.PAGE, parent, tokens, end, last_use))
        above, parent = parent, records[-1].key.digest
    records.append(record(ImageKind.STATE, above, tokens, end, last_use))
    return records


def shuffled(records):
    records = list(records)
    random.Random(1).shuffle(records)
    return records


def test_contexts_by_last_use_heads_first_pages_before_states():
    old, new = context(1, 3, 10.0), context(2, 2, 20.0)
    assert by_value(shuffled(old + new)) == [*new, *old]


def test_a_head_counts_as_used_when_its_tail_was():
    head = context(1, 2, 1.0)
    tail = context(3, 1, 30.0, parent=head[1].key.digest, start=2)
    between = context(2, 1, 20.0)
    ordered = by_value(shuffled(head + tail + between))
    assert ordered == [*head[:2], *tail, *between, head[2]]


def test_no_image_comes_before_its_prefix_at_any_cut():
    rng = random.Random(0)
    records = []
    for name in range(20):
        records += context(name, rng.randrange(1, 5), rng.random())
        at = rng.choice([r for r in records if r.key.kind is ImageKind.PAGE])
        end = ImageHeader.unpack(at.header).end_tokens
        records += context(100 + name, 2, rng.random(), parent=at.key.digest, start=end // 64)
    seen = {ROOT}
    for found in by_value(shuffled(records)):
        header = ImageHeader.unpack(found.header)
        assert header.parent_digest in seen
        if header.kind is ImageKind.PAGE:
            seen.add(found.key.digest)
        else:
            assert sha256(b"page" + header.parent_digest + header.tokens) in seen


def test_without_a_prefix_or_a_header_last():
    whole, orphan = context(1, 2, 1.0), context(2, 3, 99.0)[1:]
    foreign = ImageRecord(
        key=ImageKey(digest=bytes(32), kind=ImageKind.PAGE), header=b"?", num_bytes=1
    )
    assert by_value([foreign, *orphan, *whole]) == [*whole, *orphan, foreign]
