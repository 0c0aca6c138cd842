"""Decode of `tiny-hybrid` with its own MTP head beside the same without speculation, on text that it writes itself.

Engines take turns, one at a time in the process; each answers the same questions, greedily and one after the other.
"""

from collections import defaultdict
from random import Random

from benchmarks.hybrid import MODEL, hybrid_engine
from benchmarks.served import Bench, Call, Served
from benchmarks.table import Row, median
from ninfer.models.resolve import resolve_model
from ninfer.text.tokenizer import Tokenizer
from tools.tiny_hybrid.chats import tell_story

DECODERS = ("off", "mtp")
MIN_GAIN = 1.3
MIN_FIRST_ACCEPTED = 0.6
MAX_NEW = 160
END = "<|im_end|>"


def measure(bench: Bench) -> list[Row]:
    prompts, end = _questions(bench.pick(12, 3))
    rates: dict[str, list[float]] = defaultdict(list)
    answers: dict[str, list[Call]] = {}
    for turn in range(bench.pick(3, 1)):
        for decoder in DECODERS if turn % 2 == 0 else reversed(DECODERS):
            engine = hybrid_engine(bench, "[]", spec__decoder=decoder, engine__kv_capacity=8192)
            engine.ask(prompts[0], 32, is_cached=False)
            answers[decoder] = [_answer(engine, prompt, end) for prompt in prompts]
            rates[decoder].append(_rate(answers[decoder]))
            engine.close()
    return [_gain_row(rates, answers["mtp"]), _acceptance_row(answers["mtp"])]


def _questions(count: int) -> tuple[list[list[int]], int]:
    """Prompts of chats that training did not see, up to the assistant's turn, and the token that ends it."""
    tokenizer = Tokenizer.from_path(resolve_model(MODEL).path)
    rng = Random("benchmarks.hybrid_mtp")
    prompts = []
    for _ in range(count):
        segments = tell_story(rng).segments()
        first = next(index for index, part in enumerate(segments) if part.is_answer)
        prompts.append(
            tokenizer.encode("".join(part.text for part in segments[:first]), add_special=False)
        )
    (end,) = tokenizer.encode(END, add_special=False)
    return prompts, end


def _answer(engine: Served, prompt: list[int], end: int) -> Call:
    return engine.submit(prompt, MAX_NEW, is_cached=False, stop_token_ids=frozenset({end})).wait()


def _rate(calls: list[Call]) -> float:
    """Tokens after the first of each answer by the time they took."""
    num_tokens = sum(call.stats.num_completion_tokens - 1 for call in calls)
    return num_tokens / sum(call.token_s[-1] - call.token_s[0] for call in calls)


def _acceptance(calls: list[Call]) -> list[float]:
    """Share of guesses accepted, by place in the draft."""
    drafted = [call.stats.drafted_at for call in calls]
    accepted = [call.stats.accepted_at for call in calls]
    places = range(max(map(len, drafted)))
    return [
        sum(counts[place] for counts in accepted if place < len(counts))
        / sum(counts[place] for counts in drafted if place < len(counts))
        for place in places
    ]


def _gain_row(rates: dict[str, list[float]], calls: list[Call]) -> Row:
    shares = ", ".join(f"{share:.0%}" for share in _acceptance(calls))
    num_tokens = sum(call.stats.num_completion_tokens for call in calls)
    return Row(
        figure="hybrid: decode with MTP, 1 lane",
        measured=median(rates["mtp"]),
        unit="tok/s",
        reference=median(rates["off"]),
        against="the same without speculation",
        bound=MIN_GAIN,
        note=f"{num_tokens} tokens of stories, greedy; accepted by place in the draft: {shares}",
        raw={"rounds": rates["mtp"], "off_rounds": rates["off"]},
    )


def _acceptance_row(calls: list[Call]) -> Row:
    shares = _acceptance(calls)
    return Row(
        figure="hybrid: first guess of the MTP head accepted",
        measured=100 * shares[0],
        unit="%",
        bound=100 * MIN_FIRST_ACCEPTED,
        judged="measured",
        note="; ".join(f"place {at}: {share:.0%}" for at, share in enumerate(shares, start=1)),
        raw={
            "drafted_at": [call.stats.drafted_at for call in calls],
            "accepted_at": [call.stats.accepted_at for call in calls],
        },
    )
