"""Every way to be broken as a plugin, each with what the report must say. The sources are whole plugin modules."""

from dataclasses import dataclass
from typing import Final

from ninfer.plugins.record import Phase

HEAD: Final = """
from pathlib import Path
from ninfer.api import MatcherProvider, PluginConfig, PolicyProvider, TierProvider, hookimpl
from pydantic import Field

NINFER_API = (1, 0)

class Config(PluginConfig):
    size: int = Field(default=1, ge=1)

def tier(**changes):
    fields = dict(kind="{kind}", summary="Broken.", config=Config, open=lambda context, config: None,
                  sample_config=lambda folder: Config())
    return TierProvider(**{{**fields, **changes}})
"""


@dataclass(frozen=True)
class Broken:
    """A broken plugin. Its name ends in its kind, which is how the report finds what it would have offered.

    Attributes:
        kind: kind of tier that the configuration asks for.
        phase: where it breaks.
        message: part of the report.
        source: body of the module.
        has_head: `HEAD` comes before the body.
        has_place: the report says file and line.
        has_traceback: `ninfer plugins show --traceback` has one.
    """

    kind: str
    phase: Phase
    message: str
    source: str
    has_head: bool = True
    has_place: bool = False
    has_traceback: bool = False

    @property
    def name(self) -> str:
        return f"storage_{self.kind}"

    @property
    def text(self) -> str:
        return (HEAD.format(kind=self.kind) if self.has_head else "") + self.source


def _hook(body: str) -> str:
    return f"\n@hookimpl\ndef ninfer_storage_tiers():\n    {body}\n"


def _imports(kind: str, message: str, source: str) -> Broken:
    return Broken(kind, Phase.IMPORT, message, source, has_head=False, has_traceback=True)


def _version(kind: str, message: str, source: str) -> Broken:
    return Broken(kind, Phase.API, message, source, has_head=False)


def _registers(kind: str, message: str, source: str) -> Broken:
    return Broken(kind, Phase.REGISTER, message, f"\n{source}\n", has_place=True)


def _returns(kind: str, message: str, body: str, *, has_traceback: bool = False) -> Broken:
    return Broken(kind, Phase.RESULT, message, _hook(body), has_traceback=has_traceback)


CASES: Final = (
    _imports(
        "missing",
        "ImportError: libaws.so.1: cannot open",
        "raise ImportError('libaws.so.1: cannot open')",
    ),
    _imports("syntax", "SyntaxError: ", "def broken(:"),
    _imports("exits", "SystemExit: 3", "raise SystemExit(3)"),
    _version(
        "major",
        "built against API 2.0, another major version; this ninfer offers 1.",
        "NINFER_API = (2, 0)",
    ),
    _version(
        "minor",
        "built against API 1.99, a newer version; this ninfer offers 1.",
        "NINFER_API = (1, 99)",
    ),
    _version("undeclared", "does not declare NINFER_API = (major, minor)", "import sys"),
    _version(
        "text", "NINFER_API is '1.0', not a pair (major, minor) of integers", "NINFER_API = '1.0'"
    ),
    _registers(
        "unknown",
        "there is no hook ninfer_storage_tier; did you mean ninfer_storage_tiers?",
        "@hookimpl\ndef ninfer_storage_tier(): return []",
    ),
    _registers(
        "argument",
        "ninfer_storage_tiers asks for an argument settings that the hook does not have; it takes none",
        "@hookimpl\ndef ninfer_storage_tiers(settings): return []",
    ),
    _registers(
        "default",
        "has a default for settings; pluggy would never pass such an argument",
        "@hookimpl\ndef ninfer_storage_tiers(settings=None): return []",
    ),
    _registers(
        "wrapper",
        "ninfer_storage_tiers is a wrapper",
        "@hookimpl(wrapper=True)\ndef ninfer_storage_tiers(): return (yield)",
    ),
    _registers(
        "specname",
        "uses specname='ninfer_storage_tiers'",
        "@hookimpl(specname='ninfer_storage_tiers')\ndef tiers(): return []",
    ),
    _registers("unmarked", "is not marked with @hookimpl", "def ninfer_storage_tiers(): return []"),
    _returns(
        "nothing", "returned a value of type NoneType, not a list of TierProvider", "return None"
    ),
    _returns(
        "other",
        "returned a value of type MatcherProvider where TierProvider is wanted",
        "return [MatcherProvider(kind='m', summary='', config=Config, open=tier, sample_config=tier)]",
    ),
    _returns(
        "dict",
        "config is dict, not a subclass of ninfer.api.PluginConfig",
        "return [tier(config=dict)]",
    ),
    _returns(
        "opener",
        "open must take exactly (context, config)",
        "return [tier(open=lambda context: None)]",
    ),
    _returns(
        "sample",
        "sample_config must take exactly (folder)",
        "return [tier(sample_config=lambda: None)]",
    ),
    _returns(
        "device", "kind has a meaning of its own in ninfer.toml for a tier", "return [tier()]"
    ),
    _returns(
        "raises",
        "ninfer_storage_tiers raised OSError: no disk",
        "raise OSError('no disk')",
        has_traceback=True,
    ),
    _returns(
        "quits",
        "ninfer_storage_tiers raised SystemExit: 4",
        "raise SystemExit(4)",
        has_traceback=True,
    ),
)
"""One plugin each, all of them in the configuration."""

GOOD: Final = Broken("good", Phase.OPEN, "", _hook("return [tier()]"))
"""A plugin that loads; its `open` returns None."""

IMPOSTOR: Final = "raise AssertionError('a plugin whose name is taken must not be imported')"
