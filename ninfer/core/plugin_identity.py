"""Whose code an opened object is, for logs and reports. Knows nothing about how plugins are found."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginIdentity:
    """One object that a plugin opened.

    Attributes:
        family: "tier", "matcher", "policy" or "decoder".
        name: of the instance in the configuration: name of the tier, else the kind.
        plugin: name of the plugin.
        distribution: distribution and version that ship it.
    """

    family: str
    name: str
    plugin: str = ""
    distribution: str = ""

    @property
    def text(self) -> str:
        """The identity in short, for people."""
        origin = f" (plugin {self.plugin}, {self.distribution})" if self.plugin else ""
        return f"{self.family} {self.name}{origin}"
