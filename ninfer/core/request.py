"""What is asked of the engine and what it answers, as data. Knows nothing about text or HTTP."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from ninfer.core.retention import Retention
from ninfer.core.sampling import SamplingParams


class FinishReason(StrEnum):
    """Why a request ended."""

    STOP = "stop"
    """A stop token was sampled, or the caller found a stop string."""
    LENGTH = "length"
    ABORTED = "aborted"
    TIMEOUT = "timeout"
    """It waited longer than allowed before it could start."""
    ERROR = "error"


class ReusePath(StrEnum):
    """Where a request resumed (names that public tools read)."""

    ROOT = "root"
    PRIVATE_ENDPOINT = "private_endpoint"
    """The end of an earlier request of which this prompt is a continuation."""
    PRIVATE_TURN_CLOSURE = "private_turn_closure"
    """A point inside an earlier prompt (turn border, marker, tail of the prompt)."""
    PRIVATE_LONG_ANCHOR = "private_long_anchor"
    """A rung of the geometric ladder."""
    SHARED_STABLE_PREFIX = "shared_stable_prefix"
    """A prefix that several sessions use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheParams:
    """How a request uses the context cache.

    Attributes:
        is_enabled: False neither reads nor leaves anything.
        salt: tenant namespace; contexts of different salts never meet.
        session_key: hint which session this is; never proves a hit.
        marker_tokens: prompt positions worth a checkpoint (turn borders, client markers), ascending.
        retention: how long the context is to stay reusable, None for the configured default.
    """

    is_enabled: bool = True
    salt: str = ""
    session_key: str = ""
    marker_tokens: tuple[int, ...] = ()
    retention: Retention | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """One sequence to generate.

    Attributes:
        request_id: unique among live requests.
        prompt_token_ids: at least one token.
        max_tokens: completion tokens at most, >= 0; 0 computes the prompt only.
        sampling: how tokens are chosen.
        stop_token_ids: sampling one of them ends the request; it is reported.
        cache: use of the context cache.
        fork_of: id of a request with the same prompt submitted before; this one starts when that one's
            prompt is computed (the choices of n > 1).
        queue_timeout_s: seconds it may wait before it starts, None for the configured bound.
        encoded_prompt: the prompt as the context store reads it (`cache.identity.encode_tokens`), if whoever submits made
            it: on a thread of its own, and once however often the request is looked at. Empty if not.
    """

    request_id: str
    prompt_token_ids: Sequence[int]
    max_tokens: int
    sampling: SamplingParams = field(default_factory=SamplingParams)
    stop_token_ids: frozenset[int] = frozenset()
    cache: CacheParams = field(default_factory=CacheParams)
    fork_of: str | None = None
    queue_timeout_s: float | None = None
    encoded_prompt: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLogprob:
    """Log-probability (natural log) of a token and, most likely first, of alternatives."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestStats:
    """What a request cost; complete when it ends.

    Attributes:
        num_prompt_tokens: prompt length.
        num_cached_tokens: prompt tokens taken from the cache.
        num_completion_tokens: tokens sampled.
        queue_s: from submission to admission, transfers included.
        prefill_s: from start to the first token.
        decode_s: from the first token to the end.
        restored_bytes: read from each lower tier, by tier name.
        restored_tokens: taken from each lower tier, by tier name.
        retention_s: how long the context stays protected from its end on, 0.0 for not at all.
        retention_expires_unix_s: when that ends, None for not at all.
        reuse_path: where it resumed.
        drafted_at: speculative tokens verified, by their place in the draft.
        accepted_at: of those, accepted.
    """

    num_prompt_tokens: int
    num_cached_tokens: int = 0
    num_completion_tokens: int = 0
    queue_s: float = 0.0
    prefill_s: float = 0.0
    decode_s: float = 0.0
    restored_bytes: Mapping[str, int] = field(default_factory=dict)
    restored_tokens: Mapping[str, int] = field(default_factory=dict)
    retention_s: float = 0.0
    retention_expires_unix_s: float | None = None
    reuse_path: ReusePath = ReusePath.ROOT
    drafted_at: tuple[int, ...] = ()
    accepted_at: tuple[int, ...] = ()

    @property
    def num_drafted(self) -> int:
        """Speculative tokens verified."""
        return sum(self.drafted_at)

    @property
    def num_accepted(self) -> int:
        """Speculative tokens accepted."""
        return sum(self.accepted_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedEvent:
    """The request left the queue; its prompt is being computed."""

    request_id: str
    num_cached_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TokensEvent:
    """New tokens of a request, one or (with speculation) several.

    Attributes:
        request_id: whose.
        token_ids: in order; a stop token is included.
        logprobs: one per token if asked for, else empty.
    """

    request_id: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedEvent:
    """The last event of a request.

    Attributes:
        request_id: whose.
        reason: why it ended.
        stats: what it cost.
        message: for people, with reason ERROR or TIMEOUT.
    """

    request_id: str
    reason: FinishReason
    stats: RequestStats
    message: str = ""


RequestEvent = StartedEvent | TokensEvent | FinishedEvent
