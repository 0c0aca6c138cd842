"""A failure to open says which tier, which plugin and which line of the configuration."""

import threading
from pathlib import Path

import pytest

from ninfer.api import (
    PluginConfig,
    PluginError,
    SpeculativeDecoder,
    StorageTier,
    TierCapabilities,
    TierProvider,
    TierUnavailable,
)
from ninfer.plugins import Chosen, Family, PluginRecord, Use, open_decoder, open_tier


class Config(PluginConfig):
    pass


class Panic(BaseException):
    pass


class Tier(StorageTier):
    promised: object = TierCapabilities()

    @property
    def capabilities(self):
        if isinstance(self.promised, Exception):
            raise self.promised
        return self.promised

    put = read_into = contains = delete = usage = stored_bytes = check = close = (
        lambda self, *items: None
    )


def chosen(opener) -> Chosen:
    return Chosen(
        use=Use(
            family=Family.TIER,
            kind="attic",
            instance="up",
            options={},
            key="cache.tiers[0]",
            options_key="cache.tiers[0]",
            source="ninfer.toml",
        ),
        provider=TierProvider(
            kind="attic",
            summary="",
            config=Config,
            open=opener,
            sample_config=lambda root: Config(),
        ),
        config=Config(),
        record=PluginRecord(
            name="store", distribution="acme", version="3.1", entry_point="acme.plugin"
        ),
    )


def test_good_tier_is_opened_with_context_and_config():
    seen = []
    tier = Tier()
    assert (
        open_tier(chosen(lambda context, config: seen.append((context, config)) or tier), "context")
        is tier
    )
    assert seen == [("context", Config())]


def raising(error):
    def opener(context, config):
        raise error

    return opener


def promising(promised):
    def opener(context, config):
        tier = Tier()
        tier.promised = promised
        return tier

    return opener


@pytest.mark.parametrize(
    ("opener", "message"),
    [
        (raising(OSError("no such volume")), "OSError: no such volume"),
        (
            raising(TierUnavailable("capacity is larger than the volume")),
            "capacity is larger than the volume",
        ),
        (lambda context, config: Path(), "open returned a PosixPath, not a StorageTier"),
        (lambda context, config: None, "open returned a NoneType, not a StorageTier"),
        (promising(None), "capabilities are a NoneType, not TierCapabilities"),
        (promising(KeyError("x")), "capabilities raised KeyError: 'x'"),
        (raising(Panic("out of bounds")), "Panic: out of bounds"),
        (
            promising(TierCapabilities(durable="yes", shared=None)),
            "capabilities: durable, shared must be True or False",
        ),
    ],
)
def test_failure_names_tier_kind_plugin_and_place(opener, message):
    with pytest.raises(PluginError) as caught:
        open_tier(chosen(opener), None)
    text = str(caught.value)
    assert message.replace("PosixPath", type(Path()).__name__) in text
    assert "tier 'up' of kind 'attic' does not open" in text
    assert "store   acme 3.1   (ninfer: store = acme.plugin)" in text
    assert 'used by  ninfer.toml: cache.tiers[0] name="up" kind="attic"' in text


def test_a_tier_that_takes_long_to_open_is_named_meanwhile(monkeypatch):
    monkeypatch.setattr("ninfer.plugins.opening.SLOW_OPEN_S", 0.01)
    told = threading.Event()

    class Log:
        def warning(self, event, **fields):
            lines.append((event, fields["plugin"], fields["distribution"], fields["name"]))
            told.set()

    lines = []
    monkeypatch.setattr("ninfer.plugins.opening._log", Log())

    def slow(context, config):
        assert told.wait(60)
        return Tier()

    open_tier(chosen(slow), None)
    assert lines == [("plugin_still_opening", "store", "acme 3.1", "up")]


class Decoder(SpeculativeDecoder):
    open_lane = close_lane = draft = lambda self, *items: []


@pytest.mark.parametrize(
    ("wants", "message"),
    [
        (property(lambda self: {}["x"]), "uses_hidden_states raised KeyError: 'x'"),
        ("yes", "uses_hidden_states is a str, not True or False"),
    ],
)
def test_a_decoder_that_does_not_say_what_it_needs_is_not_opened(wants, message):
    decoder = type("Strange", (Decoder,), {"uses_hidden_states": wants})
    with pytest.raises(PluginError, match=message):
        open_decoder(chosen(lambda context, config: decoder()), None)
