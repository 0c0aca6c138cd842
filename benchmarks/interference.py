"""Time between tokens of a running request while contexts of others are spilled and restored, against quiet.

One request decodes from begin to end. In turns of equal length it is alone, or two long conversations that do not fit
on the device together are asked for alternately, each time with a few new tokens: one is restored from host memory,
what is new of the other is copied down. What is to be judged is the copying, not the others' arithmetic, so intervals
in which another request was in a step (from its start to its end) are left out of the row and shown beside it.
"""

import threading
import time
from itertools import pairwise

from benchmarks.served import Bench, Call, Served, random_ids, settings_of, tiers_toml
from benchmarks.table import Row, median, quantile
from ninfer.core.request import TokensEvent

PROMPT = 128
BOUND = 1.5
SAME_STEP_S = 0.001
"""Events of one step come this close together."""


class Others:
    """Two conversations asked in turn, one after the other, while switched on."""

    def __init__(self, engine: Served, num_tokens: int) -> None:
        self._engine = engine
        self._contexts = [random_ids(num_tokens, 10 + number) for number in range(2)]
        self.calls: list[Call] = []
        self._is_on = threading.Event()
        self._is_over = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        for context in self._contexts:
            engine.ask(context, 0)
        engine.settle()
        self._thread.start()

    def switch(self, *, is_on: bool) -> None:
        if is_on:
            self._is_on.set()
        else:
            self._is_on.clear()

    def _run(self) -> None:
        number = 0
        while True:
            self._is_on.wait()
            if self._is_over:
                return
            tail = random_ids(8, 1000 + number)
            self.calls.append(self._engine.ask([*self._contexts[number % 2], *tail], 0))
            number += 1

    def end(self) -> None:
        self._is_over = True
        self._is_on.set()
        self._thread.join(60)


def measure(bench: Bench) -> list[Row]:
    turn_tokens, num_turns = bench.pick(60, 12), bench.pick(16, 2)
    context_tokens = bench.pick(1024, 256)
    num_tokens = turn_tokens * num_turns
    lane_tokens = PROMPT + num_tokens + 64
    tiers = tiers_toml(host_bytes=512 << 20, disk_bytes=1 << 30)
    capacity = lane_tokens + context_tokens + 4 * 64
    engine = Served(settings_of(bench, tiers, engine__kv_capacity=capacity))
    others = Others(engine, context_tokens)
    token_s: list[float] = []
    marks: list[tuple[float, bool]] = []

    def on_token(event: object) -> None:
        if not isinstance(event, TokensEvent):
            return
        token_s.append(time.perf_counter())
        if len(token_s) % turn_tokens == 1:
            is_on = len(token_s) // turn_tokens % 2 == 1
            others.switch(is_on=is_on)
            marks.append((token_s[-1], is_on))

    before = engine.metrics()
    engine.submit(random_ids(PROMPT, 1), num_tokens, on_event=on_token).wait()
    after = engine.metrics()
    others.end()
    engine.close()
    quiet, copying, computing = _sort(token_s, marks, others.calls)
    moved = {name: after[name] - before[name] for name in after if name.endswith(("host", "disk"))}
    restored = [sum(call.stats.restored_bytes.values()) for call in others.calls]
    return [_row(quiet, copying, computing, restored, moved)]


def _sort(token_s: list[float], marks: list[tuple[float, bool]], calls: list[Call]):
    """Return intervals: alone, while others only copy, while others compute.

    After a switch the first intervals are left out: the last request of the others may still be running.
    """
    spans = [(call.started_s, call.finished_s) for call in calls]
    last_end_s = 0.0
    quiet, copying, computing = [], [], []
    for begin_s, end_s in pairwise(token_s):
        since_s, is_on = next(mark for mark in reversed(marks) if mark[0] <= begin_s)
        is_computing = any(start < end_s and stop > begin_s + SAME_STEP_S for start, stop in spans)
        if is_on:
            if begin_s > since_s:
                (computing if is_computing else copying).append(end_s - begin_s)
            last_end_s = end_s
        elif not is_computing and begin_s - last_end_s > 0.2:
            quiet.append(end_s - begin_s)
    return quiet, copying, computing


def _row(quiet, copying, computing, restored, moved) -> Row:
    if not quiet or not copying:
        raise RuntimeError(f"{len(quiet)} quiet intervals, {len(copying)} with copies")
    busy = quantile(copying, 0.99)
    return Row(
        figure="time between tokens p99 while others spill and restore",
        measured=1e3 * busy,
        unit="ms",
        reference=1e3 * quantile(quiet, 0.99),
        against="the same request alone, in turns",
        bound=BOUND,
        sense="at most",
        note=f"{len(copying)} intervals with copies (p50 {1e3 * median(copying):.1f} ms), {len(quiet)} quiet "
        f"(p50 {1e3 * median(quiet):.1f} ms), {len(computing)} in which others compute left out "
        f"(p99 {1e3 * quantile(computing, 0.99) if computing else 0:.1f} ms); "
        f"{len(restored)} requests restored {sum(restored) / 1e6:.0f} MB",
        raw={
            "quiet_s": quiet,
            "copying_s": copying,
            "computing_s": computing,
            "restored_bytes": restored,
            "tier_metrics": moved,
        },
    )
