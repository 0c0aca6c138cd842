"""A dict shared by several tiers, as several servers share a storage; its log may be cut."""

from ninfer.api import ImageRecord, TierCapabilities, TierChanges
from tests.fakes.dict_tier import DictTier


class SharedDict:
    """What lies behind the tiers: images and a log of (writer, key, is stored)."""

    def __init__(self, capacity_bytes):
        self.capacity_bytes = capacity_bytes
        self.images = {}
        self.log = []
        self.num_cut = 0

    def cut_log(self):
        self.num_cut += len(self.log)
        self.log.clear()


class SharedDictTier(DictTier):
    def __init__(self, shared):
        super().__init__(shared.capacity_bytes, images=shared.images)
        self.shared = shared
        self.deleted = []

    @property
    def capabilities(self):
        return TierCapabilities(durable=True, enumerable=True, shared=True)

    def put(self, items):
        before = {item.key for item in items if item.key in self.images}
        results = super().put(items)
        for item in items:
            if item.key in self.images and item.key not in before:
                self.shared.log.append((self, item.key, True))
        return results

    def delete(self, keys):
        results = super().delete(keys)
        self.deleted += keys
        self.shared.log += [
            (self, key, False) for key, was_there in zip(keys, results, strict=True) if was_there
        ]
        return results

    def changes(self, cursor, limit):
        self._enter()
        end = self.shared.num_cut + len(self.shared.log)
        if not cursor:
            return TierChanges(cursor=b"%d" % end)
        start = int(cursor) - self.shared.num_cut
        if start < 0:
            return TierChanges(records=list(self.records()), cursor=b"%d" % end)
        last = {}
        for writer, key, is_stored in self.shared.log[start : start + limit]:
            last[key] = (writer, is_stored)
        others = {key: is_stored for key, (writer, is_stored) in last.items() if writer is not self}
        end = min(start + limit, len(self.shared.log)) + self.shared.num_cut
        return TierChanges(
            records=[
                ImageRecord(key=key, header=self.images[key][0], num_bytes=len(self.images[key][1]))
                for key, is_stored in others.items()
                if is_stored and key in self.images
            ],
            removed=[key for key, is_stored in others.items() if not is_stored],
            cursor=b"%d" % end,
        )
