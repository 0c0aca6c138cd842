"""Decode speed of the whole engine beside `transformers`, and the engine's own share of a step.

For each weight format one engine, alone in the process (a second one would be a second team of OpenMP threads): one
warm-up round, then rounds in which `transformers` and the engine take turns, so that drift meets both alike.
"""

import time
from collections import defaultdict

from benchmarks.baseline import Baseline
from benchmarks.served import Bench, Call, Served, random_ids, settings_of, tiers_toml
from benchmarks.table import Row, median
from ninfer.models.transformer import Transformer

FORMATS = ("dense", "int8", "int4")
LANES = (1, 4)
PROMPT_TOKENS = 128
BOUNDS = {("dense", 1): 1.3, ("dense", 4): 4.0, ("packed", 1): 3.0, ("packed", 4): 8.0}


class ModelTime:
    """Seconds inside the model's forward pass and output projection, by wrapping both."""

    def __init__(self) -> None:
        self.seconds = 0.0
        for name in ("forward", "logits"):
            self._wrap(name)

    def _wrap(self, name: str) -> None:
        inner = getattr(Transformer, name)

        def timed(*args: object, **kwargs: object) -> object:
            start_s = time.perf_counter()
            try:
                return inner(*args, **kwargs)
            finally:
                self.seconds += time.perf_counter() - start_s

        setattr(Transformer, name, timed)


def measure(bench: Bench) -> list[Row]:
    model_time = ModelTime()
    num_new, rounds = bench.pick(64, 12), bench.pick(3, 1)
    rates: dict[tuple[str, int], list[float]] = defaultdict(list)
    shares: dict[str, list[tuple[float, float]]] = defaultdict(list)
    with Baseline() as baseline:
        for name in FORMATS:
            engine = _engine(bench, name)
            for turn in range(rounds + 1):
                prompts = [random_ids(PROMPT_TOKENS, 1000 * turn + n) for n in range(max(LANES))]
                token_s = baseline.decode_s(prompts[0], num_new)
                if turn:
                    rates["transformers", 1].append(rate([token_s]))
                for lanes in LANES:
                    calls, share = _together(engine, prompts[:lanes], num_new, model_time)
                    engine.settle(0.1)
                    if turn:
                        rates[name, lanes].append(rate([call.token_s for call in calls]))
                        if lanes == 1:
                            shares[name].append(share)
            engine.close()
        facts = baseline.facts
    rates["transformers, float32", 1] = _float32(num_new, bench.pick(3, 1))
    return [*_speed_rows(rates, facts), _float32_row(rates), *_share_rows(shares)]


def _engine(bench: Bench, weights: str) -> Served:
    tiers = tiers_toml(host_bytes=128 << 20, disk_bytes=256 << 20)
    folder = bench.folder / "cache"
    loaded = settings_of(
        bench, tiers, model__weights=weights, engine__kv_capacity=4096, cache__dir=folder
    )
    return Served(loaded)


def _together(
    engine: Served, prompts: list[list[int]], num_new: int, model_time: ModelTime
) -> tuple[list[Call], tuple[float, float]]:
    """Run requests at once. Also return which shares of a step are outside runner and outside model."""
    marks: list[tuple[float, float, float]] = []
    first, last = (
        2,
        num_new,
    )  # the first event is the start, the second the token of the prefill step

    def mark(_event: object) -> None:
        now_s, is_needed = time.perf_counter(), len(marks) in {first, last}
        forward_s = engine.metrics()["ninfer_forward_seconds_total"] if is_needed else 0.0
        marks.append((now_s, forward_s, model_time.seconds))

    is_alone = len(prompts) == 1
    calls = [engine.submit(p, num_new, on_event=mark if is_alone else None) for p in prompts]
    for call in calls:
        call.wait()
    if not is_alone:
        return calls, (0.0, 0.0)
    (from_s, from_runner_s, from_model_s), (to_s, to_runner_s, to_model_s) = (
        marks[first],
        marks[last],
    )
    wall_s = to_s - from_s
    return calls, (
        1 - (to_runner_s - from_runner_s) / wall_s,
        1 - (to_model_s - from_model_s) / wall_s,
    )


def rate(lanes: list[list[float]]) -> float:
    """Tokens per second while all lanes decode: from the last first token to the first last token."""
    start_s = max(times[0] for times in lanes)
    end_s = min(times[-1] for times in lanes)
    return sum(start_s < at <= end_s for times in lanes for at in times) / (end_s - start_s)


def _speed_rows(rates: dict[tuple[str, int], list[float]], facts: dict[str, object]) -> list[Row]:
    reference = median(rates["transformers", 1])
    rows = []
    for lanes in LANES:
        speeds = {name: median(rates[name, lanes]) for name in FORMATS}
        best = max(("int8", "int4"), key=lambda name: speeds[name])
        for name in FORMATS:
            group = "dense" if name == "dense" else "packed"
            bound = BOUNDS[group, lanes] if name in {"dense", best} else None
            weights = "bf16" if name == "dense" else name
            rows.append(
                Row(
                    figure=f"decode, {lanes} lane{'s together' * (lanes > 1)}, {weights} weights",
                    measured=speeds[name],
                    unit="tok/s",
                    reference=reference,
                    against="transformers generate, 1 sequence, bf16",
                    bound=bound,
                    note=f"prompt of {PROMPT_TOKENS} tokens; medians of rounds; greedy",
                    raw={
                        "rounds": rates[name, lanes],
                        "transformers_rounds": rates["transformers", 1],
                        "transformers": facts,
                    },
                )
            )
    return rows


def _float32(num_new: int, rounds: int) -> list[float]:
    """What `transformers` does in float32: on a CPU that multiplies bf16 slowly, its better choice."""
    with Baseline("float32") as baseline:
        prompt = random_ids(PROMPT_TOKENS, 1)
        return [rate([baseline.decode_s(prompt, num_new)]) for _ in range(rounds + 1)][1:]


def _float32_row(rates: dict[tuple[str, int], list[float]]) -> Row:
    found = rates["transformers, float32", 1]
    return Row(
        figure="decode, 1 lane, bf16 weights, against transformers in float32",
        measured=median(rates["dense", 1]),
        unit="tok/s",
        reference=median(found),
        against="transformers generate, 1 sequence, float32",
        note="not judged: tells how much of the ratio is bf16 being slow in transformers on this CPU",
        raw={"transformers_float32_rounds": found},
    )


def _share_rows(shares: dict[str, list[tuple[float, float]]]) -> list[Row]:
    rows = []
    for name in FORMATS:
        runner, model = ([pair[index] for pair in shares[name]] for index in (0, 1))
        is_judged = name == "dense"
        rows.append(
            Row(
                figure=f"outside the model's forward, 1 lane, {'bf16' if is_judged else name} weights",
                measured=100 * median(model),
                unit="% of a step",
                bound=5.0 if is_judged else None,
                sense="at most",
                judged="measured",
                note="wall time between tokens that is not in forward or output projection; "
                f"outside the runner (which includes the sampler): {100 * median(runner):.2f} %",
                raw={"outside_model": model, "outside_runner": runner},
            )
        )
    return rows
