"""Time to the first token cold, from the device, from host memory and from disk, over lengths of context.

Cold is one request; the others are medians. A hit is the same context and some more tokens. To move everything off the
device, a request that may use all of it is let in and aborted at its first token. Contexts come from disk after a
restart, by an engine without a host tier, with the files dropped from the page cache and once more with them in it.
"""

import shutil
from collections import defaultdict
from pathlib import Path

from benchmarks.served import Bench, Call, Served, random_ids, settings_of
from benchmarks.table import Row, median
from benchmarks.ttft import PAGE, TAIL, check_came_from, page_cache_state

BOUNDS = ((4096, 0.15), (0, 0.5))
"""From how many tokens on a hit from disk may take which part of cold; short contexts have the fixed costs."""

WAYS = ("device", "host", "disk, page cache dropped", "disk, page cache filled")


def measure(bench: Bench) -> list[Row]:
    lengths = {
        "tiny-hybrid": bench.pick((1024, 4096, 16_384, 65_536), (256, 512)),
        "smollm2": bench.pick((1024, 4096), (256,)),
    }
    rows = []
    for model, sizes in lengths.items():
        rows += _Contexts(bench, model, sizes).measure()
    return rows


class _Contexts:
    """Contexts of one model, one of each length, and what asking for them took."""

    def __init__(self, bench: Bench, model: str, sizes: tuple[int, ...]) -> None:
        self._bench = bench
        self._model = model
        self._num_ids = 4_000 if model == "tiny-hybrid" else 40_000
        self._contexts = {n: random_ids(n, 500 + n, below=self._num_ids) for n in sizes}
        self._capacity = max(sizes) + 4 * PAGE
        self._folder: Path = bench.folder / "disk_ttft"
        self._calls: dict[tuple[int, str], list[Call]] = defaultdict(list)
        self._seed = 600

    def measure(self) -> list[Row]:
        rounds = self._bench.pick(3, 1)
        shutil.rmtree(self._folder, ignore_errors=True)
        engine = self._engine(has_host=True)
        for num_tokens, context in self._contexts.items():
            self._calls[num_tokens, "cold"].append(engine.ask(context, 1))
            engine.settle()
            for way in ("device", "host"):
                for _ in range(rounds):
                    if way == "host":
                        self._empty_device(engine)
                    self._hit(engine, num_tokens, way)
            self._empty_device(engine)
        engine.close()
        engine = self._engine(has_host=False)
        cached = {}
        for state in ("dropped", "filled"):
            for num_tokens in self._contexts:
                for _ in range(rounds):
                    self._empty_device(engine)
                    cached[state] = page_cache_state(self._folder, is_dropped=state == "dropped")
                    self._hit(engine, num_tokens, f"disk, page cache {state}")
        engine.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        return [row for n in self._contexts for row in self._rows(n, cached)]

    def _engine(self, *, has_host: bool) -> Served:
        host = f'{{name = "host", kind = "host", capacity = {1 << 30}}}, ' * has_host
        disk = f'{{name = "disk", kind = "disk", capacity = {2 << 30}, path = "{self._folder}"}}'
        engine = Served(
            settings_of(
                self._bench,
                f"[{host}{disk}]",
                model__name=self._model,
                engine__kv_capacity=self._capacity,
            )
        )
        engine.ask(
            random_ids(100, 1, below=self._num_ids), 2, is_cached=False
        )  # the first step of a process is slow
        return engine

    def _hit(self, engine: Served, num_tokens: int, way: str) -> None:
        self._seed += 1
        tail = random_ids(TAIL, self._seed, below=self._num_ids)
        call = engine.ask([*self._contexts[num_tokens], *tail], 1)
        check_came_from(call, way.split(",", maxsplit=1)[0], num_tokens)
        self._calls[num_tokens, way].append(call)
        engine.settle()

    def _empty_device(self, engine: Served) -> None:
        """Let a request in that may use every page, and abort it."""
        prompt = random_ids(PAGE, 1, below=self._num_ids)
        call = engine.submit(prompt, self._capacity - 2 * PAGE, is_cached=False)
        call.has_begun.wait(60)
        engine.abort(call)
        call.wait()
        engine.settle()

    def _rows(self, num_tokens: int, cached: dict[str, str]) -> list[Row]:
        about = f"{self._model}, {num_tokens:,} tokens"
        cold_s = self._calls[num_tokens, "cold"][0].first_token_s
        rows = [Row(figure=f"time to first token, {about}, cold", measured=1e3 * cold_s, unit="ms")]
        bound = next(bound for least, bound in BOUNDS if num_tokens >= least)
        for way in WAYS:
            seconds = [call.first_token_s for call in self._calls[num_tokens, way]]
            rows.append(
                Row(
                    figure=f"time to first token, {about}, {way}",
                    measured=1e3 * median(seconds),
                    unit="ms",
                    reference=1e3 * cold_s,
                    against="the same context cold",
                    bound=bound if way.startswith("disk") else None,
                    sense="at most",
                    ratio_unit="%",
                    note=f"through the engine, median of {len(seconds)}",
                    raw={"seconds": seconds, "page_cache": cached},
                )
            )
        return rows
