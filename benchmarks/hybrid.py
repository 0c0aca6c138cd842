"""Prefill and decode of the hybrid model `tiny-hybrid` beside `transformers`, and what its state images cost.

Without speculation, which `hybrid_mtp` measures. Both compute in bf16 with the same number of threads and take turns.
"""

import time
from collections import defaultdict

from benchmarks.baseline import Baseline
from benchmarks.decode import rate
from benchmarks.served import Bench, Served, random_ids, settings_of, tiers_toml
from benchmarks.table import Row, median
from ninfer.cache.manager import CacheManager
from ninfer.exec.runner import ModelRunner

MODEL = "tiny-hybrid"
VOCABULARY = 4000
PREFILL_BOUNDS = {1024: 1.5, 8192: 1.5, 32768: 3.0}
DECODE_BOUNDS = {1: 2.0, 4: 5.0}
PROMPT_TOKENS = 128
MAX_CAPTURE_SHARE = 0.02


class CaptureTime:
    """Seconds and number of captured images, by wrapping what copies them and what books them."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.num_images = 0
        self._wrap(ModelRunner, "_capture")
        self._wrap(CacheManager, "capture_slot")
        self._wrap(CacheManager, "capture")

    def _wrap(self, owner: type, name: str) -> None:
        inner = getattr(owner, name)

        def timed(*args: object, **kwargs: object) -> object:
            start_s = time.perf_counter()
            try:
                return inner(*args, **kwargs)
            finally:
                self.seconds += time.perf_counter() - start_s
                self.num_images += name == "capture"

        setattr(owner, name, timed)


def hybrid_engine(bench: Bench, tiers: str, **sets: object) -> Served:
    """An engine over `tiny-hybrid`, its prompts not longer than what is measured."""
    return Served(settings_of(bench, tiers, model__name=MODEL, **sets))


def measure(bench: Bench) -> list[Row]:
    lengths = bench.pick(tuple(PREFILL_BOUNDS), (256, 1024))
    captures = CaptureTime()
    engine = hybrid_engine(
        bench,
        tiers_toml(host_bytes=256 << 20, disk_bytes=256 << 20),
        spec__decoder="off",
        engine__kv_capacity=lengths[-1] + 4096,
    )
    with Baseline(model=MODEL) as baseline:
        rows = _prefill(bench, engine, baseline, lengths, captures)
        rows += _decode(bench, engine, baseline)
    engine.close()
    return rows


def _prefill(
    bench: Bench,
    engine: Served,
    baseline: Baseline,
    lengths: tuple[int, ...],
    captures: CaptureTime,
) -> list[Row]:
    rounds = bench.pick(3, 1)
    speeds: dict[tuple[str, int], list[float]] = defaultdict(list)
    costs: dict[int, list[tuple[float, int, float]]] = defaultdict(list)
    for turn in range(rounds + 1):
        # The warm-up has every length: the longest is the first to touch most of the KV, on both sides.
        for num_tokens in lengths:
            ids = random_ids(num_tokens, 100 * turn + num_tokens, below=VOCABULARY)
            seconds = baseline.prefill_s(ids)
            before_s, before = captures.seconds, captures.num_images
            call = engine.ask(ids, 1)
            engine.settle(0.2)
            assert call.num_cached < 64, "prompts of a benchmark must not meet"
            if turn:
                speeds["transformers", num_tokens].append(num_tokens / seconds)
                speeds["ninfer", num_tokens].append(num_tokens / call.first_token_s)
                costs[num_tokens].append((
                    captures.seconds - before_s,
                    captures.num_images - before,
                    call.first_token_s,
                ))
    return [
        *[
            Row(
                figure=f"hybrid: prefill, {num_tokens:,} tokens",
                measured=median(speeds["ninfer", num_tokens]),
                unit="tok/s",
                reference=median(speeds["transformers", num_tokens]),
                against="transformers, one forward pass, logits of the last token, bf16",
                bound=PREFILL_BOUNDS.get(num_tokens),
                note="submission to first token, nothing cached; medians of rounds",
                raw={
                    "rounds": speeds["ninfer", num_tokens],
                    "transformers_rounds": speeds["transformers", num_tokens],
                    "transformers": baseline.facts,
                },
            )
            for num_tokens in lengths
        ],
        *[_capture_row(num_tokens, costs[num_tokens]) for num_tokens in lengths],
    ]


def _capture_row(num_tokens: int, costs: list[tuple[float, int, float]]) -> Row:
    shares = [seconds / prefill_s for seconds, _, prefill_s in costs]
    each_us = 1e6 * sum(cost[0] for cost in costs) / max(1, sum(cost[1] for cost in costs))
    return Row(
        figure=f"hybrid: state images of a prefill of {num_tokens:,} tokens",
        measured=100 * median(shares),
        unit="% of prefill",
        bound=100 * MAX_CAPTURE_SHARE,
        sense="at most",
        judged="measured",
        note=f"{costs[0][1]} images, {each_us:.0f} us each: slot, copy and booking",
        raw={"seconds_images_prefill_s": costs, "us_per_image": each_us},
    )


def _decode(bench: Bench, engine: Served, baseline: Baseline) -> list[Row]:
    num_new, rounds = bench.pick(128, 12), bench.pick(3, 1)
    rates: dict[str | int, list[float]] = defaultdict(list)
    for turn in range(rounds + 1):
        prompts = [
            random_ids(PROMPT_TOKENS, 10_000 * (turn + 1) + lane, below=VOCABULARY)
            for lane in range(max(DECODE_BOUNDS))
        ]
        token_s = baseline.decode_s(prompts[0], num_new)
        if turn:
            rates["transformers"].append(rate([token_s]))
        for lanes in DECODE_BOUNDS:
            calls = [engine.submit(prompt, num_new) for prompt in prompts[:lanes]]
            for call in calls:
                call.wait()
            engine.settle(0.1)
            if turn:
                rates[lanes].append(rate([call.token_s for call in calls]))
    return [
        Row(
            figure=f"hybrid: decode, {lanes} lane{'s together' * (lanes > 1)}, no speculation",
            measured=median(rates[lanes]),
            unit="tok/s",
            reference=median(rates["transformers"]),
            against="transformers generate, 1 sequence, bf16",
            bound=bound,
            note=f"prompt of {PROMPT_TOKENS} tokens; medians of rounds; greedy",
            raw={"rounds": rates[lanes], "transformers_rounds": rates["transformers"]},
        )
        for lanes, bound in DECODE_BOUNDS.items()
    ]
