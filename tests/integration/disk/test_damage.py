"""Random damage to every region of every file of a disk tier: no wrong token, nothing lost without a report."""

import logging
import random
import shutil

import pytest

from tests.integration.disk.damages import (
    PLAIN,
    damage,
    newer_format,
    regions,
    store_of,
)
from tests.integration.disk.rigs import FakeRig, Running, tokens

NUM_CONTEXTS = 3


class OtherRig(FakeRig):
    """Another model: other bytes for the same tokens."""

    def device(self):
        device = super().device()
        entry = device.mind.entry
        device.mind.entry = lambda token, position, seen: entry(token + 99, position, seen)
        return device


class Reports(logging.Handler):
    """Warnings of the disk tier, and what counters said."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.clear()

    def clear(self):
        self.messages, self.num_counted = [], 0

    def emit(self, record):
        self.messages.append(record.getMessage())


@pytest.fixture
def reports():
    handler, logger = Reports(), logging.getLogger("ninfer_storage_disk")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


class Stored:
    """A directory with contexts, what it was earlier, and that of another model."""

    def __init__(self, folder, *, has_state):
        self.rig = FakeRig(has_state=has_state)
        self.rig.capacity = 1 << 20  # room for all of it: what is missing was not evicted
        self.root = folder / "disk"
        self.contexts = [tokens(f"c{n}", 330 + 40 * n) for n in range(NUM_CONTEXTS)]
        fill(self.rig, self.root, self.contexts[:2])
        self.old = contents(self.root)
        fill(self.rig, self.root, [tokens("once", 700), *self.contexts])
        fill(self.rig, self.root, self.contexts)
        other = OtherRig(has_state=has_state)
        fill(other, folder / "other", self.contexts, fingerprint=b"o" * 32)
        self.other = contents(folder / "other")
        at = self.copy(folder / "undamaged")
        running = Running(self.rig, at)
        self.cached = [running.ask(self.prompt(n)).cached for n in range(NUM_CONTEXTS)]
        running.stop()
        assert min(self.cached) > 300

    def prompt(self, number):
        return [*self.contexts[number], *tokens(f"more{number}", 5)]

    def copy(self, target):
        shutil.copytree(self.root, target)
        return target


def fill(rig, root, contexts, **how):
    running = Running(rig, root, **how)
    for context in contexts:
        running.ask(context)
        running.harness.settle()
    running.stop()


def contents(root):
    return {name: (store_of(root) / name).read_bytes() for name in ("data", "journal")}


@pytest.fixture(scope="module", params=[False, True], ids=["dense", "state"])
def kept(request, tmp_path_factory):
    return Stored(tmp_path_factory.mktemp("stored"), has_state=request.param)


def require_answers(stored, running, reports, *, is_sound=False):
    """Ask for every context; what is missing was reported, unless nothing is left that could tell."""
    for number in range(NUM_CONTEXTS):
        answer = running.ask(stored.prompt(number))
        counters = running.handle.counters
        num_counted = counters.num_corrupt + counters.num_missing + counters.num_failed
        reports.num_counted = max(reports.num_counted, num_counted)
        is_reported = bool(reports.messages or reports.num_counted)
        assert answer.cached >= stored.cached[number] or is_reported or is_sound, "no report"


def try_damage(stored, folder, reports, *, is_running, hit):
    """Damage a copy by `hit(root)`; a server that runs there, and one that starts there, answer as without a cache."""
    root = stored.copy(folder / "disk")
    reports.clear()
    what, is_sound = "?", False
    try:
        if is_running:
            running = Running(stored.rig, root)
            running.ask(tokens("once more", 1000))
            what = hit(root)
            require_answers(stored, running, reports)
            running.ask(tokens("and once more", 1000))
            require_answers(stored, running, reports)
            running.kill()
        else:
            what = hit(root)
            # An old journal, or none and no payload, is a sound directory: nothing there could tell.
            is_sound = what == "replace journal by an old one" or not any(root.glob("*/data"))
        running = Running(stored.rig, root)
        require_answers(stored, running, reports, is_sound=is_sound)
        running.stop()
        assert not is_hidden_loss(stored, root), "lost for good"
    except AssertionError as problem:
        raise AssertionError(f"{what}, {is_running=}") from problem
    finally:
        shutil.rmtree(folder)


def is_hidden_loss(stored, root):
    """After all was asked again, a server that starts anew must find it on disk."""
    running = Running(stored.rig, root)
    cached = [running.ask(stored.prompt(n)).cached for n in range(NUM_CONTEXTS)]
    running.stop()
    return min(cached) < 300


def random_damage(stored, rng):
    def hit(root):
        return damage(rng, regions(root), old=stored.old, other=stored.other)

    return hit


def some_damages(stored, tmp_path, reports, seed, count):
    for number in range(count):
        rng = random.Random(seed * 100_000 + number)
        hit = random_damage(stored, rng)
        try_damage(stored, tmp_path / "at", reports, is_running=rng.random() < 0.5, hit=hit)


@pytest.mark.parametrize("seed", range(2))
def test_some_random_damages(kept, tmp_path, reports, seed):
    some_damages(kept, tmp_path, reports, seed, 25)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10, 35))
def test_thousands_of_random_damages(kept, tmp_path, reports, seed):
    some_damages(kept, tmp_path, reports, seed, 100)


@pytest.mark.soak
@pytest.mark.parametrize("is_running", [False, True])
def test_every_region_in_every_way(kept, tmp_path, reports, is_running):
    names = sorted(regions(kept.root))
    assert len(names) > 30
    for name in names:
        for number, how in enumerate(dict.fromkeys(PLAIN)):
            rng = random.Random(f"{name}/{number}")

            def hit(root, *, name=name, how=how, rng=rng):
                how(rng, rng.choice(regions(root)[name]))
                return f"{how.__name__} {name}"

            try_damage(kept, tmp_path / "at", reports, is_running=is_running, hit=hit)


def test_a_newer_format_is_put_aside_and_said(kept, tmp_path, reports):
    root = kept.copy(tmp_path / "disk")
    newer_format(root)
    running = Running(kept.rig, root)
    assert running.ask(kept.prompt(0)).cached < 64
    assert any("disk_journal_quarantined" in message for message in reports.messages)
    assert (store_of(root) / "journal.damaged").is_file()
    running.stop()


def test_another_models_store_beside_this_one_is_neither_used_nor_changed(kept, tmp_path):
    root = kept.copy(tmp_path / "disk")
    other = OtherRig(has_state=kept.rig.has_state)
    running = Running(other, root, fingerprint=b"o" * 32, capacity=4 << 20)
    assert running.ask(kept.prompt(0)).cached < 64
    running.stop()
    running = Running(kept.rig, root)
    assert running.ask(kept.prompt(0)).cached == kept.cached[0]
    running.stop()
