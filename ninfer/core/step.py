"""The border between scheduling and execution: frozen plans of host integers. Knows nothing about tensors."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from ninfer.core.request import TokenLogprob
from ninfer.core.sampling import SamplingParams

PAGE_SIZE_TOKENS: Final = 64
"""Tokens of one page; the unit of KV allocation, identity and transfer."""

PageRun = tuple[int, int]
"""(first page id, number of pages): consecutive device pages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageCopy:
    """Copy the first `num_tokens` tokens of a device page to another before anything is computed."""

    source: int
    target: int
    num_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StateCopy:
    """Copy a state slot to another. A `source` of None resets the target to the state of position 0."""

    source: int | None
    target: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneChunk:
    """Tokens of one lane to compute in this step.

    Attributes:
        lane: lane number, constant while a request runs.
        start_tokens: position of the first token; KV of [0, start_tokens) is there.
        token_ids: tokens to compute, >= 1; the last `num_draft` of them are guesses.
        num_draft: guesses to verify.
        runs: device pages covering [0, start_tokens + len(token_ids)) in order.
        state_slot: slot of the lane's running state, None for models without state.
        state_slots_after: with guesses and a state, one slot per token that receives the state after it, so that
            any number of accepted guesses has its exact state; the last may be `state_slot` itself. Empty: the
            state after the last token replaces that in `state_slot`.
        samples: sample after the last token (and verify guesses); False inside a prompt.
        capture_slot: slot that receives a copy of the state after the last token, None for none.
    """

    lane: int
    start_tokens: int
    token_ids: Sequence[int]
    num_draft: int = 0
    runs: tuple[PageRun, ...]
    state_slot: int | None = None
    state_slots_after: tuple[int, ...] = ()
    samples: bool
    capture_slot: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """Everything one step does, in this order: copies of pages, of states, then all chunks together.

    Attributes:
        page_copies: copies on write and for captures.
        state_copies: resets, restores into lanes.
        chunks: at most one per lane.
    """

    page_copies: tuple[PageCopy, ...] = ()
    state_copies: tuple[StateCopy, ...] = ()
    chunks: tuple[LaneChunk, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkOutput:
    """What came out of one chunk.

    Attributes:
        lane: whose.
        token_ids: sampled tokens: accepted guesses, then one more; empty if the chunk does not sample.
        num_accepted: accepted guesses; `len(token_ids) == num_accepted + 1` if the chunk samples.
        logprobs: one per token if the lane asked for them.
        error: set if this lane alone failed (for example NaN logits); then there are no tokens.
    """

    lane: int
    token_ids: tuple[int, ...] = ()
    num_accepted: int = 0
    logprobs: tuple[TokenLogprob, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutput:
    """Results of a step.

    Attributes:
        chunks: one per chunk of the plan, in order.
        forward_s: seconds inside the model and the sampler.
    """

    chunks: tuple[ChunkOutput, ...]
    forward_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceLayout:
    """Sizes of the device memory that the context store manages.

    Attributes:
        num_pages: pages of 64 tokens, the same number in every typed KV pool.
        page_pool_bytes: bytes of one page in each typed pool, by pool name ("main", "draft").
        num_state_slots: state slots, lanes' running states included; 0 for models without state.
        state_image_bytes: bytes of one slot.
        num_lanes: requests that can run at once.
        num_scratch_slots: slots that each lane has besides, for the states after guesses that are being verified;
            their ids follow those of `num_state_slots`.
    """

    num_pages: int
    page_pool_bytes: dict[str, int]
    num_state_slots: int
    state_image_bytes: int
    num_lanes: int
    num_scratch_slots: int = 0

    @property
    def num_all_slots(self) -> int:
        """State slots in all: what contexts use and what lanes have for verification."""
        return self.num_state_slots + self.num_lanes * self.num_scratch_slots

    @property
    def num_bytes(self) -> int:
        """Bytes of all pages and of all slots that keep images."""
        return (
            self.num_pages * self.page_image_bytes + self.num_state_slots * self.state_image_bytes
        )

    @property
    def page_image_bytes(self) -> int:
        """Bytes of one page over all typed pools."""
        return sum(self.page_pool_bytes.values())


class StepRunner(Protocol):
    """Executes plans. Owns tensors; called on the engine thread."""

    @property
    def layout(self) -> DeviceLayout:
        """Sizes, constant."""
        ...

    def open_lane(
        self, lane: int, sampling: SamplingParams, prompt_token_ids: Sequence[int]
    ) -> None:
        """Prepare a lane's sampler (penalty counts, random generator)."""
        ...

    def close_lane(self, lane: int) -> None:
        """Forget a lane."""
        ...

    def execute(self, plan: StepPlan) -> StepOutput:
        """Run one step.

        A fault of a single lane is reported in its output; an exception means the device
        is in an unknown state.
        """
        ...


class DeviceCopier(Protocol):
    """Copies between device and host memory. Thread-safe; called on transfer threads.

    A page image is the page's bytes of every typed pool, pools in name order, each `[num_layers, 2, 64,
    num_kv_heads, head_dim]` row-major. Each call blocks until its bytes have arrived.
    """

    def copy_page_out(self, page: int, buffer: memoryview) -> None:
        """Copy a page image to host memory of `page_image_bytes`."""
        ...

    def copy_page_in(self, page: int, buffer: memoryview) -> None:
        """Copy a page image from host memory of `page_image_bytes`."""
        ...

    def copy_pages_out(self, pages: Sequence[int], buffer: memoryview) -> None:
        """Copy page images to host memory, one behind the other."""
        ...

    def copy_pages_in(self, pages: Sequence[int], buffer: memoryview) -> None:
        """Copy page images that lie one behind the other in host memory."""
        ...

    def copy_state_out(self, slot: int, buffer: memoryview) -> None:
        """Copy a state slot to host memory of `state_image_bytes`."""
        ...

    def copy_state_in(self, slot: int, buffer: memoryview) -> None:
        """Copy a state slot from host memory of `state_image_bytes`."""
        ...
