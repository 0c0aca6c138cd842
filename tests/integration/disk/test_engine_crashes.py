"""Whole engines that die or lose power at every change of files: contexts are served, answers equal cache off."""

import random
from collections import Counter

import pytest

from plugins.storage_disk.tests.recorded_files import crashes
from tests.integration.disk.engine_life import Promise, live, try_crash
from tests.integration.disk.rigs import FakeRig, RealRig
from tests.integration.engine.conftest import models  # noqa: F401 - a fixture

SHARES = (0.0, 0.3, 0.95)
NUM_PARTS = 10


@pytest.fixture(scope="module", params=[False, True], ids=["dense", "state"])
def fake(request, tmp_path_factory):
    rig = FakeRig(has_state=request.param)
    return rig, live(rig, tmp_path_factory.mktemp("life"))


def how(rng):
    return {"share": rng.choice(SHARES)} if rng.random() < 0.5 else {"seed": rng.randrange(10**6)}


def some_crashes(rig, changes, root, rng, share):
    """Crash at a random share of all changes; returns tokens expected from disk and had."""
    totals = Counter()
    for number, promise in crashes(changes, Promise()):
        if rng.random() < share:
            expected, had = try_crash(rig, root, changes, number, promise, **how(rng))
            totals.update(expected=expected, had=had, crashes=1)
    return totals


def test_the_life_meets_every_kind_of_change(fake):
    _, changes = fake
    kinds = Counter((c.kind, c.path.rpartition("/")[2]) for c in changes if not c.is_mark)
    for kind in ("write", "sync"):
        assert kinds[kind, "data"] > 20
        assert kinds[kind, "journal"] > 20
    assert kinds["rename", "journal.new"] >= 2, "made, compacted"
    marks = Counter(c.content[0] for c in changes if c.is_mark)
    assert marks["deleting"] > 20, "room is used again"


def test_a_sample_of_crashes_of_an_engine(fake, tmp_path):
    rig, changes = fake
    totals = some_crashes(rig, changes, tmp_path / "at", random.Random(1), 0.01)
    assert totals["expected"] > 80 * totals["crashes"], totals


@pytest.mark.soak
@pytest.mark.parametrize("part", range(NUM_PARTS))
def test_an_engine_crashes_at_every_change(fake, tmp_path, part):
    """Each change in one of the ways; a part has every tenth of them."""
    rig, changes = fake
    rng = random.Random(10 + part)
    num_crashes = 0
    for at, (number, promise) in enumerate(crashes(changes, Promise())):
        if at % NUM_PARTS == part:
            try_crash(rig, tmp_path / "at", changes, number, promise, **how(rng))
            num_crashes += 1
    assert num_crashes > 80


@pytest.mark.parametrize("family", ["llama", "qwen3_5"])
@pytest.mark.parametrize("share", [0.01, pytest.param(0.4, marks=pytest.mark.soak)])
def test_crashes_of_an_engine_with_a_real_model(family, share, models, tmp_path):  # noqa: F811
    rig = RealRig(models[family])
    changes = live(rig, tmp_path / "life")
    totals = some_crashes(rig, changes, tmp_path / "at", random.Random(2), share)
    assert totals["crashes"] >= 2
    assert totals["had"] >= totals["expected"] > 0
