"""Restore and spill of a 100k-token context through the disk tier, against plain file I/O of the same bytes.

End to end over queue, worker threads, tier and copier. The plain file is read by one thread, in one go, straight into
the memory that the restore fills, and written from the memory that the spill reads. Both reads are taken in turn, with
both files dropped from the page cache or both in it. Writes are taken for a new file and for one whose blocks exist;
both ends are flushed.
"""

import gc
import shutil
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch

from benchmarks.served import THREADS, Bench
from benchmarks.table import Row, median
from benchmarks.transfer_rig import (
    SMOLLM2,
    TINY_HYBRID,
    TransferRig,
    read_plainly,
    write_plainly,
)
from benchmarks.ttft import page_cache_state

TOKENS = 100_000
BOUND = 0.8
STATES = ("dropped", "filled")
WARM_UP = 1
"""Rounds that are not counted; see `transfers`."""
PLACES = ("new file", "file written over")


def measure(bench: Bench) -> list[Row]:
    torch.set_num_threads(THREADS)
    rows = []
    shapes = {"tiny-hybrid": (TINY_HYBRID, 9), "smollm2": (SMOLLM2, 3)}
    for name, (layouts, rounds) in shapes.items():
        num_tokens = bench.pick(TOKENS, 2048)
        rows += _measure(bench.folder / "bandwidth", name, layouts, num_tokens, rounds)
        gc.collect()
    return rows


def _measure(folder: Path, name: str, layouts, num_tokens: int, rounds: int) -> list[Row]:
    num_pages = -(-num_tokens // 64)
    rig = TransferRig(layouts, num_pages)
    memory = [memoryview(part) for part in rig.memory]
    before = [part.copy() for part in rig.memory]
    pages = range(num_pages)
    plain = folder / "plain"
    seconds: dict[str, list[float]] = defaultdict(list)
    for turn in range(rounds):
        if turn:
            rig.close()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        rig.open(folder, ["disk"])
        for place in PLACES:
            rig.forget(1)
            seconds[f"spill {place}"].append(rig.spill(rig.moves(0, 1, pages)))
            seconds[f"write {place}"].append(write_plainly(plain, memory))
    cached = {}
    for state in STATES:
        for turn in range(WARM_UP + rounds):
            cached[state] = page_cache_state(folder, is_dropped=state == "dropped")
            read_s = read_plainly(plain, memory)
            for part in rig.memory:
                part.fill(0)
            restore_s = rig.restore(rig.moves(1, 0, pages))
            if turn >= WARM_UP:
                seconds[f"read {state}"].append(read_s)
                seconds[f"restore {state}"].append(restore_s)
            if not all(map(np.array_equal, rig.memory, before)):
                raise RuntimeError("restored bytes differ from those spilled")
    rig.close()
    shutil.rmtree(folder, ignore_errors=True)
    num_bytes = num_pages * rig.page_bytes
    about = f"{name}, {num_tokens:,} tokens, {num_bytes / 1e6:,.0f} MB"
    rows = [
        _row(f"restore, page cache {state}, {about}", "read", state, seconds, num_bytes)
        for state in STATES
    ]
    for row, state in zip(rows, STATES, strict=True):
        row.raw["page_cache"] = cached[state]
    rows += [
        _row(f"spill, {place}, {about}", "write", place, seconds, num_bytes) for place in PLACES
    ]
    return rows


def _row(figure: str, plainly: str, how: str, seconds, num_bytes: int) -> Row:
    done = "restore" if plainly == "read" else "spill"
    ours, plain = seconds[f"{done} {how}"], seconds[f"{plainly} {how}"]
    flushed = "" if plainly == "read" else " and fsync"
    return Row(
        figure=figure,
        measured=num_bytes / median(ours) / 1e9,
        unit="GB/s",
        reference=num_bytes / median(plain) / 1e9,
        against=f"one thread, plain sequential {plainly}{flushed} of the same bytes, {how}",
        bound=BOUND,
        ratio_unit="%",
        note=f"queue to last page; medians of {len(ours)}, taken in turn",
        raw={f"{done}_s": ours, f"{plainly}_s": plain, "num_bytes": num_bytes},
    )
