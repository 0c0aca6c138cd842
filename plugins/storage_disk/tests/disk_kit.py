"""Opens disk tiers and stores small images in them."""

import hashlib

from ninfer_storage_disk.config import DiskConfig
from ninfer_storage_disk.tier import DiskTier

from ninfer.api import ImageKey, ImageKind, PutItem, ReadItem, TierContext

FINGERPRINT = bytes(range(32))


class StoppedClock:
    def monotonic_s(self):
        return 0.0

    def unix_s(self):
        return 0.0


class NoAllocator:
    def allocate_host(self, num_bytes):
        raise AssertionError("a disk tier needs no host memory")


def open_tier(root, capacity=4 << 20, fingerprint=FINGERPRINT, page=0, **options):
    context = TierContext(
        tier_name="nvme",
        fingerprint=fingerprint,
        clock=StoppedClock(),
        host_allocator=NoAllocator(),
        page_image_bytes=page,
        cache_dir=root,
    )
    return DiskTier.open(context, DiskConfig(path=root / "disk", capacity=capacity, **options))


def key(name, kind=ImageKind.PAGE):
    return ImageKey(digest=hashlib.sha256(str(name).encode()).digest(), kind=kind)


def item(name, payload, header=b"h"):
    return PutItem(key=key(name), header=header, payload=memoryview(payload))


def put(tier, name, payload, header=b"h"):
    return tier.put([item(name, payload, header)])[0].status


def read(tier, name, num_bytes):
    buffer = bytearray(num_bytes)
    result = tier.read_into([ReadItem(key=key(name), buffer=memoryview(buffer))])[0]
    return result.status, result.header, bytes(buffer)


def pattern(name, num_bytes):
    return (hashlib.sha256(str(name).encode()).digest() * (num_bytes // 32 + 1))[:num_bytes]


def folder_bytes(root):
    return sum(path.stat().st_size for path in (root / "disk").rglob("*") if path.is_file())
