"""The life of a disk directory, written down change by change, and what must hold wherever it ends."""

from dataclasses import dataclass, field

from ninfer_storage_disk.config import DiskConfig
from ninfer_storage_disk.tier import DiskTier

from ninfer.api import PutItem, PutStatus, TierContext
from plugins.storage_disk.tests.faulty_files import (
    StoppedClock,
    key,
    payload_of,
    stored,
)
from plugins.storage_disk.tests.recorded_files import RecordedFiles, UnflushedFiles

LARGE, SMALL = 1 << 20, 640 << 10
FOREIGN = {"note.txt": b"mine", "photos/cat.jpg": b"\xff\xd8cat" * 500}
FIRST, SECOND = b"1" * 32, b"2" * 32
OWN_NAMES = {"data", "journal", "lock", "about.json"}
HEADER_PAD = bytes(500)
"""As long as a real header, so that the journal is rewritten as often."""


@dataclass
class Promise:
    """What was promised when a crash came."""

    capacity: int = LARGE
    longest: int = LARGE
    fingerprint: bytes = FIRST
    is_open: bool = False
    held: dict = field(default_factory=dict)
    maybe: dict = field(default_factory=dict)
    ever: dict = field(default_factory=dict)

    def hear(self, mark):
        """Follow one mark."""
        what, value = mark
        if what == "opening":
            self.longest = max(self.capacity, value["capacity"])
            if value["fingerprint"] != self.fingerprint:
                self.held, self.maybe, self.ever = {}, {}, {}
            self.capacity, self.fingerprint = value["capacity"], value["fingerprint"]
            self.held = {n: v for n, v in self.held.items() if n in value["kept"]}
        elif what == "opened":
            self.longest, self.is_open = self.capacity, True
        elif what == "putting":
            for n, version in value.items():
                self.maybe.setdefault(n, {self.held.get(n)}).add(version)
                self.ever.setdefault(n, set()).add(version)
        elif what == "put":
            for n, version in value.items():
                self.maybe.pop(n, None)
                if version is not None:
                    self.held[n] = version
        elif what == "deleting":
            for n in value:
                self.maybe.setdefault(n, {self.held.get(n)}).add(None)
        elif what == "deleted":
            for n in value:
                self.maybe.pop(n, None)
                self.held.pop(n, None)

    def problems(self, found, *, is_power_lost):
        """Compare with what a tier holds: {key: (header, payload)}."""
        found = dict(found)
        wrong = []
        for n in {*self.ever, *self.held}:
            allowed = self.maybe.get(n, {self.held.get(n)})
            if is_power_lost and None in allowed:
                allowed = {None, *self.ever.get(n, ())}
            got = found.pop(key(n), None)
            if got not in [None if v is None else image_of(n, v) for v in allowed]:
                wrong.append(f"image {n} is none of {allowed}: {got and got[0][:6]}")
        return [*wrong, *(f"{name} was never put" for name in found)]


def image_of(n, version):
    number, length = version
    return b"%d" % number + HEADER_PAD, payload_of(n, number, length)


def open_life(root, files=None, *, capacity=LARGE, fingerprint=FIRST, sync="batch"):
    context = TierContext(
        tier_name="d",
        fingerprint=fingerprint,
        clock=StoppedClock(),
        host_allocator=None,
        model_name=f"model {fingerprint[:1]}",
        page_image_bytes=9000,
    )
    config = DiskConfig(path=root, capacity=capacity, sync=sync)
    return DiskTier(context, config, files or UnflushedFiles())


