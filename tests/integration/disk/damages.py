"""Damage to the files of a disk tier, by the name of the region it hits. Knows nothing about engines."""

import shutil
import struct
import zlib

from ninfer_storage_disk.directory import DATA, JOURNAL, LOCK
from ninfer_storage_disk.entry import decode
from ninfer_storage_disk.journal import FILE_HEAD_BYTES, FORMAT_VERSION, JournalHead, encode_head

HEAD_FIELDS = {
    "head.magic": (0, 8),
    "head.version": (8, 10),
    "head.zero": (10, 12),
    "head.block_length": (12, 16),
    "head.fingerprint": (16, 48),
    "head.crc": (48, 52),
    "head.padding": (52, 64),
}

ENTRY_FIELDS = {
    "entry.magic": (0, 4),
    "entry.crc": (4, 8),
    "entry.length": (8, 12),
    "entry.kind": (12, 13),
    "entry.digest_length": (13, 14),
    "entry.header_length": (14, 16),
    "entry.num_runs": (16, 20),
    "entry.sequence": (20, 28),
    "entry.payload_length": (28, 36),
    "entry.checksum": (36, 44),
    "entry.digest": (44, 76),
}

IMAGE_HEADER_FIELDS = {
    "header.magic": (0, 4),
    "header.domain_length": (4, 6),
    "header.kind": (6, 7),
    "header.end": (8, 12),
    "header.uses": (12, 16),
    "header.times": (16, 48),
    "header.num_tokens": (48, 52),
    "header.parent": (52, 84),
    "header.digest": (84, 116),
    "header.tokens": (116, 372),
}

RUN_BYTES = struct.calcsize("<QI")


def store_of(root):
    """Return the folder of the only store."""
    (journal,) = root.glob(f"*/{JOURNAL}")
    return journal.parent


def regions(root):
    """Return {name: [(path, start, end)]} of every region of every file of the only store."""
    folder = store_of(root)
    journal = folder / JOURNAL
    content = memoryview(journal.read_bytes())
    found = {name: [(journal, start, end)] for name, (start, end) in HEAD_FIELDS.items()}
    (block_bytes,) = struct.unpack_from("<I", content, 12)

    def add(name, path, start, end):
        if end > start:
            found.setdefault(name, []).append((path, start, end))

    offset = FILE_HEAD_BYTES
    while offset < len(content) and (decoded := decode(content, offset)):
        entry, end = decoded
        for name, (first, last) in ENTRY_FIELDS.items():
            add(name if entry else "dead." + name, journal, offset + first, offset + last)
        if entry:
            header = offset + ENTRY_FIELDS["entry.digest"][1] + len(entry.runs) * RUN_BYTES
            add("entry.runs", journal, offset + ENTRY_FIELDS["entry.digest"][1], header)
            for name, (first, last) in IMAGE_HEADER_FIELDS.items():
                add(name, journal, header + first, min(header + last, end))
            add("entry.padding", journal, header + len(entry.header), end)
            left = entry.num_bytes
            for run in entry.runs:
                start = run.start * block_bytes
                used = min(left, run.count * block_bytes)
                add("data.payload", folder / DATA, start, start + used)
                add("data.rounding", folder / DATA, start + used, run.end * block_bytes)
                left -= used
        offset = end
    add("about", folder / "about.json", 0, (folder / "about.json").stat().st_size)
    for path in (folder / LOCK, root / LOCK):
        found.setdefault("lock", []).append((path, 0, 1))
    return found


def flip(rng, where):
    """Flip one bit."""
    path, start, end = where
    bit = 1 << rng.randrange(8)
    _change(path, rng.randrange(start, end), lambda old: bytes([(old or b"\0")[0] ^ bit]), 1)


def scribble(rng, where):
    """Write noise over the region and perhaps beyond it."""
    path, start, end = where
    length = rng.randint(1, 2 * (end - start))
    _change(path, start, lambda _: rng.randbytes(length), length)


def zero(rng, where):
    """Write zeros over the region."""
    path, start, end = where
    _change(path, start, lambda old: bytes(len(old)), end - start)


def cut(rng, where):
    """End the file inside the region."""
    path, start, end = where
    with path.open("r+b") as file:
        file.truncate(rng.randint(start, end - 1) or 1)


def delete(rng, where):
    """Delete the file, or all that stands beside it."""
    path = where[0]
    if rng.random() < 0.2:
        shutil.rmtree(path.parent)
    else:
        path.unlink()


def swap(rng, where, other):
    """Exchange the bytes of two regions of the same kind."""
    (path, start, end), (path_b, start_b, end_b) = where, other
    length = min(end - start, end_b - start_b)
    with path.open("r+b") as a, path_b.open("r+b") as b:
        a.seek(start)
        b.seek(start_b)
        first, second = a.read(length), b.read(length)
        a.seek(start)
        a.write(second)
        a.flush()
        b.seek(start_b)
        b.write(first)


def replace(rng, path, content):
    """Put another file in its place, by another inode or the same one."""
    if rng.random() < 0.5:
        beside = path.with_name("beside")
        beside.write_bytes(content)
        beside.replace(path)
    else:
        path.write_bytes(content)


def newer_format(root):
    """Make the journal one of a format to come, undamaged."""
    journal = store_of(root) / JOURNAL
    content = bytearray(journal.read_bytes())
    fields = JournalHead(int.from_bytes(content[12:16], "little"), bytes(content[16:48]))
    head = bytearray(encode_head(fields))
    struct.pack_into("<H", head, 8, FORMAT_VERSION + 1)
    struct.pack_into("<I", head, 48, zlib.crc32(head[:48]))
    content[: len(head)] = head
    journal.write_bytes(content)


def _change(path, at, new, length):
    with path.open("r+b") as file:
        file.seek(at)
        old = file.read(length)
        file.seek(at)
        file.write(new(old))


PLAIN = (flip, flip, flip, scribble, zero, cut)
"""Damage that needs a region and nothing else."""


def damage(rng, places, *, old, other):
    """Do one random damage.

    Args:
        rng: chooses.
        places: as `regions` found them.
        old: {file name: an earlier content of the same store}.
        other: {file name: content of another model's store}.

    Returns:
        What was done, in words.
    """
    name = rng.choice(sorted(places))
    where = rng.choice(places[name])
    kind = rng.random()
    if kind < 0.7:
        how = rng.choice(PLAIN)
        how(rng, where)
        return f"{how.__name__} {name} {where[0].name}[{where[1]}:{where[2]}]"
    if kind < 0.82:
        with_many = [n for n in sorted(places) if len(places[n]) > 1 and n != "lock"]
        name = rng.choice(with_many)
        swap(rng, *rng.sample(places[name], 2))
        return f"swap {name}"
    if kind < 0.88:
        delete(rng, where)
        return f"delete {where[0].name}"
    source = rng.choice([old, other])
    name = rng.choice(sorted(source))
    path = next(w[0] for ws in places.values() for w in ws if w[0].name == name)
    replace(rng, path, source[name])
    return f"replace {name} by {'an old' if source is old else 'a foreign'} one"
