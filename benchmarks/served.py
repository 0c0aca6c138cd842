"""A whole engine in this process, asked like the server asks it, with the time of every event."""

import random
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ninfer.config.loading import LoadedSettings, load_settings
from ninfer.core.request import (
    CacheParams,
    FinishedEvent,
    GenerationRequest,
    RequestEvent,
    RequestStats,
    StartedEvent,
    TokensEvent,
)
from ninfer.engine.build import build_engine
from ninfer.obs.logging import configure_logging
from ninfer.plugins.catalog import PluginCatalog
from ninfer.plugins.record import Family

THREADS = 2
DEADLINE_S = 900.0


@dataclass(frozen=True, kw_only=True)
class Bench:
    """One run of `make bench`.

    Attributes:
        folder: for calibration, disk tiers and other files of this run.
        is_quick: few repeats and small sizes: to see that it works, the numbers mean little.
    """

    folder: Path
    is_quick: bool

    def pick(self, full: Any, quick: Any) -> Any:
        return quick if self.is_quick else full


def settings_of(bench: Bench, tiers: str = "[]", /, **sets: Any) -> LoadedSettings:
    """Settings of a benchmark: two threads, bf16, files in the folder of this run.

    Args:
        bench: the run.
        tiers: TOML of `cache.tiers`.
        sets: settings with `__` for the dot.
    """
    items = {
        "model__threads": THREADS,
        "model__dtype": "bfloat16",
        "cache__dir": bench.folder / "cache",
        "cache__policy": default_policy(),
        "log__level": "warning",
        **sets,
        "cache__tiers": tiers,
    }
    return load_settings(sets=[f"{key.replace('__', '.')}={value}" for key, value in items.items()])


def default_policy() -> str:
    has_costmodel = PluginCatalog.discover().has(Family.POLICY, "costmodel")
    return "costmodel" if has_costmodel else "lru"


def tiers_toml(*, host_bytes: int, disk_bytes: int) -> str:
    return (
        f'[{{name = "host", kind = "host", capacity = {host_bytes}}}, '
        f'{{name = "disk", kind = "disk", capacity = {disk_bytes}}}]'
    )


@dataclass(kw_only=True)
class Call:
    """One request and when what happened to it; times of `perf_counter`."""

    submitted_s: float
    started_s: float = 0.0
    finished_s: float = 0.0
    num_cached: int = 0
    token_s: list[float] = field(default_factory=list)
    end: FinishedEvent | None = None
    on_event: Callable[[RequestEvent], None] | None = None
    request_id: str = ""
    has_begun: threading.Event = field(default_factory=threading.Event)
    is_done: threading.Event = field(default_factory=threading.Event)

    def __call__(self, event: RequestEvent) -> None:
        now_s = time.perf_counter()
        if isinstance(event, StartedEvent):
            self.started_s, self.num_cached = now_s, event.num_cached_tokens
        elif isinstance(event, TokensEvent):
            self.token_s += [now_s] * len(event.token_ids)
            self.has_begun.set()
        else:
            self.finished_s, self.end = now_s, event
        if self.on_event is not None:
            self.on_event(event)
        if self.end is not None:
            self.is_done.set()

    def wait(self) -> "Call":
        if not self.is_done.wait(DEADLINE_S):
            raise TimeoutError("a request did not end")
        if self.end is None or self.end.reason not in {"length", "stop", "aborted"}:
            raise RuntimeError(f"a request failed: {self.end}")
        return self

    @property
    def stats(self) -> RequestStats:
        if self.end is None:
            raise RuntimeError("the request has not ended")
        return self.end.stats

    @property
    def first_token_s(self) -> float:
        """Seconds from submission to the first token."""
        return self.token_s[0] - self.submitted_s


class Served:
    """An engine built from settings.

    Args:
        loaded: all settings.
    """

    def __init__(self, loaded: LoadedSettings) -> None:
        log = loaded.settings.log
        configure_logging(level=log.level, form=log.format, stream=sys.stderr)
        self.built = build_engine(loaded, PluginCatalog.discover())
        self._numbers = iter(range(10**9))

    def submit(
        self,
        prompt: Sequence[int],
        max_tokens: int,
        *,
        is_cached: bool = True,
        stop_token_ids: frozenset[int] = frozenset(),
        on_event: Callable[[RequestEvent], None] | None = None,
    ) -> Call:
        request = GenerationRequest(
            request_id=f"bench-{next(self._numbers)}",
            prompt_token_ids=list(prompt),
            max_tokens=max_tokens,
            stop_token_ids=stop_token_ids,
            cache=CacheParams(is_enabled=is_cached),
        )
        call = Call(
            submitted_s=time.perf_counter(), on_event=on_event, request_id=request.request_id
        )
        self.built.engine.submit(request, call)
        return call

    def ask(self, prompt: Sequence[int], max_tokens: int, *, is_cached: bool = True) -> Call:
        return self.submit(prompt, max_tokens, is_cached=is_cached).wait()

    def abort(self, call: Call) -> None:
        self.built.engine.abort(call.request_id)

    def metrics(self) -> dict[str, float]:
        """Numbers of `/metrics`, by name, for tiers by `name:tier`."""
        found = {}
        for sample in self.built.engine.metrics_snapshot():
            tier = sample.labels.get("tier") if sample.labels else None
            found[f"{sample.name}:{tier}" if tier else sample.name] = float(sample.value)
        return found

    def settle(self, quiet_s: float = 0.5) -> None:
        """Wait until no tier has been written to for a while."""
        until_s = time.perf_counter() + DEADLINE_S
        seen, since_s = -1.0, time.perf_counter()
        while time.perf_counter() < until_s:
            now = sum(v for k, v in self.metrics().items() if "tier_written" in k)
            if now != seen:
                seen, since_s = now, time.perf_counter()
            if time.perf_counter() - since_s > quiet_s:
                return
            time.sleep(0.05)
        raise TimeoutError("copies to lower tiers did not end")

    def close(self) -> None:
        self.built.engine.close()


def random_ids(num_tokens: int, seed: int, *, below: int = 40_000) -> list[int]:
    """Tokens that no other seed has."""
    chooser = random.Random(seed)
    return [chooser.randrange(100, below) for _ in range(num_tokens)]
