"""Images that a tier shows in place: only what is asked for, whole and still wanted, gets to the device."""

import pytest
import torch
from ninfer_storage_host.arena import GRANULE_BYTES
from ninfer_storage_host.config import HostConfig
from ninfer_storage_host.tier import HostTier

from ninfer.api import PutItem, TierContext
from ninfer.cache.move import Batch
from ninfer.cache.move_steps import MoveSteps
from ninfer.cache.pace import Pace
from ninfer.cache.tier_handle import TierHandle
from ninfer.exec.host_memory import HostMemory
from ninfer.obs.clock import SystemClock
from tests.unit.cache.test_transfers import Device, header, move

PAGE_BYTES = 2 * GRANULE_BYTES
PAYLOADS = [bytes([n + 1]) * PAGE_BYTES for n in range(4)]


class Shown(HostTier):
    """Counts how often it shows images, and shows them as `shape` says."""

    num_shown = 0

    @staticmethod
    def shape(payloads):
        return payloads

    def view_run(self, keys):
        self.num_shown += 1
        headers, payloads = super().view_run(keys)
        return headers, self.shape(payloads)


class PageDevice(Device):
    def __init__(self):
        super().__init__(0)
        self.pages = {}

    def copy_pages_in(self, pages, buffer):
        assert buffer.nbytes == len(pages) * PAGE_BYTES
        for at, page in enumerate(pages):
            self.pages[page] = bytes(buffer[at * PAGE_BYTES : (at + 1) * PAGE_BYTES])


@pytest.fixture
def tier():
    context = TierContext(
        tier_name="host",
        fingerprint=b"f" * 32,
        clock=SystemClock(),
        host_allocator=HostMemory(torch.device("cpu")),
        page_image_bytes=PAGE_BYTES,
    )
    opened = Shown.open(context, HostConfig(capacity=10 * PAGE_BYTES))
    yield opened
    opened.close()


def put(tier, number, payload, content=None):
    packed = header(number if content is None else content).pack()
    key = move(number, source=1, target=0).key
    tier.put([PutItem(key=key, header=packed, payload=memoryview(payload))])


def restored(tier, *, is_cancelled=False):
    """Return how moves of all pages ended, what is on the device then, and what the tier's handle counted."""
    moves = [move(n, source=1, target=0, location=n) for n in range(len(PAYLOADS))]
    for one in moves:
        one.num_bytes = PAGE_BYTES
    batch = Batch(moves=moves, is_cancelled=is_cancelled)
    handle, device = TierHandle("host", tier), PageDevice()
    ((_, results),) = run(MoveSteps([handle], device, Pace()), [batch])
    return [result.outcome for result in results], device.pages, handle.counters


def run(steps, batches):
    """Return what was reported: batches and the results of their moves."""
    reported = []
    steps.run(batches, lambda batch, results: reported.append((batch, results)))
    return reported


@pytest.mark.parametrize("shape", ["words", "rows"])
def test_memory_that_is_shown_in_another_shape_is_read_as_bytes(tier, shape):
    def shaped(payloads):
        is_words = shape == "words"
        return payloads.cast("I") if is_words else payloads.cast("B", (payloads.nbytes // 2, 2))

    tier.shape = shaped
    for number, payload in enumerate(PAYLOADS):
        put(tier, number, payload, content=99 if number == 1 else None)
    outcomes, pages, _ = restored(tier)
    assert outcomes == ["done", "source_lost", "done", "done"]
    assert pages == {number: PAYLOADS[number] for number in (0, 2, 3)}


def test_images_whose_wrong_lengths_make_up_for_each_other_are_lost(tier):
    # What is not as long as a page takes its place from the end: the second image lies behind the first of the two.
    lengths = {0: PAGE_BYTES, 2: 3 * GRANULE_BYTES, 1: GRANULE_BYTES, 3: PAGE_BYTES}
    for number, length in lengths.items():
        put(tier, number, PAYLOADS[number][:1] * length)
    outcomes, pages, counters = restored(tier)
    assert outcomes == ["done", "source_lost", "source_lost", "done"]
    assert pages == {number: PAYLOADS[number] for number in (0, 3)}
    assert (counters.num_read, counters.num_corrupt) == (2, 2)


def test_what_nobody_waits_for_is_neither_looked_at_nor_counted(tier):
    for number, payload in enumerate(PAYLOADS):
        put(tier, number, payload)
    outcomes, pages, counters = restored(tier, is_cancelled=True)
    assert outcomes == ["given_up"] * len(PAYLOADS)
    assert not pages
    assert (tier.num_shown, counters.num_read, counters.read_bytes) == (0, 0, 0)
