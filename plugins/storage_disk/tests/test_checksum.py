"""The checksum is part of the format: however the bytes are given, it equals the plain sentence of `Checksum`."""

import os
import subprocess
import sys
import zlib
from hashlib import blake2b

import numpy as np
import pytest
from ninfer_storage_disk import checksum as checksums
from ninfer_storage_disk.checksum import _WEIGHTS, Checksum, checksum

SIZES = [0, 1, 7, 8, 4095, 4096, 4104, 24_576, 262_145, 2**20 - 1, 2**20, 2**20 + 7, 2**20 + 4104]


def plain(payload: bytes) -> int:
    """Return the checksum, window by window, as it was first written."""
    joined = blake2b(len(payload).to_bytes(8, "little"), digest_size=8, person=b"ninfer-disk-1")
    num_words = len(payload) // 8
    words = np.frombuffer(payload[: 8 * num_words], "<u8")
    for start in range(0, num_words, 2**17):
        window = words[start : start + 2**17]
        rows = window[: len(window) // 512 * 512].reshape(-1, 512)
        joined.update(int(np.dot(window, _WEIGHTS[: len(window)])).to_bytes(8, "little"))
        columns = np.add.reduce(rows, axis=0)
        joined.update(zlib.crc32(columns.data).to_bytes(4, "little"))
        joined.update(zlib.crc32(window[rows.size :].data).to_bytes(4, "little"))
    joined.update(payload[8 * num_words :])
    return int.from_bytes(joined.digest(), "little")


@pytest.fixture(autouse=True, params=["compiled", "numpy"])
def way(request, monkeypatch) -> None:
    """Both ways of summing."""
    if request.param == "numpy":
        monkeypatch.setattr(checksums, "compiled_sums", lambda: None)
        return
    pytest.importorskip("numba")
    assert checksums.compiled_sums() is not None


@pytest.mark.parametrize("size", [*SIZES, 1_474_560, 3 * 2**20 + 5])
def test_one_image(size) -> None:
    payload = np.random.default_rng(size).integers(0, 256, size, np.uint8).tobytes()
    assert checksum(memoryview(payload)) == plain(payload)


@pytest.mark.parametrize("size", SIZES[1:])
def test_images_beside_each_other_with_gaps(size) -> None:
    images = np.random.default_rng(size).integers(0, 256, (5, size + 13), np.uint8)
    joined = Checksum(5, size)
    joined.add(images[:, :size])
    assert joined.values() == [plain(image[:size].tobytes()) for image in images]


@pytest.mark.parametrize("offset", [1, 4, 8])
def test_an_image_that_begins_anywhere(offset) -> None:
    memory = np.random.default_rng(offset).integers(0, 256, 2**20 + 5000, np.uint8)
    assert checksum(memoryview(memory)[offset:]) == plain(memory[offset:].tobytes())


def test_images_in_another_order_in_memory() -> None:
    images = np.random.default_rng(1).integers(0, 256, (4, 8192), np.uint8)
    joined = Checksum(4, 8192)
    joined.add(images[::-1])
    assert joined.values() == [plain(image.tobytes()) for image in images[::-1]]


def test_nothing_is_written_beyond_the_memory_to_work_in() -> None:
    memory = np.full((8, 512), 7, np.uint64)
    joined = Checksum(4, 8192, memory[:2])
    with pytest.raises(ValueError):
        joined.add(np.zeros((4, 8192), np.uint8))
    assert (memory[2:] == 7).all()


def test_memory_to_work_in_may_have_gaps() -> None:
    image = np.random.default_rng(1).integers(0, 256, (2, 8192), np.uint8)
    joined = Checksum(2, 8192, np.zeros((2, 1024), np.uint64)[:, :512])
    joined.add(image)
    assert joined.values() == [plain(row.tobytes()) for row in image]


def test_damaged_machine_code_of_an_earlier_process_is_not_used(tmp_path) -> None:
    pytest.importorskip("numba")
    code = "from ninfer_storage_disk.compiled_sums import compile_sums; compile_sums()"

    def start() -> None:
        folder = {"NUMBA_CACHE_DIR": str(tmp_path)}
        subprocess.run([sys.executable, "-c", code], env={**os.environ, **folder}, check=True)

    start()
    kept = [path for path in tmp_path.rglob("*.nb?") if path.is_file()]
    assert kept
    for path in kept:
        path.write_bytes(path.read_bytes()[:100])
    start()


def test_known_value() -> None:
    """Of files that exist."""
    payload = bytes(range(256)) * 5000
    assert checksum(memoryview(payload)) == 14270661872796651952
