"""A dict shared by several tiers, as several servers share a storage; its log may be cut."""

import threading

from ninfer.api import ImageRecord, TierCapabilities, TierChanges
from tests.fakes.dict_tier import DictTier


class SharedDict:
    """What lies behind the tiers: images and a log of (writer, key, is stored)."""

    def __init__(self, capacity_bytes):
        self.capacity_bytes = capacity_bytes
        self.images = {}
        self.lock = threading.RLock()
        self.log = []
        self.num_cut = 0

    def cut_log(self):
        with self.lock:
            self.num_cut += len(self.log)
            self.log.clear()


class SharedDictTier(DictTier):
    def __init__(self, shared):
        super().__init__(shared.capacity_bytes, images=shared.images)
        self.shared = shared
        self.lock = shared.lock
        self.deleted = []

    @property
    def capabilities(self):
        return TierCapabilities(durable=True, enumerable=True, shared=True)

    def put(self, items):
        self._enter()
        with self.lock:
            before = {item.key for item in items if item.key in self.images}
            results = super().put(items)
            for item in items:
                if item.key in self.images and item.key not in before:
                    self.shared.log.append((self, item.key, True))
        return results

    def delete(self, keys):
        self._enter()
        with self.lock:
            results = super().delete(keys)
            self.deleted += keys
            gone = [key for key, was_there in zip(keys, results, strict=True) if was_there]
            self.shared.log += [(self, key, False) for key in gone]
        return results

    def changes(self, cursor, limit):
        self._enter()
        with self.lock:
            end = self.shared.num_cut + len(self.shared.log)
            if not cursor:
                return TierChanges(cursor=b"%d" % end)
            start = int(cursor) - self.shared.num_cut
            if start < 0:
                return TierChanges(records=list(self.records()), cursor=b"%d" % end)
            told = self.shared.log[start : start + limit]
            last = {key: (writer, is_stored) for writer, key, is_stored in told}
            others = {k: is_stored for k, (writer, is_stored) in last.items() if writer is not self}
            return TierChanges(
                records=[
                    self._record(k)
                    for k, is_stored in others.items()
                    if is_stored and k in self.images
                ],
                removed=[k for k, is_stored in others.items() if not is_stored],
                cursor=b"%d" % (self.shared.num_cut + start + len(told)),
            )

    def _record(self, key):
        header, payload = self.images[key]
        return ImageRecord(key=key, header=header, num_bytes=len(payload))
