"""Precedence, origins, and mistakes of settings."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from ninfer.api import ConfigError
from ninfer.config import Settings, TierEntry, find_config, load_settings, process_settings
from ninfer.config.cache_dir import user_cache_dir
from ninfer.config.kv_capacity import KvCapacity


@pytest.fixture
def file(tmp_path: Path):
    """Write ninfer.toml and return its path."""

    def write(text: str) -> Path:
        path = tmp_path / "ninfer.toml"
        path.write_text(text)
        return path

    return write


def problems_of(**kwargs) -> list[str]:
    path = kwargs.pop("config_path", None)
    with pytest.raises(ConfigError) as caught:
        load_settings(path, **kwargs)
    head, *lines = str(caught.value).splitlines()
    assert head == ("1 setting is wrong" if len(lines) == 1 else f"{len(lines)} settings are wrong")
    return [line.strip() for line in lines]


def test_defaults_are_those_of_the_models():
    loaded = load_settings()
    assert loaded.settings == Settings()
    assert set(loaded.sources.values()) == {"default"}
    assert loaded.config_path is None


def test_settings_ignore_the_environment_of_the_process(monkeypatch):
    monkeypatch.setenv("NINFER_SERVER__PORT", "9999")
    monkeypatch.setenv("MODEL", "other")
    assert Settings().server.port == 8000
    assert load_settings().settings.server.port == 8000


def test_flags_win_over_environment_over_file_over_default(file):
    path = file("[server]\nport = 1\nhost = 'file'\nserved_name = 'file'\n")
    environ = {"NINFER_SERVER__PORT": "2", "NINFER_SERVER__HOST": "environment", "PATH": "/bin"}
    loaded = load_settings(path, flags={"server.port": 3, "model.name": None}, environ=environ)
    server = loaded.settings.server
    assert (server.port, server.host, server.served_name) == (3, "environment", "file")
    assert [
        loaded.source_of(f"server.{key}") for key in ("port", "host", "served_name", "max_body")
    ] == [
        "--port",
        "NINFER_SERVER__HOST",
        str(path),
        "default",
    ]


def test_set_wins_over_flags():
    loaded = load_settings(flags={"server.port": 3}, sets=["server.port=4"])
    assert loaded.settings.server.port == 4
    assert loaded.source_of("server.port") == "--set server.port"


def test_settings_are_frozen():
    settings = Settings()
    with pytest.raises(ValidationError):
        settings.server = settings.server
    with pytest.raises(ValidationError):
        settings.server.port = 1


def test_units_are_understood_everywhere(file):
    path = file("[engine]\nkv_capacity = '8GiB'\nqueue_timeout = '5m'\n[server]\nmax_body = 1024\n")
    settings = load_settings(path, environ={"NINFER_CACHE__TRANSFER_DEADLINE": "250ms"}).settings
    assert settings.engine.kv_capacity == KvCapacity(num_bytes=8 * 1024**3)
    assert settings.engine.queue_timeout == 300.0
    assert settings.server.max_body == 1024
    assert settings.cache.transfer_deadline == 0.25


def test_tiers_keep_their_order_and_their_options(file):
    path = file("""
