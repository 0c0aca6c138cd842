"""What clients say about the context cache; the many spellings of "keep my context" become one wish.

Knows nothing about how contexts are kept.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from ninfer.core.errors import RequestError
from ninfer.core.retention import Retention, RetentionMode
from ninfer.server.body import RequestBody

MAX_SECONDS: Final = 366 * 86400
"""Longest retention that a request may name; the configuration may grant less."""

TTL_SECONDS: Final[Mapping[str, int]] = {
    "5m": 300,
    "30m": 1800,
    "1h": 3600,
    "12h": 43200,
    "24h": 86400,
}
"""Lifetimes as hosted services spell them."""


class RetentionField(RequestBody):
    """`retention`, our own spelling."""

    seconds: Annotated[float, Field(gt=0, le=MAX_SECONDS)]
    mode: Literal["soft", "strict"] = "soft"


class PromptCacheOptions(RequestBody):
    """`prompt_cache_options`."""

    mode: Literal["implicit"] | None = None
    ttl: str | None = None


class CacheFields(RequestBody):
    """Fields about the context cache. Absent, null, 0 and "in_memory" ask for no retention."""

    cache: bool | None = None
    cache_prompt: bool | None = None
    cache_salt: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    prompt_cache_key: Annotated[str, Field(max_length=1024)] | None = None
    kv_cache_ttl_seconds: Annotated[int, Field(ge=0, le=MAX_SECONDS)] | None = None
    prompt_cache_retention: Literal["in_memory", "in-memory", "24h"] | None = None
    prompt_cache_options: PromptCacheOptions | None = None
    retention: RetentionField | None = None

    @property
    def uses_cache(self) -> bool:
        """False if the request neither reads nor leaves anything in the context cache."""
        return self.cache is not False and self.cache_prompt is not False

    def retention_wish(self, marked_seconds: int = 0) -> Retention | None:
        """Return what the request asks for, None for nothing.

        Args:
            marked_seconds: longest lifetime of the cache marks on its messages; fields outrank it.

        Raises:
            RequestError: a lifetime is unknown, or fields contradict each other.
        """
        wishes = self._named_wishes()
        if wishes and not self.uses_cache:
            raise RequestError(
                f"'{wishes[0][0]}' asks to keep a context that 'cache': false leaves nothing of.",
                param=wishes[0][0],
            )
        for name, retention in wishes[1:]:
            first_name, first = wishes[0]
            if retention != first:
                raise RequestError(
                    f"'{name}' ({retention.seconds:g} s) contradicts '{first_name}' ({first.seconds:g} s); "
                    "give one of them.",
                    param=name,
                )
        if wishes:
            return wishes[0][1]
        return Retention(seconds=marked_seconds) if marked_seconds else None

    def _named_wishes(self) -> list[tuple[str, Retention]]:
        wishes: list[tuple[str, Retention]] = []
        if self.retention is not None:
            mode = RetentionMode(self.retention.mode)
            wishes.append(("retention", Retention(seconds=self.retention.seconds, mode=mode)))
        if self.kv_cache_ttl_seconds:
            wishes.append(("kv_cache_ttl_seconds", Retention(seconds=self.kv_cache_ttl_seconds)))
        options = self.prompt_cache_options
        ttl = options.ttl if options is not None else None
        if ttl is not None and self.prompt_cache_retention is not None:
            raise RequestError(
                "'prompt_cache_retention' and 'prompt_cache_options.ttl' exclude each other.",
                param="prompt_cache_options.ttl",
            )
        if self.prompt_cache_retention == "24h":
            wishes.append(("prompt_cache_retention", Retention(seconds=TTL_SECONDS["24h"])))
        if ttl is not None:
            seconds = _ttl_seconds(ttl, "prompt_cache_options.ttl")
            wishes.append(("prompt_cache_options.ttl", Retention(seconds=seconds)))
        return wishes


def mark_seconds(mark: Mapping[str, Any], param: str) -> int:
    """Return the lifetime that a cache mark asks for, 0 for none.

    Args:
        mark: `cache_control` or `prompt_cache_breakpoint` of a message or part.
        param: its field, for errors.

    Raises:
        RequestError: the lifetime is unknown.
    """
    ttl = mark.get("ttl")
    if ttl is None:
        return TTL_SECONDS["5m"] if mark.get("type") == "ephemeral" else 0
    return _ttl_seconds(ttl, f"{param}.ttl")


def _ttl_seconds(ttl: object, param: str) -> int:
    if not isinstance(ttl, str):
        raise RequestError(f"'{param}' must be a string.", param=param)
    seconds = TTL_SECONDS.get(ttl)
    if seconds is None:
        raise RequestError(
            f"'{param}' must be one of {', '.join(TTL_SECONDS)}, not {ttl[:40]!r}.", param=param
        )
    return seconds
