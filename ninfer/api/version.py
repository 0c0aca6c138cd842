"""Version of the plugin contract and the rule for loading plugins. Knows nothing about packages."""

from typing import Final

API_VERSION: Final = (1, 0)
"""(major, minor) of the contract. Independent of the version of the distribution `ninfer`."""


def is_compatible(built_against: tuple[int, int]) -> bool:
    """Tell whether a plugin built against a contract version may be loaded.

    Args:
        built_against: the `NINFER_API` a plugin module declares.

    Returns:
        True for the same major version and a minor version that is not newer than ours.
    """
    major, minor = built_against
    return major == API_VERSION[0] and minor <= API_VERSION[1]