[[cache.tiers]]
name = "ram"
kind = "host"
capacity = "64GiB"
[[cache.tiers]]
name = "nvme"
kind = "disk"
path = "/data"
deep = { a = 1 }
""")
    tiers = load_settings(path).settings.cache.tiers
    assert tiers == (
        TierEntry(name="ram", kind="host", options={"capacity": "64GiB"}),
        TierEntry(name="nvme", kind="disk", options={"path": "/data", "deep": {"a": 1}}),
    )
    assert tiers[1].model_dump() == {
        "name": "nvme",
        "kind": "disk",
        "path": "/data",
        "deep": {"a": 1},
    }


def test_default_tiers_are_host_and_disk():
    assert [(tier.name, tier.kind) for tier in Settings().cache.tiers] == [
        ("host", "host"),
        ("disk", "disk"),
    ]


def test_no_tiers_can_be_wanted(file):
    assert load_settings(file("[cache]\ntiers = []")).settings.cache.tiers == ()


def test_source_of_something_inside_a_setting_is_that_of_the_setting(file):
    path = file('[[cache.tiers]]\nname = "a"\nkind = "b"\n[cache.policy_options]\nx = 1')
    loaded = load_settings(path, sets=["cache.policy_options.y=[1, 2]"])
    assert loaded.source_of("cache.tiers[0].capacity") == str(path)
    assert loaded.source_of("cache.policy_options.x") == str(path)
    assert loaded.source_of("cache.policy_options.y[1]") == "--set cache.policy_options.y"
    assert loaded.source_of("cache.policy_options.z") == "default"
    assert loaded.settings.cache.policy_options == {"x": 1, "y": [1, 2]}


@pytest.mark.parametrize(
    ("text", "keys"),
    [("a", ("a",)), ("a, b", ("a", "b")), ('["a,b", "c"]', ("a,b", "c")), ("", ())],
)
def test_lists_from_the_environment_are_toml_or_comma_separated(text, keys):
    assert load_settings(environ={"NINFER_SERVER__API_KEYS": text}).settings.server.api_keys == keys


@pytest.mark.parametrize(
    ("text", "value"), [("3", 3), ("true", True), ("fast", "fast"), ('"3"', "3"), ("/a/b", "/a/b")]
)
def test_options_from_the_environment_are_toml_or_text(text, value):
    options = load_settings(environ={"NINFER_SPEC__OPTIONS__DEPTH": text}).settings.spec.options
    assert options == {"depth": value}


def test_tables_can_be_set_from_the_environment():
    environ = {"NINFER_CACHE__TIERS": '[{name = "ram", kind = "host", capacity = "1GiB"}]'}
    (tier,) = load_settings(environ=environ).settings.cache.tiers
    assert (tier.name, tier.options) == ("ram", {"capacity": "1GiB"})


def test_all_mistakes_of_all_sources_are_reported_at_once(file):
    path = file("""
