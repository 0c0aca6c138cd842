"""Large images that follow each other are read in one go: the same bytes, and the same damage found, as one by one."""

import errno
import os
import random
import sys

import numpy as np
import pytest
from ninfer_storage_disk.blocks import Run
from ninfer_storage_disk.checksum import checksum, side_by_side
from ninfer_storage_disk.entry import Entry
from ninfer_storage_disk.files import Files
from ninfer_storage_disk.payloads import Payloads

BLOCK_BYTES = 64 << 10
IMAGE_BYTES = (1 << 20) + (100 << 10) + 24
WHOLE_BLOCKS = 17 * BLOCK_BYTES
NUM_IMAGES = 5


class CountingFiles(Files):
    """Counts calls that read."""

    def __init__(self):
        super().__init__()
        self.num_reads = 0

    def read_at(self, handle, buffer, offset):
        self.num_reads += 1
        return super().read_at(handle, buffer, offset)

    def _read_cached(self, handle, buffers, offset):
        self.num_reads += 1
        return super()._read_cached(handle, buffers, offset)


@pytest.fixture
def stored(tmp_path):
    """Images one behind the other in a file: files, handle, payloads, contents, entries."""
    files = CountingFiles()
    handle = files.open(tmp_path / "data", is_new=True)
    payloads = Payloads(files, BLOCK_BYTES)
    rng = random.Random(1)
    contents = [rng.randbytes(IMAGE_BYTES) for _ in range(NUM_IMAGES)]
    count = -(-IMAGE_BYTES // BLOCK_BYTES)
    runs = [(Run(3 + count * n, count),) for n in range(NUM_IMAGES)]
    placed = [(memoryview(content), run) for content, run in zip(contents, runs, strict=True)]
    sums = payloads.write(handle, placed)
    entries = [entry_of(run, value) for run, value in zip(runs, sums, strict=True)]
    yield files, handle, payloads, contents, entries
    files.close(handle)


def entry_of(runs, value, num_bytes=IMAGE_BYTES):
    fields = dict.fromkeys(Entry.__dataclass_fields__)
    fields |= {"num_bytes": num_bytes, "runs": runs, "checksum": value}
    return Entry(**fields)


def beside():
    whole = memoryview(bytearray(NUM_IMAGES * IMAGE_BYTES))
    return [whole[n * IMAGE_BYTES : (n + 1) * IMAGE_BYTES] for n in range(NUM_IMAGES)]


def scattered():
    return [memoryview(bytearray(IMAGE_BYTES + 8 * n))[:IMAGE_BYTES] for n in range(NUM_IMAGES)]


@pytest.mark.parametrize("buffers_of", [beside, scattered])
def test_images_come_back_in_one_call(stored, buffers_of):
    files, handle, payloads, contents, entries = stored
    for _ in range(2):
        buffers = buffers_of()
        files.num_reads = 0
        found = payloads.read(handle, list(zip(entries, buffers, strict=True)))
        assert found == [True] * NUM_IMAGES
        assert [bytes(buffer) for buffer in buffers] == contents
    if sys.platform == "linux":
        assert files.num_reads == 1, "the page cache has all of it"


@pytest.mark.parametrize("buffers_of", [beside, scattered])
@pytest.mark.parametrize("damaged", range(NUM_IMAGES))
def test_a_changed_byte_is_found_in_its_image_alone(stored, buffers_of, damaged):
    files, handle, payloads, _, entries = stored
    offset = entries[damaged].runs[0].start * BLOCK_BYTES + 1_000_003
    files.write_at(handle, memoryview(b"\x00\x01\x02\x03\x04"), offset)
    found = payloads.read(handle, list(zip(entries, buffers_of(), strict=True)))
    assert found == [n != damaged for n in range(NUM_IMAGES)]


@pytest.mark.parametrize("is_warm", [False, True])
def test_an_image_that_the_file_ends_in_is_not_good_though_the_buffer_has_its_bytes(
    stored, is_warm
):
    files, handle, payloads, contents, entries = stored
    buffers = beside()
    wanted = list(zip(entries, buffers, strict=True))
    assert all(payloads.read(handle, wanted))
    files._is_warm = is_warm
    files.truncate(handle, entries[3].runs[0].start * BLOCK_BYTES + IMAGE_BYTES - 1)
    assert [bytes(buffer) for buffer in buffers] == contents
    assert payloads.read(handle, wanted) == [True, True, True, False, False]


@pytest.mark.parametrize("is_warm", [False, True])
def test_what_the_page_cache_lacks_is_read_from_the_device(stored, is_warm):
    files, handle, payloads, contents, entries = stored
    if sys.platform == "linux":
        os.fsync(handle)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    files._is_warm = is_warm
    buffers = beside()
    assert all(payloads.read(handle, list(zip(entries, buffers, strict=True))))
    assert [bytes(buffer) for buffer in buffers] == contents


@pytest.mark.skipif(sys.platform != "linux", reason="other systems cannot be asked")
@pytest.mark.parametrize("num_cached", [0, 1, IMAGE_BYTES, IMAGE_BYTES + 7, 3 * IMAGE_BYTES])
def test_a_read_goes_on_where_the_page_cache_ended(stored, num_cached, monkeypatch):
    files, handle, payloads, contents, entries = stored

    def cached(handle, buffers, offset, flags):
        assert flags == os.RWF_NOWAIT
        left, done = num_cached, 0
        for buffer in buffers:
            part = memoryview(buffer)[:left]
            done += Files.read_at(files, handle, part, offset + done)
            left -= len(part)
        return done

    real = os.preadv
    monkeypatch.setattr(os, "preadv", lambda *a: cached(*a) if len(a) > 3 else real(*a))
    files._is_warm = True
    buffers = beside()
    assert all(payloads.read(handle, list(zip(entries, buffers, strict=True))))
    assert [bytes(buffer) for buffer in buffers] == contents


@pytest.mark.parametrize("bad", range(NUM_IMAGES))
def test_a_bad_sector_costs_the_image_that_it_is_in(stored, bad, monkeypatch):
    files, handle, payloads, contents, entries = stored
    place = entries[bad].runs[0].start * BLOCK_BYTES + 700_000

    def read_some(handle, buffer, offset):
        if offset <= place < offset + len(buffer):
            raise OSError(errno.EIO, "bad sector")
        return Files._read_some(files, handle, buffer, offset)

    monkeypatch.setattr(files, "_read_some", read_some)
    monkeypatch.setattr(files, "_read_cached", lambda *_: 0)
    buffers = beside()
    found = payloads.read(handle, list(zip(entries, buffers, strict=True)))
    assert isinstance(found[bad], OSError)
    for n in set(range(NUM_IMAGES)) - {bad}:
        assert found[n] is True
        assert bytes(buffers[n]) == contents[n]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems are not asked")
@pytest.mark.parametrize("is_built_without", [True, False])
def test_a_system_that_cannot_be_asked_reads_as_before(stored, monkeypatch, is_built_without):
    files, handle, payloads, contents, entries = stored
    real = os.preadv

    def without_flags(handle, buffers, offset, *flags):
        if flags:
            raise NotImplementedError("preadv2: flags unavailable on this platform")
        return real(handle, buffers, offset)

    if is_built_without:
        monkeypatch.delattr(os, "RWF_NOWAIT")
    else:
        monkeypatch.setattr(os, "preadv", without_flags)
    buffers = beside()
    assert all(payloads.read(handle, list(zip(entries, buffers, strict=True))))
    assert [bytes(buffer) for buffer in buffers] == contents


def test_images_of_whole_blocks_have_no_gaps_between_them(tmp_path):
    files = Files()
    handle = files.open(tmp_path / "data", is_new=True)
    payloads = Payloads(files, BLOCK_BYTES)
    contents = [random.Random(n).randbytes(WHOLE_BLOCKS) for n in range(3)]
    runs = [(Run(17 * n, 17),) for n in range(3)]
    placed = [(memoryview(content), run) for content, run in zip(contents, runs, strict=True)]
    sums = payloads.write(handle, placed)
    entries = [entry_of(run, value, WHOLE_BLOCKS) for run, value in zip(runs, sums, strict=True)]
    buffers = [memoryview(bytearray(WHOLE_BLOCKS)) for _ in range(3)]
    for order in ([0, 1, 2], [2, 1, 0], [0, 2, 1]):
        wanted = [(entries[n], buffers[n]) for n in order]
        assert payloads.read(handle, wanted) == [True] * 3
        assert [bytes(buffer) for buffer in buffers] == contents
    files.close(handle)


def test_side_by_side():
    whole = memoryview(bytearray(range(100)))
    images = side_by_side([whole[at : at + 10] for at in (0, 30, 60)])
    assert images is not None
    assert np.array_equal(images, [[*range(at, at + 10)] for at in (0, 30, 60)])
    assert side_by_side([whole[at : at + 10] for at in (0, 30, 61)]) is None
    assert side_by_side([whole[at : at + 10] for at in (60, 30, 0)])[1, 0] == 30
    assert checksum(whole[:10])
