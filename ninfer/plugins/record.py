"""What is known about each installed plugin. Knows nothing about how plugins are found."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

from ninfer.api import DecoderProvider, MatcherProvider, PolicyProvider, TierProvider

Provider = TierProvider[Any] | MatcherProvider[Any] | PolicyProvider[Any] | DecoderProvider[Any]
"""What a hook returns, one of each."""


class Family(StrEnum):
    """What a provider provides. A kind is unique within its family."""

    TIER = "tier"
    MATCHER = "matcher"
    POLICY = "policy"
    DECODER = "decoder"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """A hook of the contract, and what its implementations return.

    Attributes:
        family: the family that it fills.
        provider: class of every item returned.
    """

    family: Family
    provider: type[Provider]


HOOKS: Final[Mapping[str, Hook]] = MappingProxyType({
    "ninfer_storage_tiers": Hook(family=Family.TIER, provider=TierProvider),
    "ninfer_checkpoint_matchers": Hook(family=Family.MATCHER, provider=MatcherProvider),
    "ninfer_placement_policies": Hook(family=Family.POLICY, provider=PolicyProvider),
    "ninfer_speculative_decoders": Hook(family=Family.DECODER, provider=DecoderProvider),
})
"""All hooks of API 1.0, by name."""


class Phase(StrEnum):
    """Where the life of a plugin went wrong, in order."""

    DISCOVER = "discover"
    IMPORT = "import"
    API = "api"
    REGISTER = "register"
    RESULT = "result"
    CONFIG = "config"
    OPEN = "open"


class PluginState(StrEnum):
    """Whether a plugin can be used."""

    LOADED = "loaded"
    BROKEN = "broken"
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginProblem:
    """One thing that is wrong with a plugin.

    Attributes:
        phase: when it was noticed.
        message: one sentence for people.
        location: file and line of the function at fault, empty if there is none.
        traceback: text of the traceback, empty if no exception was raised.
    """

    phase: Phase
    message: str
    location: str = ""
    traceback: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One kind that a plugin offers."""

    family: Family
    provider: Provider

    @property
    def kind(self) -> str:
        """The name used in `ninfer.toml`."""
        return self.provider.kind

    @property
    def label(self) -> str:
        """The offer in short, for example "tier:disk"."""
        return f"{self.family}:{self.kind}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginRecord:
    """One entry point of the group `ninfer`, whatever became of it.

    Attributes:
        name: name of the entry point, which is the name of the plugin.
        distribution: name of the installed distribution.
        version: its version.
        entry_point: module that the entry point names.
        state: whether it can be used.
        api: version of the contract it was built against, None if it was not read.
        offers: kinds it offers; known also for plugins that broke afterwards.
        problems: what is wrong; empty unless broken.
    """

    name: str
    distribution: str
    version: str
    entry_point: str
    state: PluginState = PluginState.LOADED
    api: tuple[int, int] | None = None
    offers: tuple[Offer, ...] = ()
    problems: tuple[PluginProblem, ...] = ()

    @property
    def is_broken(self) -> bool:
        """True if it cannot be used although it was not disabled."""
        return self.state is PluginState.BROKEN

    @property
    def origin(self) -> str:
        """Distribution and version."""
        return f"{self.distribution} {self.version}".rstrip()

    def broken_by(self, *problems: PluginProblem) -> "PluginRecord":
        """Return the record with more problems; without any, the record itself."""
        if not problems:
            return self
        return replace(self, state=PluginState.BROKEN, problems=(*self.problems, *problems))
