"""Time between tokens of a running request while others spill to and restore from disk, against quiet.

One request decodes from begin to end; there is no host tier, and the device holds it and one of two long
conversations. Its turns of equal length come again and again in this order:

    quiet    it is alone
    disk     the two conversations are asked alternately, each time with some new tokens: one is restored from disk,
             the other was copied there
    device   one conversation is asked again and again at the same pace: the same arithmetic, nothing from disk

Two comparisons. What copying costs: intervals of the disk turns in which only copies ran, against the quiet turns.
What everything costs: all intervals of the disk turns, against all of the device turns; that includes what the engine
thread books when pages arrive.
"""

import threading
import time
from dataclasses import dataclass, field
from itertools import pairwise

from benchmarks.interference import SAME_STEP_S
from benchmarks.served import Bench, Call, Served, random_ids, settings_of
from benchmarks.table import Row, median, quantile
from ninfer.core.request import TokensEvent

PROMPT = 128
NEW_TOKENS = 72
BOUND = 1.2
MODES = ("quiet", "disk", "device")


class Neighbours:
    """Two conversations asked one request after the other, on a thread of its own, in one of `MODES`."""

    def __init__(self, engine: Served, num_tokens: int, num_ids: int) -> None:
        self._engine = engine
        self._num_ids = num_ids
        self._contexts = [random_ids(num_tokens, 10 + n, below=num_ids) for n in range(2)]
        self.calls: dict[str, list[Call]] = {mode: [] for mode in MODES}
        self._cycle_s = 0.0
        self._mode = "quiet"
        self._changed = threading.Event()
        self._is_over = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        for context in self._contexts:
            engine.ask(context, 0)
            engine.settle()
        self._thread.start()

    def switch(self, mode: str) -> None:
        self._mode = mode
        self._changed.set()

    def _run(self) -> None:
        number = 0
        while not self._is_over:
            mode = self._mode
            if mode == "quiet":
                self._changed.wait()
                self._changed.clear()
                continue
            start_s = time.perf_counter()
            context = self._contexts[number % 2 if mode == "disk" else 0]
            tail = random_ids(NEW_TOKENS, 1000 + number, below=self._num_ids)
            number += 1
            self.calls[mode].append(self._engine.ask([*context, *tail], 0))
            took_s = time.perf_counter() - start_s
            if mode == "disk":
                self._cycle_s = took_s
            else:
                self._changed.wait(max(0.0, self._cycle_s - took_s))

    def end(self) -> None:
        self._is_over = True
        self._changed.set()
        self._thread.join(60)


@dataclass
class Turn:
    """One turn of the lane: when its tokens came."""

    mode: str
    token_s: list[float] = field(default_factory=list)


def measure(bench: Bench) -> list[Row]:
    rows = _measure(bench, "smollm2", bench.pick(4096, 256), num_ids=40_000)
    return rows + _measure(bench, "tiny-hybrid", bench.pick(8192, 256), num_ids=4_000)


def _measure(bench: Bench, model: str, context_tokens: int, num_ids: int) -> list[Row]:
    turn_tokens, num_turns = bench.pick(60, 24), bench.pick(30, 3)
    num_tokens = turn_tokens * num_turns
    disk = f'[{{name = "disk", kind = "disk", capacity = {2 << 30}, path = "{bench.folder / "tokens"}"}}]'
    capacity = PROMPT + num_tokens + context_tokens + 8 * 64
    settings = settings_of(
        bench, disk, model__name=model, engine__kv_capacity=capacity, spec__decoder="off"
    )
    engine = Served(settings)
    neighbours = Neighbours(engine, context_tokens, num_ids)
    turns: list[Turn] = []

    def on_token(event: object) -> None:
        if not isinstance(event, TokensEvent):
            return
        if not turns or len(turns[-1].token_s) >= turn_tokens:
            turns.append(Turn(MODES[len(turns) % len(MODES)]))
            neighbours.switch(turns[-1].mode)
        turns[-1].token_s += [time.perf_counter()] * len(event.token_ids)

    before = engine.metrics()
    engine.submit(random_ids(PROMPT, 1, below=num_ids), num_tokens, on_event=on_token).wait()
    neighbours.end()
    after = engine.metrics()
    engine.close()
    moved = {name: after[name] - before[name] for name in after if name.endswith(":disk")}
    return _rows(model, turns, neighbours.calls, moved)


def _rows(model: str, turns: list[Turn], calls: dict[str, list[Call]], moved) -> list[Row]:
    copying, whole = [], {mode: [] for mode in MODES}
    everything = [call for found in calls.values() for call in found]
    from_device = [call for call in calls["device"] if not _restored_bytes(call)]
    own_calls = {"quiet": [], "disk": calls["disk"], "device": from_device}
    for turn in turns:
        own = own_calls[turn.mode]
        for begin_s, end_s in pairwise(turn.token_s):
            around = [
                call
                for call in everything
                if call.submitted_s < end_s and call.finished_s > begin_s + SAME_STEP_S
            ]
            if any(call not in own for call in around):
                continue  # a request of the turn before is still at it, or its context is not back yet
            whole[turn.mode].append(end_s - begin_s)
            is_computing = any(call.started_s < end_s for call in around)
            if turn.mode == "disk" and around and not is_computing:
                copying.append(end_s - begin_s)
    restored = sum(map(_restored_bytes, calls["disk"]))
    written = next(v for k, v in moved.items() if "written_bytes" in k)
    if not restored or not from_device or not copying:
        raise RuntimeError(
            f"{restored} B restored, {len(from_device)} requests served from the device, "
            f"{len(copying)} intervals with copies: the turns are not what they should be"
        )
    note = (
        f"{len(calls['disk'])} requests restored {restored / 1e6:,.0f} MB, "
        f"{written / 1e6:,.1f} MB were spilled; {len(turns)} turns"
    )
    raw = {"intervals_s": whole, "copying_s": copying, "tier_metrics": moved}
    pairs = (
        ("copies only", copying, whole["quiet"], "the same request alone"),
        ("all", whole["disk"], whole["device"], "others served from the device"),
    )
    return [
        Row(
            figure=f"{model}: time between tokens p99 while others spill to and restore from disk, {what}",
            measured=1e3 * quantile(ours, 0.99),
            unit="ms",
            reference=1e3 * quantile(reference, 0.99),
            against=f"{against}, in turns",
            bound=BOUND,
            sense="at most",
            note=f"{len(ours)} intervals (p50 {1e3 * median(ours):.1f} ms) against {len(reference)} "
            f"(p50 {1e3 * median(reference):.1f} ms); {note}",
            raw=raw,
        )
        for what, ours, reference, against in pairs
    ]


def _restored_bytes(call: Call) -> int:
    return sum(call.stats.restored_bytes.values())
