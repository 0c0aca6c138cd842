"""Time to the first token of a long context of `tiny-hybrid` that is in host memory, on disk, or nowhere.

The device holds one such context. Two are computed, one after the other, so the first is in host memory then, and each time
one is asked again the other goes there. The engine is closed and built anew: the disk tier has both, their files dropped
from the page cache.
"""

import shutil

from benchmarks.hybrid import VOCABULARY, hybrid_engine
from benchmarks.served import Bench, Call, Served, random_ids
from benchmarks.table import Row, median
from benchmarks.ttft import check_came_from, page_cache_state

PAGE = 64
TAIL = 16
HOST_ROUNDS = 3
BOUNDS = {"host": 0.01, "disk": 0.03}


def measure(bench: Bench) -> list[Row]:
    num_tokens = bench.pick(100_032, 2048)
    contexts = [random_ids(num_tokens, 5000 + at, below=VOCABULARY) for at in range(2)]
    folder = bench.folder / "hybrid_ttft"
    shutil.rmtree(folder, ignore_errors=True)
    calls: dict[str, list[Call]] = {name: [] for name in ("cold", *BOUNDS)}
    engine = _engine(bench, num_tokens)
    for context in contexts:
        calls["cold"].append(engine.ask(context, 1))
        engine.settle()
    for number, context in enumerate(contexts * HOST_ROUNDS):
        calls["host"].append(engine.ask(_asked_again(context, number), 1))
        engine.settle()
    engine.close()
    engine = _engine(bench, num_tokens)
    state = page_cache_state(folder, is_dropped=True)
    for number, context in enumerate(contexts):
        calls["disk"].append(engine.ask(_asked_again(context, 10 + number), 1))
        engine.settle()
    engine.close()
    shutil.rmtree(folder, ignore_errors=True)
    return _rows(calls, num_tokens, state)


def _asked_again(context: list[int], number: int) -> list[int]:
    return [*context, *random_ids(TAIL, 6000 + number, below=VOCABULARY)]


def _engine(bench: Bench, num_tokens: int) -> Served:
    engine = hybrid_engine(
        bench,
        f'[{{name = "host", kind = "host", capacity = {1 << 30}}}, '
        f'{{name = "disk", kind = "disk", capacity = {2 << 30}, path = "{bench.folder / "hybrid_ttft"}"}}]',
        engine__kv_capacity=num_tokens + 4 * PAGE,
        engine__max_concurrency=1,
    )
    engine.ask(random_ids(100, 1, below=VOCABULARY), 2, is_cached=False)
    return engine


def _rows(calls: dict[str, list[Call]], num_tokens: int, state: str) -> list[Row]:
    seconds = {name: [call.first_token_s for call in found] for name, found in calls.items()}
    cold_s = median(seconds["cold"])
    rows = [
        Row(
            figure=f"hybrid: time to first token, {num_tokens:,} tokens, cold",
            measured=1e3 * cold_s,
            unit="ms",
            note=f"{num_tokens / cold_s:,.0f} tok/s",
            raw={"seconds": seconds["cold"]},
        )
    ]
    for name, bound in BOUNDS.items():
        for call in calls[name]:
            check_came_from(call, name, num_tokens)
        rows.append(
            Row(
                figure=f"hybrid: time to first token, {num_tokens:,} tokens, {name}",
                measured=1e3 * median(seconds[name]),
                unit="ms",
                reference=1e3 * cold_s,
                against="the same context cold",
                bound=bound,
                sense="at most",
                ratio_unit="%",
                note="files dropped from the page cache" * (name == "disk"),
                raw={
                    "seconds": seconds[name],
                    "restored_bytes": [dict(call.stats.restored_bytes) for call in calls[name]],
                    "page_cache": state if name == "disk" else "",
                    "queue_s": [call.stats.queue_s for call in calls[name]],
                    "prefill_s": [call.stats.prefill_s for call in calls[name]],
                },
            )
        )
    return rows
