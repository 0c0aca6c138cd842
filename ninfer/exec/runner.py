"""Runs one step: copies, one forward pass over all chunks, sampling. Knows nothing about scheduling or the cache."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ninfer.api import Clock, LaneRows
from ninfer.core.sampling import SamplingParams
from ninfer.core.step import ChunkOutput, DeviceLayout, LaneChunk, StepOutput, StepPlan
from ninfer.exec.following import Following
from ninfer.exec.lane_states import LaneStates, NoStates
from ninfer.exec.sampler import LaneSampler, SamplingFailed
from ninfer.exec.verify import Verification, accept_choices, verify
from ninfer.kernels.kv_pool import KvPool
from ninfer.kernels.page_copy import copy_page
from ninfer.kernels.state_pool import StatePool
from ninfer.models.batch import ForwardBatch, Segment


class ServedModel(Protocol):
    """What the runner needs of a model. Stateless between calls."""

    @property
    def device(self) -> torch.device:
        """Where its tensors live."""
        ...

    def forward(self, batch: ForwardBatch, kv: KvPool, states: StatePool | None) -> Tensor:
        """Compute all rows, write their KV and states; return hidden states `[num_rows, hidden_size]`."""
        ...

    def logits(self, hidden: Tensor) -> Tensor:
        """Project hidden states to float32 or float64 `[num_rows, vocab_size]`."""
        ...


Follow = Callable[[Sequence[LaneRows], Tensor], None]
"""Is shown what a step computed; see `ninfer.api.SpeculativeDecoder.follow`."""


@dataclass(frozen=True, slots=True)
class _Job:
    """A chunk's rows in the batch and, if it samples, in the logits.

    Attributes:
        chunk: what was planned.
        error: why it cannot run; it then has no rows.
        segment: index of its segment in the batch.
        first_row: first batch row that samples.
        num_rows: rows that sample: the guesses' and one more, 0 inside a prompt.
    """

    chunk: LaneChunk
    error: str = ""
    segment: int = -1
    first_row: int = 0
    num_rows: int = 0


class ModelRunner:
    """A `StepRunner` for one model on one device. Used by the engine thread only.

    When `execute` returns, everything it wrote is on the device, so transfers need not wait for it.

    Attributes:
        follow: shown what each step of a model with states computed, before its results are booked; None for nobody.
    """

    def __init__(
        self,
        model: ServedModel,
        pools: Mapping[str, KvPool],
        *,
        vocab_size: int,
        num_lanes: int,
        clock: Clock,
        states: StatePool | None = None,
        num_scratch_slots: int = 0,
    ) -> None:
        """Wire a model to its memory.

        Args:
            model: computes.
            pools: typed KV pools by name, all with the same number of pages; "main" is the model's.
            vocab_size: valid token ids; logits may have more columns.
            num_lanes: requests that can run at once.
            clock: for `forward_s`.
            states: recurrent states; None for a model without.
            num_scratch_slots: slots among them that each lane keeps for the states after guesses.

        Raises:
            ValueError: the pools do not fit together, or there are fewer slots than lanes keep.
        """
        if "main" not in pools or len({pool.num_pages for pool in pools.values()}) != 1:
            raise ValueError("pools need one named main and equal numbers of pages")
        self._model = model
        self._pools = tuple(pools[name] for name in sorted(pools))
        self._kv = pools["main"]
        self._vocab_size = vocab_size
        self._clock = clock
        self.follow: Follow | None = None
        self._state_pool = states
        self._states: LaneStates = NoStates() if states is None else states
        self._samplers: dict[int, LaneSampler] = {}
        self._is_cuda = model.device.type == "cuda"
        num_kept = num_lanes * num_scratch_slots if self._states.num_slots else 0
        if num_kept > self._states.num_slots:
            raise ValueError(
                f"{num_lanes} lanes with {num_scratch_slots} slots each need more than {self._states.num_slots}"
            )
        self._layout = DeviceLayout(
            num_pages=self._kv.num_pages,
            page_pool_bytes={name: pools[name].layout.page_bytes for name in sorted(pools)},
            num_state_slots=self._states.num_slots - num_kept,
            state_image_bytes=self._states.image_bytes,
            num_lanes=num_lanes,
            num_scratch_slots=num_scratch_slots if num_kept else 0,
        )

    @property
    def layout(self) -> DeviceLayout:
        """Sizes, constant."""
        return self._layout

    def open_lane(
        self, lane: int, sampling: SamplingParams, prompt_token_ids: Sequence[int]
    ) -> None:
        """Prepare a lane's sampler; see `StepRunner`."""
        if not 0 <= lane < self._layout.num_lanes:
            raise ValueError(f"lane {lane} is not in [0, {self._layout.num_lanes})")
        self._samplers[lane] = LaneSampler(sampling, prompt_token_ids, vocab_size=self._vocab_size)

    def close_lane(self, lane: int) -> None:
        """Forget a lane; unknown ones are ignored."""
        self._samplers.pop(lane, None)

    @torch.inference_mode()
    def execute(self, plan: StepPlan) -> StepOutput:
        """Run one step; see `StepRunner`.

        Raises:
            KeyError: a chunk that samples is of a lane that is not open.
            ValueError: page runs of a chunk are too short, or copies leave the pool.
        """
        started_s = self._clock.monotonic_s()
        for copy in plan.page_copies:
            for pool in self._pools:
                copy_page(pool, copy.source, copy.target, num_tokens=copy.num_tokens)
        for state_copy in plan.state_copies:
            self._states.copy(state_copy.source, state_copy.target)
        outputs = self._run_chunks(plan.chunks) if plan.chunks else ()
        if self._is_cuda:
            torch.cuda.current_stream(self._model.device).synchronize()
        return StepOutput(chunks=outputs, forward_s=self._clock.monotonic_s() - started_s)

    def _run_chunks(self, chunks: Sequence[LaneChunk]) -> tuple[ChunkOutput, ...]:
        token_ids: list[int] = []
        segments: list[Segment] = []
        jobs: list[_Job] = []
        for chunk in chunks:
            if min(chunk.token_ids) < 0 or max(chunk.token_ids) >= self._vocab_size:
                jobs.append(_Job(chunk, error="a token id is outside the vocabulary"))
                continue
            first, num_rows = len(token_ids), len(chunk.token_ids)
            segments.append(
                Segment(
                    first,
                    num_rows,
                    chunk.start_tokens,
                    chunk.runs,
                    chunk.state_slot,
                    chunk.state_slots_after,
                )
            )
            token_ids.extend(chunk.token_ids)
            num_sampled = chunk.num_draft + 1 if chunk.samples else 0
            jobs.append(
                _Job(
                    chunk,
                    segment=len(segments) - 1,
                    first_row=first + num_rows - num_sampled,
                    num_rows=num_sampled,
                )
            )
        if not segments:
            return tuple(ChunkOutput(lane=job.chunk.lane, error=job.error) for job in jobs)
        batch = ForwardBatch.of(token_ids, segments, self._model.device)
        following = None
        if self.follow is not None and self._state_pool is not None:
            following = Following(self._state_pool, segments)
        hidden = self._model.forward(batch, self._kv, self._state_pool)
        for job in jobs:
            self._capture(job)
        outputs = self._sample(hidden, jobs)
        if following is not None and self.follow is not None:
            for job, output in zip(jobs, outputs, strict=True):
                if not output.error:
                    following.add(job.chunk, output, job.segment)
            if following.lanes:
                self.follow(following.lanes, following.rows(hidden))
        return outputs

    def _capture(self, job: _Job) -> None:
        if job.chunk.capture_slot is not None and not job.error:
            self._states.copy(job.chunk.state_slot, job.chunk.capture_slot)

    def _sample(self, hidden: Tensor, jobs: Sequence[_Job]) -> tuple[ChunkOutput, ...]:
        rows = [row for job in jobs for row in range(job.first_row, job.first_row + job.num_rows)]
        if not rows:
            return tuple(ChunkOutput(lane=job.chunk.lane, error=job.error) for job in jobs)
        logits = self._model.logits(_select(hidden, rows))[:, : self._vocab_size]
        samplers = [self._samplers[job.chunk.lane] for job in jobs if job.num_rows]
        is_plain = all(
            sampler.is_plain_greedy and sampler.params.num_logprobs is None for sampler in samplers
        )
        chooser = _DeviceRows(logits) if self._is_cuda and is_plain else _HostRows(logits)
        outputs = []
        row = 0
        for job in jobs:
            outputs.append(self._finish(job, chooser, row))
            row += job.num_rows
        return tuple(outputs)

    def _finish(self, job: _Job, chooser: "_HostRows | _DeviceRows", row: int) -> ChunkOutput:
        lane, num_draft = job.chunk.lane, job.chunk.num_draft
        if not job.num_rows:
            return ChunkOutput(lane=lane, error=job.error)
        guesses = job.chunk.token_ids[-num_draft:] if num_draft else ()
        try:
            found = chooser.verify(self._samplers[lane], row, guesses)
        except (SamplingFailed, ArithmeticError, ValueError, IndexError) as error:
            return ChunkOutput(lane=lane, error=str(error) or type(error).__name__)
        return ChunkOutput(
            lane=lane,
            token_ids=found.token_ids,
            num_accepted=found.num_accepted,
            logprobs=found.logprobs,
        )


