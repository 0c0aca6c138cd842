"""Public reports about disk tiers, one test for each kind of fault. Every answer is compared with a cold run."""

import errno
import shutil

import pytest
from ninfer_policy_costmodel.config import CostModelConfig
from ninfer_policy_costmodel.policy import CostModelPolicy

from ninfer.api import PolicyContext, TierFacts
from ninfer.cache.ledger import FULL_S
from ninfer.core.request import FinishReason
from ninfer.testing.clock import FakeClock
from plugins.storage_disk.tests.faulty_files import FaultyFiles
from tests.integration.reports.disk_engine import (
    data_file,
    folder_bytes,
    journal_file,
    killed,
    open_disk,
    started,
    stopped,
)
from tests.integration.scenarios.conversation import (
    Session,
    asked,
    checked,
    host,
    tokens,
    with_and_without_state,
)


def sessions(harness, count, num_tokens=1200):
    """So many contexts; two do not fit the device together."""
    found = [Session(harness, number, num_tokens) for number in range(count)]
    for session in found:
        session.turn(0)
    harness.settle()
    return found


@with_and_without_state
def test_b08_and_b36_the_folder_never_exceeds_its_cap_however_long_one_writes(tmp_path, has_state):
    harness = started(tmp_path, has_state=has_state, capacity=600 << 10)
    for number in range(30):
        asked(harness, tokens(number, 900), 4)
        assert folder_bytes(tmp_path) <= 600 << 10
    harness.settle()
    assert folder_bytes(tmp_path) > 250 << 10, "the tier is in use"
    stopped(harness)


def test_b10_a_restart_knows_every_file_and_leaves_no_orphan(tmp_path):
    harness = started(tmp_path)
    first, second = sessions(harness, 2)
    stopped(harness)
    lengths = []
    for _ in range(4):
        harness = started(tmp_path)
        first.harness = second.harness = harness
        assert first.turn().computed <= 84
        assert second.turn().computed <= 84
        stopped(harness)
        known = sum(n.replicas[1] is not None for n in harness.store.tree.nodes())
        disk = open_disk(tmp_path)
        assert disk.usage().num_images == known
        disk.close()
        lengths.append(folder_bytes(tmp_path))
    assert lengths[-1] - lengths[1] <= 128 << 10, "a restart adds what the turns added"


@with_and_without_state
def test_b14_a_full_memory_tier_before_the_disk_is_no_crash(tmp_path, has_state):
    harness = started(tmp_path, tiers=[host(6)], has_state=has_state)
    for session in sessions(harness, 6):
        session.turn()
    stopped(harness)


@with_and_without_state
def test_b26_and_b28_completions_for_a_request_that_is_gone_free_everything(tmp_path, has_state):
    tier = host(100)
    harness = started(tmp_path, tiers=[tier], has_state=has_state)
    first, _ = sessions(harness, 2)
    tier.gate.clear()
    parked = harness.submit(first.prompt(), 6)
    for _ in range(20):
        harness.step()
    assert not parked.finished
    harness.scheduler.abort(parked.id)
    harness.run(parked)
    assert parked.reason is FinishReason.ABORTED
    tier.gate.set()
    harness.check_drained()
    assert first.turn().computed <= 84
    stopped(harness)


@with_and_without_state
def test_b32_a_file_deleted_under_the_server_is_one_miss_not_a_livelock(tmp_path, has_state):
    harness = started(tmp_path, has_state=has_state)
    first, second = sessions(harness, 2)
    data_file(tmp_path).unlink()
    assert first.turn().computed > 300
    harness.settle()
    second.turn()
    harness.settle()
    assert first.turn().computed <= 84, "what was computed again is stored again"
    assert second.turn().computed <= 84
    stopped(harness)


def test_b38_after_everything_was_evicted_nothing_hits(tmp_path):
    harness = started(tmp_path, capacity=600 << 10)
    first, *_ = sessions(harness, 2)
    for number in range(100, 140):
        asked(harness, tokens(number, 900), 2)
    assert first.turn().cached < 64
    harness.check_drained()
    stopped(harness)


@with_and_without_state
def test_b42_a_context_seen_once_is_written_before_it_is_dropped(tmp_path, has_state):
    harness = started(tmp_path, has_state=has_state)
    first = Session(harness, 1, 1200)
    first.turn(0)
    asked(harness, tokens(2, 1500))
    assert first.turn().computed <= 84
    stopped(harness)


def test_b52_shared_prefixes_come_back_byte_for_byte(tmp_path):
    harness = started(tmp_path, tiers=[host(20)])
    head = tokens("head", 640)
    family = [Session(harness, f"f{n}", 500, head=head) for n in range(4)]
    for _ in range(3):
        for session in family:
            session.turn()
    stopped(harness)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_b64_a_key_whose_value_never_arrived_is_not_there(tmp_path, share):
    harness = started(tmp_path)
    first, _ = sessions(harness, 2)
    stopped(harness)
    path = data_file(tmp_path)
    with path.open("r+b") as file:
        file.truncate(int(path.stat().st_size * share))
    harness = started(tmp_path)
    first.harness = harness
    first.turn()
    stopped(harness)


