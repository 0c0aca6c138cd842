"""Which journal entries hold after a restart. Knows nothing about files."""

from collections.abc import Sequence

import numpy as np

from ninfer_storage_disk.entry import Entry


def choose_live(
    entries: Sequence[Entry], num_blocks: int, block_bytes: int
) -> tuple[list[Entry], list[Entry]]:
    """Split entries into those that hold and those that are outdated or impossible.

    A crash can leave an entry whose blocks were given to a later image, or two entries of one key: the later
    one holds. An entry that needs blocks beyond the data file lost its payload.

    Args:
        entries: by sequence.
        num_blocks: length of the data file.
        block_bytes: length of a block.

    Returns:
        (live, dead), both by sequence.
    """
    is_taken = np.zeros(num_blocks, np.bool_)
    keys = set()
    live: list[Entry] = []
    dead: list[Entry] = []
    for entry in reversed(entries):
        needed = -(-entry.num_bytes // block_bytes)
        is_whole = sum(run.count for run in entry.runs) == needed
        is_inside = all(run.count and run.end <= num_blocks for run in entry.runs)
        is_free = is_inside and not any(is_taken[run.start : run.end].any() for run in entry.runs)
        if entry.key in keys or not is_whole or not is_free:
            dead.append(entry)
            continue
        keys.add(entry.key)
        for run in entry.runs:
            is_taken[run.start : run.end] = True
        live.append(entry)
    return live[::-1], dead[::-1]