class Life:
    """Opens tiers on recorded files and says in marks what it was promised."""

    def __init__(self, root, sync):
        self.root, self.sync = root, sync
        lay_foreign(root)
        self.files = RecordedFiles(root)
        self.tier, self.now = None, {}
        self.number = 0

    def open(self, kept=None, **how):
        how = {"capacity": LARGE, "fingerprint": FIRST, **how}
        kept = set(self.now if kept is None else kept)
        self.files.mark(("opening", {**how, "kept": kept}))
        self.tier = open_life(self.root, self.files, sync=self.sync, **how)
        self.files.mark(("opened", None))
        self.now = {n: v for n, v in self.now.items() if n in kept}

    def close(self):
        self.tier.close()

    def put(self, names, length):
        self.number += 1
        versions = dict.fromkeys(names, (self.number, length))
        self.files.mark(("putting", versions))
        images = {n: image_of(n, version) for n, version in versions.items()}
        items = [
            PutItem(key=key(n), header=header, payload=memoryview(payload))
            for n, (header, payload) in images.items()
        ]
        results = [result.status for result in self.tier.put(items)]
        ended = {
            n: version if status is PutStatus.STORED else None
            for (n, version), status in zip(versions.items(), results, strict=True)
        }
        self.files.mark(("put", ended))
        self.now |= {n: version for n, version in ended.items() if version}
        return all(ended.values())

    def delete(self, names):
        self.files.mark(("deleting", names))
        self.tier.delete([key(n) for n in names])
        self.files.mark(("deleted", names))
        for n in names:
            self.now.pop(n, None)


def live(root, sync):
    """Spill, replace, fill, reuse blocks, compact, restart, shrink, make way for another model. Returns the changes."""
    life = Life(root, sync)
    life.open()
    life.put(range(8), 20_000)
    life.put([1, 2], 30_000)
    life.delete([0, 3, 5])
    life.put(range(10, 14), 15_000)
    name = 100
    while life.put(range(name, name + 4), 9000):
        name += 4
    for turn in range(36):
        oldest = sorted(life.now)[:4]
        life.delete(oldest)
        life.put(range(name, name + 4), (9000, 5000, 100)[turn % 3])
        name += 4
    life.close()
    life.open()
    while life.put(range(name, name + 4), 9000):
        name += 4
    life.delete(sorted(life.now)[::2])
    life.close()
    kept = _kept_below(life, SMALL)
    life.open(kept, capacity=SMALL)
    life.delete(sorted(life.now)[:3])
    life.put(range(name + 1, name + 4), 12_000)
    life.close()
    life.open((), fingerprint=SECOND, capacity=SMALL)
    life.put(range(5), 30_000)
    life.close()
    return life.files.changes


def _kept_below(life, capacity):
    """Return which images a smaller cap keeps, by trying it on a copy."""
    import shutil

    copy = life.root.with_name(life.root.name + "-copy")
    shutil.copytree(life.root, copy)
    tier = open_life(copy, capacity=capacity)
    names = {key(n): n for n in life.now}
    kept = {names[record.key] for record in tier.records()}
    tier.close()
    shutil.rmtree(copy)
    return kept


def lay_foreign(root):
    for name, content in FOREIGN.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)


def require_all(root, promise, *, is_power_lost=False, sync="batch"):
    """Open what a crash left and check all of it; raises AssertionError."""
    before = folder_bytes(root)
    assert before <= promise.longest, f"{before} bytes, the cap is {promise.longest}"
    tier = open_life(root, capacity=promise.capacity, fingerprint=promise.fingerprint, sync=sync)
    assert promise.problems(stored(tier), is_power_lost=is_power_lost) == []
    assert tier.check() == []
    payload = payload_of(999, 1, 5000)
    item = PutItem(key=key(999), header=b"", payload=memoryview(payload))
    while tier.put([item])[0].status is PutStatus.FULL:
        tier.delete([next(tier.records()).key])
    assert tier.check() == []
    tier.close()
    assert folder_bytes(root) <= promise.capacity
    assert orphans(root, promise.fingerprint) == set()
    for name, content in FOREIGN.items():
        assert (root / name).read_bytes() == content


def folder_bytes(root):
    return sum(path.stat().st_size for path in root.rglob("*") if path.is_file())


def orphans(root, fingerprint):
    """Return the files and folders that nobody knows: neither foreign, nor of a store that can be opened."""
    found = set()
    for path in root.rglob("*"):
        name = path.relative_to(root).as_posix()
        folder = path.parent if path.is_file() else path
        is_store = folder.name == fingerprint.hex()[:32] or (folder / "journal").is_file()
        if name in FOREIGN or any(foreign.startswith(name + "/") for foreign in FOREIGN):
            continue
        if path.is_file() and name != "lock" and not (is_store and path.name in OWN_NAMES):
            found.add(name)
        if path.is_dir() and not is_store:
            found.add(name)
    return found
