"""The life of an engine over a disk tier, written down change by change, and what must hold wherever it ends."""

import random
import shutil

from ninfer_storage_disk.tier import DiskTier

from ninfer.api import PutStatus
from plugins.storage_disk.tests.crash_life import FOREIGN, folder_bytes, lay_foreign, orphans
from plugins.storage_disk.tests.recorded_files import RecordedFiles, crashed_at
from tests.integration.disk.rigs import FINGERPRINT, Running, resumable_tokens, tokens


class MarkedTier(DiskTier):
    """Says in the record of changes which images it stored and which it was told to delete."""

    def __init__(self, context, config, files):
        super().__init__(context, config, files)
        self.files = files

    def put(self, items):
        results = super().put(items)
        done = {
            item.key.digest
            for item, result in zip(items, results, strict=True)
            if result.status is PutStatus.STORED
        }
        self.files.mark(("put", done))
        return results

    def delete(self, keys):
        self.files.mark(("deleting", {key.digest for key in keys}))
        return super().delete(keys)


def live(rig, root, sync="batch"):
    """Conversations that grow, contexts seen once, a restart, conversations again. Returns the changes."""
    lay_foreign(root)
    files = RecordedFiles(root)
    rng = random.Random(3)
    contexts = [tokens(f"c{n}", rig.context_tokens, rig.vocab) for n in range(3)]
    for part in range(2):
        running = Running(rig, root, files=files, tier_class=MarkedTier, sync=sync)
        for turn in range(rig.num_turns):
            number = rng.randrange(len(contexts))
            if turn % 3 == 2:
                prompt = tokens(f"once{part}/{turn}", rig.once_tokens, rig.vocab)
            else:
                prompt = contexts[number] + tokens(f"{part}/{turn}", 7, rig.vocab)
            answer = running.ask(prompt)
            if turn % 3 != 2 and len(prompt) < 1.2 * rig.context_tokens:
                contexts[number] = [*prompt, *answer.tokens]
            files.mark(("context", (number, contexts[number])))
            running.harness.settle()
        running.stop()
    return files.changes


class Promise:
    """Which images were stored, and which contexts there are."""

    def __init__(self):
        self.keys, self.contexts = set(), {}

    def hear(self, mark):
        """Follow one mark."""
        what, value = mark
        if what == "put":
            self.keys |= value
        elif what == "deleting":
            self.keys -= value
        else:
            self.contexts[value[0]] = value[1]


def try_crash(rig, root, changes, number, promise, *, share=None, seed=None):
    """Lay out what a crash leaves, start an engine there and ask; returns (tokens expected from disk, tokens had)."""
    root.mkdir()
    try:
        crashed_at(changes, number, share=share, seed=seed).lay_out(root)
        lay_foreign(root)
        return _require_all(rig, root, promise)
    except AssertionError as problem:
        where = changes[number] if number < len(changes) else "the end"
        raise AssertionError(f"crash at {number} {str(where)[:120]} {share=} {seed=}") from problem
    finally:
        shutil.rmtree(root)


def _require_all(rig, root, promise):
    assert folder_bytes(root) <= rig.capacity
    running = Running(rig, root)
    nodes = list(running.harness.store.tree.nodes())
    images = [*nodes, *(node.image for node in nodes if node.image is not None)]
    known = sum(image.replicas[1] is not None for image in images)
    assert running.tier.usage().num_images == known, "images that nobody knows"
    expected = had = 0
    for context in promise.contexts.values():
        prompt = [*context, *tokens("more", 5, rig.vocab)]
        due = resumable_tokens(rig, prompt, promise.keys)
        answer = running.ask(prompt)
        assert answer.cached >= due, f"{answer.cached} of {len(prompt)} tokens served, {due} stored"
        expected, had = expected + due, had + answer.cached
    assert folder_bytes(root) <= rig.capacity
    running.stop()
    assert folder_bytes(root) <= rig.capacity
    assert orphans(root, FINGERPRINT) == set()
    for name, content in FOREIGN.items():
        assert (root / name).read_bytes() == content
    return expected, had
