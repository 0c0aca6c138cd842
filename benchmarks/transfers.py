"""Bandwidth of bringing pages back to the device, end to end over queue, worker thread, tier and copier.

The ceilings are measured in turn with them: one thread that copies the same bytes in memory, and one that reads a
file of the same bytes, with the page cache dropped for both or filled for both.
"""

import os
import time
from collections.abc import Callable

import numpy as np
import torch

from benchmarks.served import THREADS, Bench
from benchmarks.table import Row, median
from benchmarks.transfer_rig import SMOLLM2, TransferRig, read_plainly
from benchmarks.ttft import page_cache_state

BOUND = 0.6
WARM_UP = 2
"""Rounds that are not counted: the page cache may get memory that the host of a virtual machine took back, twice as slow."""


def measure(bench: Bench) -> list[Row]:
    torch.set_num_threads(THREADS)
    num_pages, rounds = bench.pick(64, 8), bench.pick(9, 3)
    folder = bench.folder / "transfers"
    rig = TransferRig(SMOLLM2, 2 * num_pages)
    rig.open(folder, ["host", "disk"])
    num_bytes = num_pages * rig.page_bytes
    near, far = range(num_pages), range(num_pages, 2 * num_pages)
    spill_s = [rig.restore(rig.moves(0, tier, near)) for tier in (1, 2)]
    source = np.random.default_rng(0).integers(0, 255, num_bytes, np.uint8)
    target = np.zeros(num_bytes, np.uint8)
    plain = folder / "plain"
    with plain.open("wb") as file:
        file.write(source.data)
        os.fsync(file.fileno())

    def copy() -> float:
        return _seconds(lambda: np.copyto(target, source))

    def read() -> float:
        return read_plainly(plain, [memoryview(target)])

    host: dict[str, list[float]] = {"restore": [], "copy": []}
    for turn in range(rounds + 1):
        restore_s, copy_s = rig.restore(rig.moves(1, 0, far)), copy()
        if turn:
            host["restore"].append(restore_s)
            host["copy"].append(copy_s)
    assert np.array_equal(*_halves(rig, num_pages)), "restored bytes differ"
    disk: dict[str, list[float]] = {}
    states = {}
    for state in ("dropped", "filled"):
        disk[f"restore {state}"], disk[f"read {state}"] = [], []
        for turn in range(WARM_UP + rounds):
            states[state] = page_cache_state(folder, is_dropped=state == "dropped")
            restore_s, read_s = rig.restore(rig.moves(2, 0, far)), read()
            if turn >= WARM_UP:
                disk[f"restore {state}"].append(restore_s)
                disk[f"read {state}"].append(read_s)
    assert np.array_equal(*_halves(rig, num_pages)), "restored bytes differ"
    rig.close()
    rows = [
        _row("host restore", host["restore"], host["copy"], num_bytes, "one thread copying memory")
    ]
    for state in ("dropped", "filled"):
        against = f"one thread reading a file, page cache {state}"
        figure = f"disk restore, page cache {state}"
        row = _row(figure, disk[f"restore {state}"], disk[f"read {state}"], num_bytes, against)
        row.raw["page_cache"] = states[state]
        rows.append(row)
    for row in rows:
        row.raw["first_spill_s"] = spill_s
    return rows


def _halves(rig: TransferRig, num_pages: int):
    view = rig.pools["main"].kv.view(torch.int16).numpy()
    slots = 64 * num_pages
    return view[:, :, :slots], view[:, :, slots:]


def _seconds(run: Callable[[], object]) -> float:
    start_s = time.perf_counter()
    run()
    return time.perf_counter() - start_s


def _row(
    figure: str, restore_s: list[float], plain_s: list[float], num_bytes: int, against: str
) -> Row:
    return Row(
        figure=f"{figure}, {num_bytes / 1e6:.0f} MB",
        measured=num_bytes / median(restore_s) / 1e9,
        unit="GB/s",
        reference=num_bytes / median(plain_s) / 1e9,
        against=against,
        bound=BOUND,
        ratio_unit="%",
        note="queue to last page on the device; payload bytes counted once",
        raw={"restore_s": restore_s, "plain_s": plain_s, "num_bytes": num_bytes},
    )
