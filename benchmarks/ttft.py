"""Time to the first token of a long context that is on the device, in host memory, on disk, or nowhere.

A context of 64 pages is computed once; a hit is the same context and 16 more tokens. The device holds one such
context, so asking for another moves the first to the host tier. Then the engine is closed and built anew: contexts
come from the disk tier, with its files dropped from the system's page cache, and once more with them in it.
"""

import os
import shutil
import subprocess
from pathlib import Path

from benchmarks.served import Bench, Call, Served, random_ids, settings_of
from benchmarks.table import Row, median

PAGE = 64
TAIL = 16
BOUNDS = {"device": 0.05, "host": 0.08, "disk": 0.15, "disk, files in page cache": 0.15}


def measure(bench: Bench) -> list[Row]:
    num_tokens = bench.pick(4096, 512)
    contexts = [random_ids(num_tokens, 500 + number) for number in range(bench.pick(3, 1))]
    folder = bench.folder / "ttft"
    shutil.rmtree(folder, ignore_errors=True)
    calls: dict[str, list[Call]] = {name: [] for name in ("cold", *BOUNDS)}
    engine = _engine(bench, num_tokens)
    for number, context in enumerate(contexts):
        calls["cold"].append(engine.ask(context, 1))
        engine.settle()
        calls["device"].append(engine.ask([*context, *random_ids(TAIL, 600 + number)], 1))
        engine.settle()
    engine.ask(random_ids(num_tokens, 499), 1)
    engine.settle()
    for number, context in enumerate(contexts):
        calls["host"].append(engine.ask([*context, *random_ids(TAIL, 700 + number)], 1))
        engine.settle()
    engine.close()
    states = []
    for at, name in enumerate(("disk", "disk, files in page cache")):
        engine = _engine(bench, num_tokens)
        for number, context in enumerate(contexts):
            states.append(page_cache_state(folder, is_dropped=name == "disk"))
            seed = 800 + 50 * at + number
            calls[name].append(engine.ask([*context, *random_ids(TAIL, seed)], 1))
            engine.settle()
        engine.close()
    shutil.rmtree(folder, ignore_errors=True)
    return _rows(calls, num_tokens, states)


def _engine(bench: Bench, num_tokens: int) -> Served:
    engine = Served(
        settings_of(
            bench,
            f'[{{name = "host", kind = "host", capacity = {1 << 30}}}, '
            f'{{name = "disk", kind = "disk", capacity = {2 << 30}, path = "{bench.folder / "ttft"}"}}]',
            engine__kv_capacity=num_tokens + 2 * PAGE,
        )
    )
    engine.ask(random_ids(100, 1), 2, is_cached=False)  # the first step of a process is slow
    return engine


def page_cache_state(folder: Path, *, is_dropped: bool) -> str:
    """Drop files from the page cache if asked to; return how much of them is in it, as far as the system says."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    for path in files:
        with path.open("rb") as file:
            if is_dropped:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            else:
                while file.read(1 << 24):
                    pass
    tool = shutil.which("fincore")
    if tool is None:
        return "dropped with posix_fadvise, not verified" if is_dropped else "read before"
    command = [tool, "--bytes", "--noheadings", "--output", "RES", *map(str, files)]
    found = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return f"{sum(map(int, found.split())):,} of {sum(p.stat().st_size for p in files):,} B in page cache"


def _rows(calls: dict[str, list[Call]], num_tokens: int, states: list[str]) -> list[Row]:
    seconds = {name: [call.first_token_s for call in found] for name, found in calls.items()}
    cold_s = median(seconds["cold"])
    rows = [
        Row(
            figure=f"time to first token, {num_tokens:,} tokens, cold",
            measured=1e3 * cold_s,
            unit="ms",
            raw={"seconds": seconds["cold"]},
        )
    ]
    for name, bound in BOUNDS.items():
        tier = name.split(",")[0]
        for call in calls[name]:
            check_came_from(call, tier, num_tokens)
        rows.append(
            Row(
                figure=f"time to first token, {num_tokens:,} tokens, {name}",
                measured=1e3 * median(seconds[name]),
                unit="ms",
                reference=1e3 * cold_s,
                against="the same context cold",
                bound=bound,
                sense="at most",
                ratio_unit="%",
                note="through the engine; files dropped from the page cache" * (name == "disk")
                or "through the engine",
                raw={
                    "seconds": seconds[name],
                    "restored_bytes": [dict(call.stats.restored_bytes) for call in calls[name]],
                    "page_cache": states if tier == "disk" else [],
                    "queue_s": [call.stats.queue_s for call in calls[name]],
                    "prefill_s": [call.stats.prefill_s for call in calls[name]],
                },
            )
        )
    return rows


def check_came_from(call: Call, tier: str, num_tokens: int) -> None:
    """The context must have come from where the row says, all but a page that stayed on the device."""
    restored = call.stats.restored_bytes
    wanted = {tier} - {"device"}
    if (
        call.stats.num_cached_tokens < num_tokens - 1
        or {k for k, v in restored.items() if v} != wanted
    ):
        msg = f"wanted {num_tokens} tokens from {tier}, got {call.stats}"
        raise RuntimeError(msg)