def test_b72_an_old_index_beside_new_data_gives_no_wrong_token(tmp_path):
    harness = started(tmp_path, capacity=700 << 10)
    first, second = sessions(harness, 2)
    stopped(harness)
    old_index = journal_file(tmp_path).read_bytes()
    harness = started(tmp_path, capacity=700 << 10)
    for number in range(50, 60):
        asked(harness, tokens(number, 900), 2)
    killed(harness)
    journal_file(tmp_path).write_bytes(old_index)
    harness = started(tmp_path, capacity=700 << 10)
    first.harness = second.harness = harness
    first.turn()
    second.turn()
    stopped(harness)


def test_b74_and_b86_other_weights_or_formats_find_nothing(tmp_path):
    harness = started(tmp_path)
    first, _ = sessions(harness, 2)
    stopped(harness)
    other = started(tmp_path, fingerprint=b"w" * 32)
    first.harness = other
    assert first.turn().cached == 0
    stopped(other)
    again = started(tmp_path)
    first.harness = again
    assert first.turn().cached > 1000, "the first model's contexts were left alone"
    stopped(again)


def test_b76_other_settings_do_not_lose_the_tier(tmp_path):
    harness = started(tmp_path)
    first, _ = sessions(harness, 2)
    stopped(harness)
    harness = started(tmp_path, 48, tiers=[host(10)], capacity=3 << 20, chunk=64)
    first.harness = harness
    assert first.turn().computed <= 84
    stopped(harness)


@with_and_without_state
def test_b78_a_record_cut_short_is_not_a_shorter_valid_one(tmp_path, has_state):
    harness = started(tmp_path, has_state=has_state)
    first, second = sessions(harness, 2)
    stopped(harness)
    index = journal_file(tmp_path)
    content = index.read_bytes()
    for length in (len(content) - 5, len(content) // 2, 200):
        index.write_bytes(content[:length])
        harness = started(tmp_path, has_state=has_state)
        first.harness = second.harness = harness
        first.turn()
        second.turn()
        killed(harness)


def test_b80_a_damaged_image_fails_once_and_then_the_request_succeeds(tmp_path):
    harness = started(tmp_path)
    first, _ = sessions(harness, 2)
    path = data_file(tmp_path)
    content = bytearray(path.read_bytes())
    for at in range(0, len(content), 4096):
        content[at] ^= 1
    path.write_bytes(content)
    assert first.turn().computed > 300
    counters = harness.handles[-1].counters
    assert counters.num_corrupt > 0
    for _ in range(3):
        asked(harness, tokens("push", 1500))
        answer = first.turn()
    assert answer.computed <= 84
    assert counters.num_corrupt <= harness.tiers[-1].usage().num_images, "each is read once"
    stopped(harness)


def test_b82_what_a_request_will_read_is_not_evicted_for_it(tmp_path):
    harness = started(tmp_path, 20, capacity=600 << 10)
    first = Session(harness, 0, 900)
    first.turn(0)
    for number in range(1, 60):
        asked(harness, tokens(number, 700), 2)
        if number % 2 == 0:
            assert first.turn(5, 2).computed <= 84
    stopped(harness)


def test_b84_a_disk_that_is_full_before_the_cap_costs_misses_and_then_works_again(tmp_path):
    files = FaultyFiles(error_at=10**9, error=errno.ENOSPC, error_forever=True)
    clock = FakeClock()
    harness = started(tmp_path, files=files, clock=clock)
    sessions(harness, 2)
    files.error_at = files.num_changes + 1
    for number in range(20, 26):
        asked(harness, tokens(number, 900), 2)
    # A write that still fails after the clock went on would make the disk full for as long again.
    harness.settle()
    files.error_at = 10**9
    clock.advance(FULL_S)
    first = Session(harness, "late", 1200)
    first.turn(0)
    asked(harness, tokens("push", 1500))
    assert first.turn().computed <= 84
    stopped(harness)


@pytest.mark.parametrize(("read_bytes_per_s", "is_read"), [(1e3, False), (1e9, True)])
def test_b88_a_disk_slower_than_prefill_is_not_read(tmp_path, read_bytes_per_s, is_read):
    def policy(context):
        facts = TierFacts(
            tier_name="disk",
            capacity_bytes=2 << 20,
            read_bytes_per_s=read_bytes_per_s,
            write_bytes_per_s=1e9,
        )
        measured = PolicyContext(
            clock=context.clock,
            tiers=[context.tiers[0], facts],
            bytes_per_token=8,
            prefill_tokens_per_s=10_000.0,
        )
        return CostModelPolicy.open(measured, CostModelConfig(save_calibration=False))

    harness = started(tmp_path, policy=policy)
    first, _ = sessions(harness, 2)
    if not is_read:
        harness.policy.observe_transfer = lambda observed: None
    answer = first.turn()
    assert (answer.cached > 1000) == is_read
    stopped(harness)


def test_a_copy_of_the_folder_serves_like_the_original(tmp_path):
    harness = started(tmp_path / "a")
    first, _ = sessions(harness, 2)
    stopped(harness)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    harness = started(tmp_path / "b")
    first.harness = harness
    (answer,) = checked(harness, harness.submit(first.prompt(), 4))
    assert answer.computed <= 84
    stopped(harness)
    assert open_disk(tmp_path / "a").check() == []
