"""A storage tier in a dict, with faults on demand. The plainest implementation of the contract."""

import threading

from ninfer.api import (
    ImageRecord,
    PutResult,
    PutStatus,
    ReadResult,
    ReadStatus,
    StorageTier,
    TierCapabilities,
    TierUsage,
)


class DictTier(StorageTier):
    def __init__(self, capacity_bytes, *, images=None):
        self.capacity_bytes = capacity_bytes
        self.images = {} if images is None else images
        self.lock = threading.Lock()
        self.gate = threading.Event()
        self.gate.set()
        self.raises = False
        self.refuses = False
        self.is_closed = False

    @property
    def capabilities(self):
        return TierCapabilities(durable=True, enumerable=True)

    def _enter(self):
        self.gate.wait()
        if self.raises:
            raise OSError("disk on fire")

    def put(self, items):
        self._enter()
        results = []
        with self.lock:
            for item in items:
                full = self._used() + len(item.header) + item.payload.nbytes > self.capacity_bytes
                if self.refuses or (full and item.key not in self.images):
                    results.append(PutResult(status=PutStatus.FULL))
                else:
                    self.images[item.key] = (item.header, bytes(item.payload))
                    results.append(PutResult(status=PutStatus.STORED))
        return results

    def read_into(self, items):
        self._enter()
        results = []
        for item in items:
            with self.lock:
                found = self.images.get(item.key)
            if found is None:
                results.append(ReadResult(status=ReadStatus.MISSING))
            elif found[1] is None:
                results.append(ReadResult(status=ReadStatus.CORRUPT))
            else:
                item.buffer[:] = found[1]
                results.append(ReadResult(status=ReadStatus.READ, header=found[0]))
        return results

    def contains(self, keys):
        return [key in self.images for key in keys]

    def delete(self, keys):
        self._enter()
        with self.lock:
            return [self.images.pop(key, None) is not None for key in keys]

    def _used(self):
        return sum(len(header) + len(payload or b"") for header, payload in self.images.values())

    def usage(self):
        return TierUsage(
            capacity_bytes=self.capacity_bytes, used_bytes=self._used(), num_images=len(self.images)
        )

    def stored_bytes(self, header_bytes, payload_bytes):
        return header_bytes + payload_bytes

    def check(self):
        return []

    def records(self):
        for key, (header, payload) in list(self.images.items()):
            yield ImageRecord(key=key, header=header, num_bytes=len(payload or b""))

    def close(self):
        self.is_closed = True
