"""Measures how fast a model prefills, at start. Knows nothing about who uses the numbers."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Final

from ninfer.core.step import PAGE_SIZE_TOKENS, PageRun
from ninfer.exec.runner import ServedModel
from ninfer.kernels.kv_pool import KvPool
from ninfer.kernels.state_pool import StatePool
from ninfer.models.batch import ForwardBatch, Segment

_BUDGET_S: Final = 1.2
"""Seconds after which no further forward pass is begun."""
_FIRST_TOKENS: Final = 16
"""The first pass warms up; if it alone takes long, it is all that is measured."""
_CHUNK_TOKENS: Final = 64
_LONG_CHUNK_TOKENS: Final = 512
"""A chunk long enough that fixed costs vanish, used if the short one says there is time."""
_DEEP_TOKENS: Final = 8192
_TOKEN_ID: Final = 0


@dataclass(frozen=True, slots=True)
class PrefillSpeed:
    """Price of prefilling token p: `1 / tokens_per_s + p * seconds_per_token_squared`.

    Attributes:
        tokens_per_s: speed at the beginning of a context; > 0.
        seconds_per_token_squared: growth with the position; >= 0.
    """

    tokens_per_s: float
    seconds_per_token_squared: float

    def seconds(self, start_tokens: int, num_tokens: int) -> float:
        """Predict the seconds to prefill tokens [start, start + num)."""
        middle = start_tokens + num_tokens / 2
        return num_tokens * (1.0 / self.tokens_per_s + middle * self.seconds_per_token_squared)

    def to_json(self) -> str:
        """Spell as JSON."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> "PrefillSpeed":
        """Read what `to_json` wrote.

        Raises:
            ValueError: the text is something else.
        """
        try:
            fields = json.loads(text)
            speed = PrefillSpeed(
                float(fields["tokens_per_s"]), float(fields["seconds_per_token_squared"])
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"no prefill speed: {text[:100]!r}") from error
        if not speed.tokens_per_s > 0.0 or not speed.seconds_per_token_squared >= 0.0:
            raise ValueError(f"impossible prefill speed: {speed}")
        return speed


def calibrate_prefill(
    model: ServedModel,
    kv: KvPool,
    *,
    seconds: Callable[[], float],
    max_tokens: int,
    states: StatePool | None = None,
) -> PrefillSpeed:
    """Time a few small forward passes. Call it while no page of the pool and no state slot is in use.

    Args:
        model: to be measured.
        kv: its pool; the content of its first pages is overwritten.
        seconds: a monotonic clock.
        max_tokens: longest context of the model.
        states: its state pool, None for a model without state; the content of slot 0 is overwritten.

    Returns:
        The measured price; growth 0 if the pool is too small to see it.

    Blocks for about 1.2 s plus the last pass. On a slow model one short pass is all there is.
    """
    started_s = seconds()
    context = min(kv.num_pages * PAGE_SIZE_TOKENS, max_tokens, _DEEP_TOKENS)
    watch = _Watch(model, kv, states, seconds)
    first = min(_FIRST_TOKENS, context)
    watch.time(0, first)  # the first pass ever also touches the weights and starts threads
    first_s = watch.time(0, first)
    if first_s > _BUDGET_S / 4:
        return PrefillSpeed(first / first_s, 0.0)
    chunk = min(_CHUNK_TOKENS, context)
    short_s = watch.time(0, chunk)
    long_chunk = min(_LONG_CHUNK_TOKENS, context)
    if short_s / chunk * long_chunk < _BUDGET_S / 4:
        chunk, short_s = long_chunk, watch.time(0, long_chunk)
    deep_start = context - chunk
    deep_s = short_s
    if deep_start > 0 and seconds() - started_s + 2 * short_s < _BUDGET_S:
        deep_s = watch.time(deep_start, chunk)
        while seconds() - started_s + short_s + deep_s < _BUDGET_S and watch.num_passes < 12:
            short_s = min(short_s, watch.time(0, chunk))
            deep_s = min(deep_s, watch.time(deep_start, chunk))
    growth = max((deep_s - short_s) / chunk / deep_start, 0.0) if deep_start > 0 else 0.0
    at_start_s = max(short_s / chunk - growth * chunk / 2, 0.1 * short_s / chunk)
    return PrefillSpeed(1.0 / at_start_s, growth)


class _Watch:
    """Times passes over the pool's first pages."""

    def __init__(
        self,
        model: ServedModel,
        kv: KvPool,
        states: StatePool | None,
        seconds: Callable[[], float],
    ) -> None:
        self.num_passes = 0
        self._model = model
        self._kv = kv
        self._states = states
        self._seconds = seconds

    def time(self, start_tokens: int, num_tokens: int) -> float:
        """Return the seconds of one pass over tokens [start, start + num)."""
        num_pages = -(-(start_tokens + num_tokens) // PAGE_SIZE_TOKENS)
        runs: tuple[PageRun, ...] = ((0, num_pages),)
        slot = None if self._states is None else 0
        segment = Segment(0, num_tokens, start_tokens, runs, slot)
        begun_s = self._seconds()
        batch = ForwardBatch.of([_TOKEN_ID] * num_tokens, [segment], self._model.device)
        hidden = self._model.forward(batch, self._kv, self._states)
        self._model.logits(hidden[-1:]).max().item()
        self.num_passes += 1
        return max(self._seconds() - begun_s, 1e-9)
