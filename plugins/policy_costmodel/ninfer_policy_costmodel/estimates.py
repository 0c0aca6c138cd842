"""What transfers and prefill cost on this machine with this model. Knows nothing about values or plans."""

from collections.abc import Sequence
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ninfer.api import TierFacts

DEFAULT_PREFILL_TOKENS_PER_S: Final = 4000.0
_DEFAULT_BYTES_PER_S: Final = (400e9, 12e9, 1.5e9)
"""Device, host memory, anything slower; used until something is measured."""
_DEFAULT_LATENCY_S: Final = (0.0, 100e-6, 1e-3)
_LARGE_BYTES: Final = 1 << 20
"""Transfers from here on say something about bandwidth, smaller ones about latency."""
_LEAST_SECONDS_PER_TOKEN: Final = 1e-9
"""Anything faster is a broken clock, not a measurement."""
_LEAST_SECONDS_PER_BYTE: Final = 1e-15
_MOST_SECONDS: Final = 3_600.0
"""Per token or as a latency; anything slower, and anything slower than a byte per second, was never measured."""
_FORGET: Final = 0.98
"""Weight that earlier prefill chunks keep with every new one."""


class LinkSpeed(BaseModel):
    """Cost of moving bytes from one tier to another: latency_s + num_bytes x seconds_per_byte."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    latency_s: float = Field(ge=0)
    seconds_per_byte: float = Field(gt=0)

    def seconds(self, num_bytes: int) -> float:
        """Return the time of one batch."""
        return self.latency_s + num_bytes * self.seconds_per_byte if num_bytes else 0.0

    def corrected(self, num_bytes: int, seconds: float, rate: float) -> "LinkSpeed":
        """Return the speed after one more measurement."""
        if num_bytes >= _LARGE_BYTES:
            per_byte = max(seconds - self.latency_s, seconds / 2) / num_bytes
            mixed = self.seconds_per_byte + rate * (per_byte - self.seconds_per_byte)
            return LinkSpeed(latency_s=self.latency_s, seconds_per_byte=mixed)
        latency = max(seconds - num_bytes * self.seconds_per_byte, 0.0)
        mixed = self.latency_s + rate * (latency - self.latency_s)
        return LinkSpeed(latency_s=mixed, seconds_per_byte=self.seconds_per_byte)


class PrefillSpeed(BaseModel):
    """Cost of prefill: token p takes seconds_per_token + p x seconds_per_token_squared."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    seconds_per_token: float = Field(gt=0)
    seconds_per_token_squared: float = Field(ge=0)

    def seconds(self, start_tokens: int, num_tokens: int) -> float:
        """Return the time to prefill tokens [start, start + num)."""
        positions = num_tokens * start_tokens + num_tokens * (num_tokens - 1) / 2
        return num_tokens * self.seconds_per_token + positions * self.seconds_per_token_squared


