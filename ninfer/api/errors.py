"""The error tree of ninfer. Every error has a stable code; knows nothing about HTTP."""

from typing import ClassVar


class NinferError(Exception):
    """Base of all errors that ninfer raises on purpose.

    Attributes:
        code: stable identifier, safe to match on.
        retryable: the same call may succeed later without any change by the caller.
    """

    code: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False


class ConfigError(NinferError):
    """A setting is missing, unknown, of the wrong type or out of range."""

    code = "config"


class PluginError(NinferError):
    """A configured plugin cannot be used."""

    code = "plugin"


class ModelError(NinferError):
    """A model cannot be found, read or run."""

    code = "model"


class TierError(NinferError):
    """Base of errors raised by storage tiers."""

    code = "tier"


class TierClosed(TierError):
    """An operation was called after `close`."""

    code = "tier_closed"


class Unsupported(TierError):
    """An operation was called that the tier's capabilities do not promise."""

    code = "unsupported"


class TierUnavailable(TierError):
    """The storage behind a tier cannot be opened or does not answer."""

    code = "tier_unavailable"
    retryable = True


class InvariantBroken(NinferError):
    """An equation of the context store does not hold. The engine must stop."""

    code = "invariant_broken"


class SpeculationError(NinferError):
    """A speculative decoder cannot work with the loaded model."""

    code = "speculation"
