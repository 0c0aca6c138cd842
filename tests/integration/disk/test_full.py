"""Disks that are full before the cap of the tier is: requests succeed, new contexts push old ones out, room is used again."""

import pytest
from ninfer_storage_disk.files import Files

from ninfer.cache.ledger import FULL_S
from tests.integration.disk.rigs import FakeRig, Leap, Running, tokens
from tests.integration.disk.small_disks import SmallFiles, mounted, short_files

CAP = 4 << 20
ROOM = 600 << 10


@pytest.fixture(params=[False, True], ids=["dense", "state"])
def rig(request):
    rig = FakeRig(has_state=request.param)
    rig.capacity, rig.num_pages = CAP, 20
    return rig


def use_until_full(running, num_contexts=14):
    """More contexts than the disk holds; each is right."""
    for number in range(num_contexts):
        running.ask(tokens(f"fill{number}", 900))
        running.harness.settle()
    assert running.tier.usage().events["no_space"] > 0, "the disk is full"
    assert running.tier.usage().used_bytes < CAP / 4


def comes_back(running, name):
    """Use a new context, push it off the device, and tell how many of its tokens are there again."""
    prompt = tokens(name, 700)
    running.ask(prompt)
    running.harness.settle()
    running.ask(tokens(f"push {name}", 1000))
    running.harness.settle()
    return running.ask([*prompt, *tokens("more", 5)]).cached


def live_on_a_full_disk(rig, root, files, give_room=None):
    """Fill a disk, go on, get room, go on; a restart finds what there is."""
    running = Running(rig, root, files=files)
    use_until_full(running)
    assert comes_back(running, "first") >= 640, "what is new takes the place of what is old"
    assert comes_back(running, "second") >= 640
    full_bytes = running.tier.usage().used_bytes
    running.stop()
    clock = Leap()
    running = Running(rig, root, files=files, clock=clock)
    assert comes_back(running, "third") >= 640
    if give_room:
        give_room()
        clock.ahead_s = FULL_S
        for number in range(14):
            running.ask(tokens(f"later{number}", 900))
            running.harness.settle()
        assert running.tier.usage().used_bytes > 1.3 * full_bytes, "room is used again"
        assert comes_back(running, "fourth") >= 640
    running.stop()


def test_a_small_file_system(rig, tmp_path):
    with mounted(tmp_path / "small", ROOM) as resize:
        live_on_a_full_disk(rig, tmp_path / "small" / "disk", Files(), lambda: resize(4 * ROOM))


def test_a_quota(rig, tmp_path):
    files = SmallFiles(ROOM)

    def give_room():
        files.quota_bytes = 4 * ROOM

    live_on_a_full_disk(rig, tmp_path / "disk", files, give_room)


def test_a_limit_on_the_length_of_files(rig, tmp_path):
    with short_files(ROOM - (100 << 10)):
        live_on_a_full_disk(rig, tmp_path / "disk", Files())


def test_somebody_else_fills_the_disk_and_goes(rig, tmp_path):
    with mounted(tmp_path / "small", 2 << 20):
        running = Running(rig, tmp_path / "small" / "disk", files=Files())
        assert comes_back(running, "before") >= 640
        with (tmp_path / "small" / "film").open("wb", buffering=0) as film, pytest.raises(OSError):
            while True:
                film.write(bytes(4096))
        for number in range(6):
            assert comes_back(running, f"during{number}") >= 640
        assert running.tier.check() == []
        (tmp_path / "small" / "film").unlink()
        for number in range(8):
            running.ask(tokens(f"later{number}", 900))
            running.harness.settle()
        assert comes_back(running, "after") >= 640
        running.stop()