class Calibration(BaseModel):
    """What is kept between runs. Links are named by the two tiers, "host>device"."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: int = 1
    links: dict[str, LinkSpeed] = {}
    prefill: PrefillSpeed | None = None


def parse_calibration(text: str) -> Calibration:
    """Read what `Calibration.model_dump_json` wrote; anything else gives an empty calibration."""
    try:
        found = Calibration.model_validate_json(text)
    except ValidationError:
        return Calibration()
    return found if found.version == 1 and _is_plausible(found) else Calibration()


def _is_plausible(found: Calibration) -> bool:
    """Tell whether some machine could have measured this; a damaged file may hold any number."""
    links = found.links.values()
    are_links_fine = all(
        link.latency_s <= _MOST_SECONDS and _LEAST_SECONDS_PER_BYTE <= link.seconds_per_byte <= 1
        for link in links
    )
    prefill = found.prefill
    return are_links_fine and (
        prefill is None
        or (
            _LEAST_SECONDS_PER_TOKEN <= prefill.seconds_per_token <= _MOST_SECONDS
            and prefill.seconds_per_token_squared <= 1
        )
    )


class PrefillFit:
    """Least squares for the two prefill costs, relative errors, older chunks forgotten little by little.

    Starts with two pseudo-measurements of the first guess, so that one chunk cannot turn it over.
    """

    def __init__(self, guess: PrefillSpeed) -> None:
        """Begin with a guess."""
        self.speed = guess
        self._moments = [0.0] * 5
        for start in (0, 32_768):
            self._add(start, 512, guess.seconds(start, 512))

    def observe(self, start_tokens: int, num_tokens: int, seconds: float) -> None:
        """Learn from one chunk."""
        if num_tokens <= 0 or seconds < num_tokens * _LEAST_SECONDS_PER_TOKEN:
            return
        self._moments = [moment * _FORGET for moment in self._moments]
        self._add(start_tokens, num_tokens, seconds)
        linear2, cross, square2, linear, square = self._moments
        determinant = linear2 * square2 - cross * cross
        per_token, per_square = linear / linear2, 0.0
        if determinant > 1e-9 * linear2 * square2:
            solved = (
                (square2 * linear - cross * square) / determinant,
                (linear2 * square - cross * linear) / determinant,
            )
            if solved[0] > 0 and solved[1] >= 0:
                per_token, per_square = solved
        self.speed = PrefillSpeed(seconds_per_token=per_token, seconds_per_token_squared=per_square)

    def _add(self, start: int, count: int, seconds: float) -> None:
        x = count / seconds
        y = (count * start + count * (count - 1) / 2) / seconds
        for index, moment in enumerate((x * x, x * y, y * y, x, y)):
            self._moments[index] += moment


class Estimates:
    """Seconds for transfers and prefill.

    Order of trust: what was observed in this run, what the core measured at start, what an earlier run saved,
    defaults.
    """

    def __init__(
        self,
        tiers: Sequence[TierFacts],
        *,
        prefill: PrefillSpeed | None,
        saved: Calibration,
        learning_rate: float,
    ) -> None:
        """Begin with what is known.

        Args:
            tiers: all tiers, fastest first.
            prefill: measured by the core or configured, None if unknown.
            saved: from an earlier run.
            learning_rate: weight of a new transfer.
        """
        self._tiers = tiers
        self._rate = learning_rate
        default = PrefillSpeed(
            seconds_per_token=1 / DEFAULT_PREFILL_TOKENS_PER_S, seconds_per_token_squared=0.0
        )
        self._prefill = PrefillFit(prefill or saved.prefill or default)
        self._per_token_s = self._per_token_squared_s = 0.0
        self._take_speed()
        self._links: dict[tuple[int, int], LinkSpeed] = {}
        self._observed: set[tuple[int, int]] = set()
        for source in range(len(tiers)):
            for target in range(len(tiers)):
                if source != target:
                    self._links[source, target] = self._first_guess(source, target, saved)
        self._per_byte_s = {pair: link.seconds_per_byte for pair, link in self._links.items()}

    @property
    def grows_with_position(self) -> bool:
        """Tell whether a token costs more the deeper it lies."""
        return self._per_token_squared_s > 0.0

    @property
    def token_s(self) -> float:
        """Return the time of one token at the start of a prompt."""
        return self._per_token_s

    def prefill_s(self, start_tokens: int, num_tokens: int) -> float:
        """Return the time to prefill tokens [start, start + num)."""
        start_tokens = max(start_tokens, 0)
        positions = num_tokens * start_tokens + num_tokens * (num_tokens - 1) / 2
        return num_tokens * self._per_token_s + positions * self._per_token_squared_s

    def transfer_s(self, source: int, target: int, num_bytes: int) -> float:
        """Return the time of one batch; nothing moves from a tier to itself."""
        link = self._links.get((source, target))
        return link.seconds(num_bytes) if link else 0.0

    def per_byte_s(self, source: int, target: int) -> float:
        """Return the time of one byte in a large batch."""
        return self._per_byte_s.get((source, target), 0.0)

    def observe_transfer(self, source: int, target: int, num_bytes: int, seconds: float) -> None:
        """Learn from one batch."""
        link = self._links.get((source, target))
        if link and num_bytes > 0 and seconds > 0:
            corrected = link.corrected(num_bytes, seconds, self._rate)
            self._links[source, target] = corrected
            self._per_byte_s[source, target] = corrected.seconds_per_byte
            self._observed.add((source, target))

    def observe_prefill(self, start_tokens: int, num_tokens: int, seconds: float) -> None:
        """Learn from one chunk."""
        self._prefill.observe(start_tokens, num_tokens, seconds)
        self._take_speed()

    def _take_speed(self) -> None:
        """Keep the two numbers at hand: they are read for every victim of every plan."""
        self._per_token_s = self._prefill.speed.seconds_per_token
        self._per_token_squared_s = self._prefill.speed.seconds_per_token_squared

    def calibration(self) -> Calibration:
        """Return what is worth keeping for the next run."""
        links = {self._link_name(*pair): self._links[pair] for pair in sorted(self._observed)}
        return Calibration(links=links, prefill=self._prefill.speed)

    def _link_name(self, source: int, target: int) -> str:
        return f"{self._tiers[source].tier_name}>{self._tiers[target].tier_name}"

    def _first_guess(self, source: int, target: int, saved: Calibration) -> LinkSpeed:
        read, write = self._tiers[source].read_bytes_per_s, self._tiers[target].write_bytes_per_s
        is_measured = (source == 0 or read > 0) and (target == 0 or write > 0)
        known = saved.links.get(self._link_name(source, target))
        if known and not is_measured:
            self._observed.add((source, target))
            return known
        slowest = min(
            read or _DEFAULT_BYTES_PER_S[min(source, 2)],
            write or _DEFAULT_BYTES_PER_S[min(target, 2)],
        )
        latency = (
            self._tiers[source].read_latency_s or _DEFAULT_LATENCY_S[min(max(source, target), 2)]
        )
        return LinkSpeed(latency_s=latency, seconds_per_byte=1 / slowest)
