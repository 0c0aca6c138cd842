"""What the configuration picks, and what stops the start."""

from pathlib import Path

import pytest

from ninfer.api import ConfigError, PluginError
from ninfer.config import LoadedSettings, load_settings
from ninfer.plugins import PluginCatalog, select_plugins, to_data, uses_of

CORE = """
from ninfer.api import DecoderProvider, MatcherProvider, PluginConfig, PolicyProvider, hookimpl
from pydantic import Field
NINFER_API = (1, 0)
class PolicyConfig(PluginConfig):
    alpha: float = Field(default=1.0, ge=0)
class Empty(PluginConfig):
    pass
def provider(cls, kind, config=Empty):
    return [cls(kind=kind, summary="", config=config, open=lambda context, config: object(),
                sample_config=lambda root: config())]
@hookimpl
def ninfer_placement_policies():
    return provider(PolicyProvider, "costmodel", PolicyConfig)
@hookimpl
def ninfer_checkpoint_matchers():
    return provider(MatcherProvider, "radix")
@hookimpl
def ninfer_speculative_decoders():
    return provider(DecoderProvider, "ngram")
"""


@pytest.fixture
def settings(tmp_path: Path):
    """Load settings from the text of a file called test.toml."""

    def load(text: str = "[cache]\ntiers = []") -> LoadedSettings:
        path = tmp_path / "test.toml"
        path.write_text(text)
        return load_settings(path)

    return load


@pytest.fixture
def catalog(site, install):
    """The catalog of the fixture folder, with a policy, a matcher and a decoder."""
    install("core", CORE)
    return lambda *disabled: PluginCatalog.discover(disabled, path=[str(site)])


def test_everything_named_is_picked_and_parsed(catalog, install, settings):
    install("store", kind="attic")
    selection = select_plugins(
        catalog(),
        settings("""
[[cache.tiers]]
name = "a"
kind = "attic"
capacity = 7
[[cache.tiers]]
name = "b"
kind = "attic"
capacity = 9
mode = "fast"
[cache.policy_options]
alpha = 2.5
[spec]
decoder = "ngram"
"""),
    )
    assert [(tier.name, tier.config.model_dump()) for tier in selection.tiers] == [
        ("a", {"capacity": 7, "mode": "safe"}),
        ("b", {"capacity": 9, "mode": "fast"}),
    ]
    assert selection.tiers[0].record.name == "store"
    assert selection.policy.config.model_dump() == {"alpha": 2.5}
    assert selection.matcher.name == "radix"
    assert selection.decoder.name == "ngram"
    assert not selection.is_decoder_auto
    assert selection.warnings == ()


def test_auto_decoder_may_be_absent(catalog, settings):
    selection = select_plugins(catalog(), settings())
    assert selection.decoder is None
    assert selection.is_decoder_auto


@pytest.mark.parametrize("text", ['decoder = "off"', 'decoder = "ngram"\ndraft_tokens = 0'])
def test_decoder_can_be_switched_off(catalog, settings, text):
    assert (
        select_plugins(catalog(), settings(f"[cache]\ntiers = []\n[spec]\n{text}")).decoder is None
    )


def test_nothing_of_the_cache_is_needed_with_the_cache_off(site, install, settings):
    catalog = PluginCatalog.discover(path=[str(site)])
    selection = select_plugins(catalog, settings("[cache]\nenabled = false"))
    assert (selection.tiers, selection.policy, selection.matcher) == ((), None, None)


def test_unknown_kind_lists_the_kinds_that_exist(catalog, settings):
    with pytest.raises(ConfigError) as caught:
        select_plugins(catalog(), settings('[cache]\ntiers = []\npolicy = "costmodell"'))
    text = str(caught.value)
    assert (
        "test.toml: cache.policy: there is no policy kind 'costmodell'; there is costmodel" in text
    )
    assert "did you mean costmodel?" in text


def test_known_kind_that_is_not_installed_says_what_to_install(catalog, settings):
    with pytest.raises(ConfigError, match="pip install ninfer-spec-mtp"):
        select_plugins(catalog(), settings('[cache]\ntiers = []\n[spec]\ndecoder = "mtp"'))


def test_disabled_plugin_is_named_when_its_kind_is_wanted(catalog, install, settings):
    install("storage_attic", kind="attic")
    with pytest.raises(ConfigError, match="plugin storage_attic is disabled"):
        select_plugins(
            catalog("storage_attic"), settings('[[cache.tiers]]\nname = "a"\nkind = "attic"')
        )


def test_wrong_options_name_file_place_value_and_plugin(catalog, install, settings):
    install("store", kind="attic")
    with pytest.raises(ConfigError) as caught:
        select_plugins(
            catalog(),
            settings("""
[[cache.tiers]]
name = "a"
kind = "attic"
capacity = "much"
mood = "fast"
[cache.policy_options]
alpha = -1.0
"""),
        )
    text = str(caught.value)
    assert "3 settings are wrong" in text
    assert "test.toml: cache.tiers[0].capacity = 'much': input should be a valid integer" in text
    assert (
        "cache.tiers[0].mood: unknown key; did you mean mode? (plugin store, dist-store 1.0)"
        in text
    )
    assert "cache.policy_options.alpha = -1.0: input should be greater than or equal to 0" in text


