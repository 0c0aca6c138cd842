"""Decoders that are wrong on purpose, one per requirement. `SoundDecoder` is right; the rest derive from it."""

from collections.abc import Mapping, Sequence
from itertools import count
from types import MappingProxyType
from typing import ClassVar, Final
from weakref import WeakSet

from typing_extensions import override

from ninfer.api import (
    DecoderContext,
    Draft,
    DraftRequest,
    SpeculationError,
    SpeculativeDecoder,
    Verdict,
)


class SoundLane:
    """What followed each token last, and how many tokens were read."""

    def __init__(self) -> None:
        """Start empty."""
        self.followers: dict[int, int] = {}
        self.num_read = 0

    def read(self, token_ids: Sequence[int]) -> None:
        """Learn from the tokens that are new."""
        for at in range(max(self.num_read, 1), len(token_ids)):
            self.followers[token_ids[at - 1]] = token_ids[at]
        self.num_read = len(token_ids)


class SoundDecoder(SpeculativeDecoder):
    """Guesses that each token is followed by what followed it last. Keeps every requirement."""

    def __init__(self, context: DecoderContext) -> None:
        """Start with no lane open."""
        self.context = context
        self.lanes: dict[int, SoundLane] = {}

    @override
    def open_lane(self, lane: int) -> None:
        self.lanes[lane] = SoundLane()

    @override
    def close_lane(self, lane: int) -> None:
        self.lanes.pop(lane, None)

    @override
    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        return [Draft(lane=each.lane, token_ids=self.guesses(each)) for each in requests]

    def guesses(self, request: DraftRequest) -> tuple[int, ...]:
        """Return the guesses for one lane."""
        lane = self.lanes[request.lane]
        lane.read(request.token_ids)
        found: list[int] = []
        last = request.token_ids[-1]
        while len(found) < request.max_tokens and last in lane.followers:
            last = lane.followers[last]
            found.append(last)
        return tuple(found)


class RefusesWithoutReason(SoundDecoder):
    """Refuses every model and does not say which."""

    def __init__(self, context: DecoderContext) -> None:
        super().__init__(context)
        raise SpeculationError("this model is not supported")


class SortsByLane(SoundDecoder):
    """Answers in the order of lanes."""

    @override
    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        return sorted(super().draft(requests), key=lambda draft: draft.lane)


class DraftsOneMore(SoundDecoder):
    """Adds the token that a step gives anyway."""

    @override
    def guesses(self, request: DraftRequest) -> tuple[int, ...]:
        found = super().guesses(request)
        following = self.lanes[request.lane].followers.get(found[-1]) if found else None
        return found if following is None else (*found, following)


class CountsPastTheEnd(SoundDecoder):
    """Guesses the next id after the last of the vocabulary."""

    @override
    def guesses(self, request: DraftRequest) -> tuple[int, ...]:
        if request.token_ids[-1] == self.context.model.vocab_size - 1:
            return (request.token_ids[-1] + 1,)
        return super().guesses(request)


class NeedsARequest(SoundDecoder):
    """Looks at the first request to see how many tokens are wanted."""

    @override
    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        assert requests[0].max_tokens  # noqa: S101 - the mistake
        return super().draft(requests)


class SharesLanes(SoundDecoder):
    """Keeps one table for all lanes that are open together."""

    @override
    def open_lane(self, lane: int) -> None:
        super().open_lane(lane)
        for other in self.lanes.values():
            self.lanes[lane].followers = other.followers
            break


class EndsTheText(SoundDecoder):
    """Marks the end of the tokens that it was lent."""

    @override
    def guesses(self, request: DraftRequest) -> tuple[int, ...]:
        found = super().guesses(request)
        if isinstance(request.token_ids, list):
            request.token_ids.append(0)
        return found


class KeepsRequests(SoundDecoder):
    """Keeps the last requests until the next ones come."""

    @override
    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        self._last = requests
        return super().draft(requests)


class TakesTurns(SoundDecoder):
    """Every second instance guesses one token only."""

    _numbers: ClassVar["count[int]"] = count()

    def __init__(self, context: DecoderContext) -> None:
        super().__init__(context)
        self._length = 1 + next(self._numbers) % 2

    @override
    def guesses(self, request: DraftRequest) -> tuple[int, ...]:
        return super().guesses(request)[: self._length]


class KeepsLanesOpen(SoundDecoder):
    """Opens a lane only once, and never forgets it."""

    @override
    def open_lane(self, lane: int) -> None:
        self.lanes.setdefault(lane, SoundLane()).num_read = 0

    @override
    def close_lane(self, lane: int) -> None:
        self.lanes[lane].num_read = 0