class _HostRows:
    """Logits in host memory: any sampler."""

    def __init__(self, logits: Tensor) -> None:
        self._rows = logits.cpu().numpy()

    def verify(self, sampler: LaneSampler, row: int, guesses: Sequence[int]) -> Verification:
        return verify(sampler, self._rows[row : row + len(guesses) + 1], guesses)


class _DeviceRows:
    """The most likely token of each row, found on the device: plain greedy lanes only."""

    def __init__(self, logits: Tensor) -> None:
        best, choices = logits.max(dim=-1)
        self._choices: list[int] = choices.tolist()
        self._is_finite: list[bool] = best.isfinite().tolist()

    def verify(self, _sampler: LaneSampler, row: int, guesses: Sequence[int]) -> Verification:
        found = accept_choices(self._choices[row : row + len(guesses) + 1], guesses)
        if not all(self._is_finite[row : row + len(found.token_ids)]):
            raise SamplingFailed("logits are not finite")
        return found


def _select(hidden: Tensor, rows: Sequence[int]) -> Tensor:
    """Return the given ascending rows, without copying where they are consecutive."""
    first, last = rows[0], rows[-1]
    if last - first + 1 == len(rows):
        return hidden[first : last + 1]
    return hidden.index_select(0, torch.tensor(rows, device=hidden.device))
