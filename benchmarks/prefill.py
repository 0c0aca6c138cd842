"""Prefill speed of the whole engine, time to the first token, beside one forward pass of `transformers`."""

from collections import defaultdict
from collections.abc import Sequence

from benchmarks.baseline import Baseline
from benchmarks.served import Bench, Served, random_ids, settings_of, tiers_toml
from benchmarks.table import Row, median


def measure(bench: Bench) -> list[Row]:
    lengths = bench.pick((512, 2048, 7800), (128, 256))
    rounds = bench.pick(3, 1)
    tiers = tiers_toml(host_bytes=256 << 20, disk_bytes=512 << 20)
    engine = Served(settings_of(bench, tiers, engine__kv_capacity=8192))
    speeds: dict[tuple[str, int], list[float]] = defaultdict(list)
    with Baseline() as baseline:
        for turn in range(rounds + 1):
            for num_tokens in _lengths_of(turn, lengths):
                ids = random_ids(num_tokens, 100 * turn + num_tokens)
                seconds = baseline.prefill_s(ids)
                call = engine.ask(ids, 1)
                engine.settle(0.2)
                assert call.num_cached < 64, "prompts of a benchmark must not meet"
                if turn:
                    speeds["transformers", num_tokens].append(num_tokens / seconds)
                    speeds["ninfer", num_tokens].append(num_tokens / call.first_token_s)
        facts = baseline.facts
    engine.close()
    with Baseline("float32") as baseline:
        for turn in range(rounds + 1):
            ids = random_ids(lengths[0], 100 * turn + 1)
            speed = lengths[0] / baseline.prefill_s(ids)
            if turn:
                speeds["transformers float32", lengths[0]].append(speed)
    return [*_rows(speeds, lengths, facts), _float32_row(speeds, lengths[0])]


def _lengths_of(turn: int, lengths: Sequence[int]) -> Sequence[int]:
    """Warm up with the short ones; measure the longest once: it takes minutes where bf16 products are slow."""
    return lengths if turn == 1 else lengths[:2]


def _float32_row(speeds: dict[tuple[str, int], list[float]], num_tokens: int) -> Row:
    found = speeds["transformers float32", num_tokens]
    return Row(
        figure=f"prefill, {num_tokens:,} tokens, against transformers in float32",
        measured=median(speeds["ninfer", num_tokens]),
        unit="tok/s",
        reference=median(found),
        against="transformers, one forward pass, float32",
        note="not judged: tells how much of the ratio is bf16 being slow in transformers on this CPU",
        raw={"transformers_float32_rounds": found},
    )


def _rows(
    speeds: dict[tuple[str, int], list[float]], lengths: Sequence[int], facts: dict[str, object]
) -> list[Row]:
    return [
        Row(
            figure=f"prefill, {num_tokens:,} tokens",
            measured=median(speeds["ninfer", num_tokens]),
            unit="tok/s",
            reference=median(speeds["transformers", num_tokens]),
            against="transformers, one forward pass, logits of the last token",
            bound=1.0,
            note="submission to first token, nothing cached; medians of rounds",
            raw={
                "rounds": speeds["ninfer", num_tokens],
                "transformers_rounds": speeds["transformers", num_tokens],
                "transformers": facts,
            },
        )
        for num_tokens in lengths
    ]