class FilesClosedLanes(SoundDecoder):
    """Puts the texts of closed lanes aside."""

    def __init__(self, context: DecoderContext) -> None:
        super().__init__(context)
        self._texts: dict[int, tuple[int, ...]] = {}
        self._closed: list[tuple[int, ...]] = []

    @override
    def guesses(self, request: DraftRequest) -> tuple[int, ...]:
        self._texts[request.lane] = tuple(request.token_ids)
        return super().guesses(request)

    @override
    def close_lane(self, lane: int) -> None:
        super().close_lane(lane)
        self._closed.append(self._texts.pop(lane, ()))


class OneLaneTooFew(SoundDecoder):
    """Has room for one lane less than there are."""

    @override
    def open_lane(self, lane: int) -> None:
        if lane >= self.context.max_lanes - 1:
            raise IndexError(lane)
        super().open_lane(lane)


class NudgesTheModel(SoundDecoder):
    """Changes the model's scores a little, so that ties fall the other way."""

    @override
    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        bias = self.context.model.module.bias
        bias[:] = [token_id * 1e-9 for token_id in range(len(bias))]
        return super().draft(requests)


class AdvancesByGuesses(SoundDecoder):
    """Takes its guesses for read, whether they are accepted or not."""

    @override
    def guesses(self, request: DraftRequest) -> tuple[int, ...]:
        found = super().guesses(request)
        self.lanes[request.lane].num_read += len(found)
        return found


class SharpensTheModel(SoundDecoder):
    """Makes the model surer of what is likely anyway."""

    @override
    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        self.context.model.module.scale = 2.0
        return super().draft(requests)


class JudgesOpenLanesOnly(SoundDecoder):
    """Expects that a lane is still open when its verdict comes."""

    @override
    def verified(self, verdicts: Sequence[Verdict]) -> None:
        for verdict in verdicts:
            self.lanes[verdict.lane].num_read += 0


class GivesUp(SoundDecoder):
    """Halves its hope with every rejection, and divides by it."""

    def __init__(self, context: DecoderContext) -> None:
        super().__init__(context)
        self._hope = 1 << 200

    @override
    def verified(self, verdicts: Sequence[Verdict]) -> None:
        for verdict in verdicts:
            self._hope = 1 << 200 if verdict.num_accepted else self._hope // 2
            assert 1 // self._hope >= 0  # noqa: S101 - the mistake


class NeedsTwoTokens(SoundDecoder):
    """Looks at the last two tokens of every prompt."""

    @override
    def guesses(self, request: DraftRequest) -> tuple[int, ...]:
        self._pair = request.token_ids[-2], request.token_ids[-1]
        return super().guesses(request)


class ReadsAllAgain(SoundDecoder):
    """Reads the whole context for every guess."""

    @override
    def guesses(self, request: DraftRequest) -> tuple[int, ...]:
        self.lanes[request.lane] = SoundLane()
        return super().guesses(request)


class ClosesAll(SoundDecoder):
    """Keeps its only resource in the class, so the first close takes it from all."""

    _open: ClassVar[WeakSet["ClosesAll"]] = WeakSet()

    def __init__(self, context: DecoderContext) -> None:
        super().__init__(context)
        self._is_closed = False
        self._open.add(self)

    @override
    def draft(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        if self._is_closed:
            raise RuntimeError("closed")
        return super().draft(requests)

    @override
    def close(self) -> None:
        for each in self._open:
            each._is_closed = True  # noqa: SLF001 - the mistake


DECODER_MUTANTS: Final[Mapping[str, type[SoundDecoder]]] = MappingProxyType({
    "DECODER-01": RefusesWithoutReason,
    "DECODER-02": SortsByLane,
    "DECODER-03": DraftsOneMore,
    "DECODER-04": CountsPastTheEnd,
    "DECODER-05": NeedsARequest,
    "DECODER-06": SharesLanes,
    "DECODER-07": EndsTheText,
    "DECODER-08": KeepsRequests,
    "DECODER-09": TakesTurns,
    "DECODER-10": KeepsLanesOpen,
    "DECODER-11": FilesClosedLanes,
    "DECODER-12": OneLaneTooFew,
    "DECODER-13": NudgesTheModel,
    "DECODER-14": AdvancesByGuesses,
    "DECODER-15": SharpensTheModel,
    "DECODER-16": JudgesOpenLanesOnly,
    "DECODER-17": GivesUp,
    "DECODER-18": NeedsTwoTokens,
    "DECODER-19": ReadsAllAgain,
    "DECODER-20": ClosesAll,
})
"""Requirement -> the decoder that fails it and no other."""
