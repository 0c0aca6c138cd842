"""How a decode step grows with context length and with lanes. Informs; nothing is judged."""

import itertools

from benchmarks.served import Bench, Served, random_ids, settings_of
from benchmarks.table import Row, median


def measure(bench: Bench) -> list[Row]:
    lengths = bench.pick((1000, 4000, 7000), (128, 256))
    lanes = bench.pick((1, 2, 4, 8), (1, 2))
    num_new = bench.pick(33, 9)
    engine = Served(settings_of(bench, engine__kv_capacity=8192, engine__max_concurrency=8))
    engine.ask(random_ids(128, 1), 8)
    rows = []
    for num_tokens in lengths:
        step_s = _step_s(engine, [random_ids(num_tokens, num_tokens)], num_new)
        rows.append(_row(f"decode step, 1 lane, context {num_tokens:,}", step_s))
    for count in lanes:
        prompts = [random_ids(128, 10_000 + 100 * count + lane) for lane in range(count)]
        rows.append(
            _row(f"decode step, lanes together: {count}", _step_s(engine, prompts, num_new))
        )
    engine.close()
    return rows


def _step_s(engine: Served, prompts: list[list[int]], num_new: int) -> list[float]:
    """Seconds between tokens of the first lane while all lanes decode."""
    calls = [engine.submit(prompt, num_new) for prompt in prompts]
    for call in calls:
        call.wait()
    start_s = max(call.token_s[0] for call in calls)
    end_s = min(call.token_s[-1] for call in calls)
    times = [at for at in calls[0].token_s if start_s <= at <= end_s]
    return [after - before for before, after in itertools.pairwise(times)]


def _row(figure: str, step_s: list[float]) -> Row:
    return Row(
        figure=figure, measured=1e3 * median(step_s), unit="ms", raw={"step_s": step_s}, note="bf16"
    )
