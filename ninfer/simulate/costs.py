"""What prefill and copies cost in a simulation. Knows nothing about caches."""

from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ninfer.api import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One way between two tiers: a batch takes latency_s + bytes x seconds_per_byte."""

    latency_s: float
    seconds_per_byte: float

    def seconds(self, num_bytes: int) -> float:
        """Return the time of one batch."""
        return self.latency_s + num_bytes * self.seconds_per_byte


def _default_links() -> dict[str, Link]:
    host = Link(latency_s=100e-6, seconds_per_byte=1 / 12e9)
    disk = Link(latency_s=1e-3, seconds_per_byte=1 / 3e9)
    ways = {"host>device": host, "device>host": host, "disk>device": disk, "device>disk": disk}
    return {**ways, "disk>host": disk, "host>disk": disk}


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Costs of one model on one machine.

    Attributes:
        bytes_per_token: KV of one token.
        seconds_per_token: prefill of a token at the start of a prompt.
        seconds_per_token_squared: what each token before it adds.
        links: by "source>target".
    """

    bytes_per_token: int = 20_480
    seconds_per_token: float = 1 / 12_000
    seconds_per_token_squared: float = 0.0
    links: dict[str, Link] = field(default_factory=_default_links)

    def prefill_s(self, start_tokens: int, num_tokens: int) -> float:
        """Return the time to prefill tokens [start, start + num)."""
        positions = num_tokens * start_tokens + num_tokens * (num_tokens - 1) / 2
        return num_tokens * self.seconds_per_token + positions * self.seconds_per_token_squared

    def per_block(self, block_tokens: int, page_tokens: int) -> "Costs":
        """Return the same costs where a token of the store stands for several of the trace."""
        scale = block_tokens / page_tokens
        return replace(
            self,
            bytes_per_token=round(self.bytes_per_token * scale),
            seconds_per_token=self.seconds_per_token * scale,
            seconds_per_token_squared=self.seconds_per_token_squared * scale * scale,
        )


class _Link(BaseModel):
    model_config = ConfigDict(extra="ignore")

    latency_s: float = Field(ge=0)
    seconds_per_byte: float = Field(gt=0)


class _Prefill(BaseModel):
    model_config = ConfigDict(extra="ignore")

    seconds_per_token: float = Field(gt=0)
    seconds_per_token_squared: float = Field(default=0.0, ge=0)


class _Calibration(BaseModel):
    model_config = ConfigDict(extra="ignore")

    links: dict[str, _Link] = {}
    prefill: _Prefill | None = None


def with_calibration(costs: Costs, path: Path) -> Costs:
    """Return costs with what a server measured: the file that the policy `costmodel` keeps.

    Raises:
        ConfigError: the file cannot be read or is something else.
    """
    try:
        found = _Calibration.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"calibration {path} cannot be read: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ConfigError(f"calibration {path}: {where}: {first['msg']}") from error
    links = {
        name: Link(latency_s=link.latency_s, seconds_per_byte=link.seconds_per_byte)
        for name, link in found.links.items()
    }
    measured = replace(costs, links={**costs.links, **links})
    if found.prefill is None:
        return measured
    return replace(
        measured,
        seconds_per_token=found.prefill.seconds_per_token,
        seconds_per_token_squared=found.prefill.seconds_per_token_squared,
    )