[engine]
max_concurency = 2
max_queue = "many"
[cach]
dir = "/x"
[nonsense]
a = 1
[servers]
b = 1
[log]
level = "loud"
""")
    lines = problems_of(
        config_path=path,
        sets=["server.port=http", "model.colour=red"],
        environ={"NINFER_MODEL__NAM": "x", "NINFER_FOO": "1", "NINFER_ENGINE__KV_CAPACITY": "8GB"},
    )
    assert lines == [
        f"{path}: unknown setting engine.max_concurency; did you mean engine.max_concurrency?",
        f"{path}: unknown setting cach.dir; did you mean cache.dir?",
        f"{path}: unknown setting nonsense.a",
        f"{path}: unknown setting servers.b; did you mean the section [server]?",
        "NINFER_FOO: unknown setting foo",
        "NINFER_MODEL__NAM: unknown setting model.nam; did you mean NINFER_MODEL__NAME?",
        "--set model.colour: unknown setting model.colour; "
        "[model] has name, dtype, weights, max_context, device, sampling, threads",
        "NINFER_ENGINE__KV_CAPACITY: engine.kv_capacity: '8GB' is not a KV capacity; "
        'write "auto", a number of tokens, or a quantity with one of B, KiB, MiB, GiB, TiB',
        f"{path}: engine.max_queue = 'many': input should be a valid integer, "
        "unable to parse string as an integer",
        "--set server.port: server.port = 'http': input should be a valid integer, "
        "unable to parse string as an integer",
        f"{path}: log.level = 'loud': input should be 'debug', 'info', 'warning' or 'error'",
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[[cache.tiers]]\nname = 'a'", "cache.tiers[0].kind: is missing"),
        (
            "[[cache.tiers]]\nname = 'a b'\nkind = 'x'",
            "cache.tiers[0].name = 'a b': string should match pattern",
        ),
        (
            "[[cache.tiers]]\nname = 'device'\nkind = 'x'",
            '"device" is the name of the built-in first tier',
        ),
        ("[cache]\ntiers = [{name='a',kind='x'},{name='a',kind='y'}]", "two tiers have the name a"),
        ("[cache]\ntiers = 3", "cache.tiers = 3: input should be a valid tuple"),
        ("cache = 3", "cache = 3: input should be a valid dictionary"),
        ("[engine]\nmax_concurrency = true", "must be a number, not true or false"),
        (
            "[engine]\nmax_concurrency = 0",
            "engine.max_concurrency = 0: input should be greater than or equal to 1",
        ),
        (
            "[spec]\ndraft_tokens = 17",
            "spec.draft_tokens = 17: input should be less than or equal to 16",
        ),
        ("[cache]\ndir = ''", "cache.dir = '': must be \"auto\" or the path of a folder"),
        (
            "[cache]\ntransfer_deadline = 0",
            "cache.transfer_deadline = 0.0: input should be greater than 0",
        ),
        ("[cache.tiers.host]\ncapacity = 1", "unknown setting cache.tiers.host.capacity"),
        ("[model]\nname = ''", "model.name = '': string should have at least 1 character"),
        (
            "[model]\ndtype = 'float16'",
            "input should be 'auto', 'bfloat16', 'float32' or 'float64'",
        ),
        ("port = 3", "unknown setting port; did you mean server.port?"),
        ("[chat]\nport = 3", "unknown setting chat.port; did you mean server.port?"),
    ],
)
def test_mistake_in_a_file_names_file_and_key(file, text, line):
    path = file(text)
    (problem,) = problems_of(config_path=path)
    assert problem.startswith(f"{path}: ")
    assert line in problem


def test_api_keys_are_never_shown(file):
    (problem,) = problems_of(config_path=file("[server]\napi_keys = ['sk-secret', '']"))
    assert "sk-secret" not in problem
    assert "an API key is empty" in problem
    assert "sk-secret" not in repr(load_settings(sets=["server.api_keys=sk-secret"]).settings)


def test_file_that_does_not_exist_is_a_mistake(tmp_path):
    (problem,) = problems_of(config_path=tmp_path / "absent.toml")
    assert problem == f"{tmp_path / 'absent.toml'}: there is no such file"


def test_file_that_is_not_toml_is_a_mistake(file):
    (problem,) = problems_of(config_path=file("[engine\n"))
    assert "ninfer.toml: is not TOML: " in problem
    assert "line 1" in problem


@pytest.mark.parametrize("item", ["foo", "foo=1", "=1", "server.=3", "server.port"])
def test_set_needs_section_key_and_value(item):
    (problem,) = problems_of(sets=[item])
    assert problem == f"--set {item}: write --set section.key=value"


def test_environment_that_is_not_toml_where_a_table_is_wanted_is_a_mistake():
    (problem,) = problems_of(environ={"NINFER_CACHE__TIERS": "[{name="})
    assert problem == "NINFER_CACHE__TIERS: cache.tiers: '[{name=' is not a TOML value"


def test_config_is_found_in_the_folder_only(tmp_path, file):
    assert find_config(tmp_path) is None
    path = file("")
    assert find_config(tmp_path) == path


def test_process_settings_read_folder_and_environment(file, tmp_path, monkeypatch):
    file("[server]\nport = 1\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NINFER_SERVER__HOST", "::1")
    server = process_settings().settings.server
    assert (server.port, server.host) == (1, "::1")


def test_auto_is_resolved_by_properties():
    settings = Settings()
    assert (settings.model.dtype_name, settings.model.weight_format) == ("bfloat16", "dense")
    settings = load_settings(sets=["model.dtype=float64", "model.weights=int4"]).settings
    assert (settings.model.dtype_name, settings.model.weight_format) == ("float64", "int4")


@pytest.mark.parametrize(
    ("platform", "environ", "folder"),
    [
        ("linux", {}, Path.home() / ".cache" / "ninfer"),
        (
            "linux",
            {"XDG_CACHE_HOME": str(Path("/var/x").absolute())},
            Path("/var/x").absolute() / "ninfer",
        ),
        ("linux", {"XDG_CACHE_HOME": "relative"}, Path.home() / ".cache" / "ninfer"),
        ("darwin", {}, Path.home() / "Library" / "Caches" / "ninfer"),
        ("win32", {"LOCALAPPDATA": "C:/L"}, Path("C:/L") / "ninfer" / "Cache"),
        ("win32", {}, Path.home() / "AppData" / "Local" / "ninfer" / "Cache"),
    ],
)
def test_cache_folder_follows_the_platform(platform, environ, folder):
    assert user_cache_dir(environ, platform=platform) == folder


def test_cache_folder_may_be_below_home_and_is_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert load_settings(sets=["cache.dir=~/x"]).settings.cache.dir == Path.home() / "x"
    assert load_settings(sets=["cache.dir=x"]).settings.cache.dir == tmp_path / "x"
