"""Drafts with the checkpoint's own multi-token-prediction head. Knows nothing about verification."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from typing_extensions import override

from ninfer.api import (
    DecoderContext,
    Draft,
    DraftHead,
    DraftRequest,
    LaneRows,
    SpeculationError,
    SpeculativeDecoder,
)
from ninfer_spec_mtp.config import MAX_DRAFT_TOKENS, MtpConfig

FAMILIES_WITH_HEAD: Final = ("qwen3_5", "qwen3_5_moe", "qwen3_next")
"""Families whose published checkpoints carry `mtp.*` weights."""


@dataclass(slots=True)
class _Lane:
    """What is known of a lane.

    Attributes:
        result: the head's result for the last token it saw, `[hidden_size]`.
        num_tokens: tokens up to and with that one.
        runs: pages of the lane.
    """

    result: torch.Tensor
    num_tokens: int
    runs: Sequence[tuple[int, int]]


class MtpDecoder(SpeculativeDecoder):
    """Greedy drafts, one token after the other, for all lanes together.

    `follow` shows the head every token that became final, so what it remembers is always that of the accepted ones.
    While drafting it remembers guesses too, at later positions; the next step overwrites them.

    Args:
        head: of the loaded model.
        max_tokens: tokens drafted at most.
    """

    uses_hidden_states = True

    def __init__(self, head: DraftHead, *, max_tokens: int) -> None:
        """Start with no lane open."""
        self._head = head
        self._max_tokens = max_tokens
        self._lanes: dict[int, _Lane] = {}

    @override
    def open_lane(self, lane: int) -> None:
        self._lanes.pop(lane, None)

    @override
    def close_lane(self, lane: int) -> None:
        self._lanes.pop(lane, None)

    @override
    def follow(self, lanes: Sequence[LaneRows], hidden: Any) -> None:
        results = self._head.extend(lanes, hidden)
        for lane, result in zip(lanes, results, strict=True):
            num_tokens = lane.start_tokens + len(lane.token_ids)
            self._lanes[lane.lane] = _Lane(result, num_tokens, lane.runs)

    @override
    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        drafts: dict[int, list[int]] = {request.lane: [] for request in requests}
        left = [
            (request.lane, min(request.max_tokens, self._max_tokens))
            for request in requests
            if self._is_ready(request)
        ]
        if left:
            results = torch.stack([self._lanes[lane].result for lane, _ in left])
            self._extend(left, results, drafts)
        return [
            Draft(lane=request.lane, token_ids=tuple(drafts[request.lane])) for request in requests
        ]

    def _is_ready(self, request: DraftRequest) -> bool:
        """Tell whether the head saw the lane up to its last token."""
        lane = self._lanes.get(request.lane)
        return lane is not None and lane.num_tokens == len(request.token_ids)

    def _extend(
        self, left: list[tuple[int, int]], results: torch.Tensor, drafts: dict[int, list[int]]
    ) -> None:
        """Draft token by token, from each result the next.

        Args:
            left: lanes with the number of tokens that each may draft.
            results: of the head, one row per lane.
            drafts: receive the tokens.
        """
        while True:
            for (lane, _), token in zip(left, self._head.choose(results), strict=True):
                drafts[lane].append(token)
            going_on = [
                index for index, (lane, most) in enumerate(left) if len(drafts[lane]) < most
            ]
            if not going_on:
                return
            if len(going_on) < len(left):
                results = results[going_on]
                left = [left[index] for index in going_on]
            rows = [
                LaneRows(
                    lane=lane,
                    start_tokens=self._lanes[lane].num_tokens + len(drafts[lane]) - 1,
                    token_ids=drafts[lane][-1:],
                    runs=self._lanes[lane].runs,
                )
                for lane, _ in left
            ]
            results = self._head.extend(rows, results)


def open_decoder(context: DecoderContext, config: MtpConfig) -> SpeculativeDecoder:
    """Open the decoder for the loaded model.

    Raises:
        SpeculationError: the model has no head, or more tokens are to be drafted than the head is good for.
    """
    model = context.model
    if context.max_draft_tokens > MAX_DRAFT_TOKENS:
        raise SpeculationError(
            f'spec.draft_tokens = {context.max_draft_tokens}: spec.decoder = "mtp" drafts 1 to {MAX_DRAFT_TOKENS} '
            f"tokens; set spec.draft_tokens to {MAX_DRAFT_TOKENS} or less, 0 to switch speculation off"
        )
    head = model.draft_head if model.has_mtp_head else None
    if head is None:
        raise SpeculationError(
            f'spec.decoder = "mtp": the loaded model (family "{model.family}") has no multi-token-prediction head '
            f"(no mtp.* weights). Families with one: {', '.join(FAMILIES_WITH_HEAD)}. "
            'Set spec.decoder = "ngram" (drafts from the text itself, works with every model) or "off".'
        )
    return MtpDecoder(head, max_tokens=min(config.num_draft_tokens, context.max_draft_tokens))