def test_missing_option_is_named(catalog, install, settings):
    install("store", kind="attic")
    with pytest.raises(ConfigError, match=r"cache\.tiers\[0\]\.capacity: is missing"):
        select_plugins(catalog(), settings('[[cache.tiers]]\nname = "a"\nkind = "attic"'))


def test_configured_broken_plugins_stop_the_start_with_one_report(catalog, install, settings):
    install("storage_s3", "import libaws", distribution="ninfer-storage-s3", version="0.4.1")
    install("bad_api", "NINFER_API = (9, 9)")
    install("storage_attic", "raise OSError('broken')")
    loaded = settings("""
[[cache.tiers]]
name = "remote"
kind = "s3"
[[cache.tiers]]
name = "up"
kind = "attic"
[[cache.tiers]]
name = "x"
kind = "nowhere"
""")
    with pytest.raises(PluginError) as caught:
        select_plugins(catalog(), loaded)
    source = loaded.config_path
    assert str(caught.value).splitlines() == [
        "cannot start, 2 configured plugins are broken",
        "  storage_attic   dist-storage-attic 1.0   (ninfer: storage_attic = toy_storage_attic)",
        "    phase    import",
        "    error    OSError: broken",
        f'    used by  {source}: cache.tiers[1] name="up" kind="attic"',
        "    try      ninfer plugins show storage_attic --traceback",
        '    or       [plugins] disabled = ["storage_attic"]',
        "  storage_s3   ninfer-storage-s3 0.4.1   (ninfer: storage_s3 = toy_storage_s3)",
        "    phase    import",
        "    error    ModuleNotFoundError: No module named 'libaws'",
        f'    used by  {source}: cache.tiers[0] name="remote" kind="s3"',
        "    try      ninfer plugins show storage_s3 --traceback",
        '    or       [plugins] disabled = ["storage_s3"]',
        "also, settings are wrong",
        f"  {source}: cache.tiers[2]: there is no tier kind 'nowhere'; there is none at all; "
        "broken plugins may offer more: bad_api, storage_attic, storage_s3",
    ]


def test_duplicate_kind_stops_the_start_when_it_is_used(catalog, install, settings):
    install("other", CORE)
    with pytest.raises(PluginError, match="2 configured plugins are broken"):
        select_plugins(catalog(), settings())


def test_unused_broken_plugin_is_one_warning_line(catalog, install, settings):
    install("bad", "import nowhere_at_all")
    (warning,) = select_plugins(catalog(), settings()).warnings
    assert warning.startswith(
        "plugin bad (dist-bad 1.0) is broken and not used: import: ModuleNotFoundError"
    )
    assert "\n" not in warning


def test_strict_makes_unused_broken_plugins_fatal(catalog, install, settings):
    install("bad", "import nowhere_at_all")
    with pytest.raises(
        PluginError, match=r"cannot start, 1 plugin is broken(.|\n)*\[plugins\] strict = true"
    ):
        select_plugins(catalog(), settings("[cache]\ntiers = []\n[plugins]\nstrict = true"))


def test_broken_auto_decoder_is_a_warning_only(catalog, install, settings):
    install("spec_mtp", "import nowhere_at_all")
    selection = select_plugins(catalog(), settings())
    assert selection.decoder is None
    assert len(selection.warnings) == 1


def test_data_says_state_problems_and_use(catalog, install, settings):
    install("bad", "import nowhere_at_all")
    install("idle", kind="attic")
    loaded = settings()
    data = {item["name"]: item for item in to_data(catalog().records, uses_of(loaded))}
    assert {name: item["state"] for name, item in data.items()} == {
        "bad": "broken",
        "core": "active",
        "idle": "unused",
    }
    assert data["bad"]["problems"][0]["phase"] == "import"
    assert data["core"]["provides"][0]["used_by"] == ['default: cache.matcher kind="radix"']


def test_plugin_validator_that_crashes_is_reported(catalog, install, settings):
    install(
        "store",
        """
        from ninfer.api import PluginConfig, TierProvider, hookimpl
        from pydantic import model_validator
        NINFER_API = (1, 0)
        class Config(PluginConfig):
            @model_validator(mode="before")
            @classmethod
            def check(cls, value):
                raise KeyError("oops")
        @hookimpl
        def ninfer_storage_tiers():
            return [TierProvider(kind="attic", summary="", config=Config, open=lambda context, config: None,
                                 sample_config=lambda root: Config())]
    """,
    )
    with pytest.raises(ConfigError, match="Config raised KeyError: 'oops'"):
        select_plugins(catalog(), settings('[[cache.tiers]]\nname = "a"\nkind = "attic"'))


def test_disabled_name_that_is_not_installed_is_a_warning(catalog, settings):
    loaded = settings("[cache]\ntiers = []\n[plugins]\ndisabled = ['nothing']")
    (warning,) = select_plugins(catalog("nothing"), loaded).warnings
    assert warning.endswith("plugins.disabled names 'nothing', which is not installed")
