"""Matchers that are wrong on purpose, one per requirement. `SoundMatcher` is right; the rest derive from it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import ClassVar, Final
from weakref import WeakSet

from typing_extensions import override

from ninfer.api import CheckpointMatcher, Match, PrefixView, PromptFacts


class SoundMatcher(CheckpointMatcher):
    """Names the deepest point of each tier, deepest first. Keeps every requirement."""

    @override
    def candidates(self, prompt: PromptFacts, view: PrefixView) -> Sequence[Match]:
        return self.choose(view.resume_points())

    def choose(self, points: Sequence[Match]) -> list[Match]:
        """Return the sound answer."""
        deepest = {point.tier_index: point for point in points}
        return sorted(deepest.values(), key=lambda point: -point.position_tokens)[:7]


class AnswersOnce(SoundMatcher):
    """Returns an iterator, which is empty when it is read a second time."""

    @override
    def candidates(self, prompt: PromptFacts, view: PrefixView) -> Sequence[Match]:
        return iter(super().candidates(prompt, view))  # type: ignore[return-value] # the mistake


class NeedsAPoint(SoundMatcher):
    """Takes the last resume point before it looks whether there is one."""

    @override
    def candidates(self, prompt: PromptFacts, view: PrefixView) -> Sequence[Match]:
        points = view.resume_points()
        last = points[-1]
        return self.choose([*points[:-1], last])


class NamesEight(SoundMatcher):
    """Counts one too far."""

    @override
    def choose(self, points: Sequence[Match]) -> list[Match]:
        deepest = {point.tier_index: point for point in points}
        return sorted(deepest.values(), key=lambda point: -point.position_tokens)[:8]


class RoundsToPages(SoundMatcher):
    """Forgets the tokens of a partial page in what it returns."""

    @override
    def choose(self, points: Sequence[Match]) -> list[Match]:
        return [replace(point, copied_tokens=0) for point in super().choose(points)]


class ComputesNothing(SoundMatcher):
    """Takes a prompt that is known but for its last token as known whole."""

    @override
    def candidates(self, prompt: PromptFacts, view: PrefixView) -> Sequence[Match]:
        chosen = self.choose(view.resume_points())
        if chosen and chosen[0].position_tokens == prompt.num_tokens - 1:
            chosen[0] = replace(chosen[0], position_tokens=prompt.num_tokens)
        return chosen


class NamesTheBestTwice(SoundMatcher):
    """Adds the best point to a list that has it."""

    @override
    def choose(self, points: Sequence[Match]) -> list[Match]:
        chosen = super().choose(points)
        return [*chosen[:1], *chosen[:6]]


class WorstFirst(SoundMatcher):
    """Sorts the other way round."""

    @override
    def choose(self, points: Sequence[Match]) -> list[Match]:
        return super().choose(points)[::-1]


class DeviceOnly(SoundMatcher):
    """Drops the deepest point if a slower tier has to be read for it."""

    @override
    def choose(self, points: Sequence[Match]) -> list[Match]:
        return [point for point in super().choose(points) if point.is_device_ready]


class AnswersLessNextTime(SoundMatcher):
    """Names only the best point to every second caller."""

    def __init__(self) -> None:
        self._num_calls = 0

    @override
    def choose(self, points: Sequence[Match]) -> list[Match]:
        self._num_calls += 1
        return super().choose(points)[: 7 if self._num_calls % 2 else 1]


class SortsTheView(SoundMatcher):
    """Sorts the list that it was handed, in place."""

    @override
    def choose(self, points: Sequence[Match]) -> list[Match]:
        if isinstance(points, list):
            points.sort(key=lambda point: -point.position_tokens)
        return super().choose(sorted(points, key=lambda point: point.position_tokens))


class KeepsSessions(SoundMatcher):
    """Remembers every session for ever."""

    def __init__(self) -> None:
        self._depths: dict[str, int] = {}

    @override
    def candidates(self, prompt: PromptFacts, view: PrefixView) -> Sequence[Match]:
        self._depths[prompt.session_key] = prompt.num_tokens
        return super().candidates(prompt, view)


class AsciiSessions(SoundMatcher):
    """Takes session keys for plain ASCII."""

    @override
    def candidates(self, prompt: PromptFacts, view: PrefixView) -> Sequence[Match]:
        prompt.session_key.encode("ascii")
        return super().candidates(prompt, view)


class ComparesAllPairs(SoundMatcher):
    """Looks for deeper points on the same tier by comparing each point with every other."""

    @override
    def choose(self, points: Sequence[Match]) -> list[Match]:
        deepest = [
            point
            for at, point in enumerate(points)
            if not any(later.tier_index == point.tier_index for later in points[:at:-1])
            or any(later.tier_index < 0 for later in points)
        ]
        return sorted(deepest, key=lambda point: -point.position_tokens)[:7]


class ClosesAll(SoundMatcher):
    """Keeps its only resource in the class, so the first close takes it from all."""

    _open: ClassVar[WeakSet["ClosesAll"]] = WeakSet()

    def __init__(self) -> None:
        self._is_closed = False
        self._open.add(self)

    @override
    def candidates(self, prompt: PromptFacts, view: PrefixView) -> Sequence[Match]:
        if self._is_closed:
            raise RuntimeError("closed")
        return super().candidates(prompt, view)

    @override
    def close(self) -> None:
        for each in self._open:
            each._is_closed = True  # noqa: SLF001 - the mistake


MATCHER_MUTANTS: Final[Mapping[str, type[SoundMatcher]]] = MappingProxyType({
    "MATCHER-01": AnswersOnce,
    "MATCHER-02": NeedsAPoint,
    "MATCHER-03": NamesEight,
    "MATCHER-04": RoundsToPages,
    "MATCHER-05": ComputesNothing,
    "MATCHER-06": NamesTheBestTwice,
    "MATCHER-07": WorstFirst,
    "MATCHER-08": DeviceOnly,
    "MATCHER-09": AnswersLessNextTime,
    "MATCHER-10": SortsTheView,
    "MATCHER-11": KeepsSessions,
    "MATCHER-12": AsciiSessions,
    "MATCHER-13": ComparesAllPairs,
    "MATCHER-14": ClosesAll,
})
"""Requirement -> the matcher that fails it and no other."""
