"""The served model as users see it. Knows nothing about how it is loaded or run."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """Name and limits of the served model.

    Attributes:
        name: what clients put into `model`.
        max_context_tokens: prompt and completion together, the smallest of model, configuration and capacity.
        vocab_size: token ids are in [0, vocab_size).
        kv_capacity_tokens: KV that fits on the device.
        created_unix: when it was loaded, whole seconds since 1970-01-01 UTC.
    """

    name: str
    max_context_tokens: int
    vocab_size: int
    kv_capacity_tokens: int
    created_unix: int
