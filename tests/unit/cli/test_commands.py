"""The command line as a user meets it."""

import json
import subprocess
import sys
import tomllib

import pytest

from ninfer.api import PluginConfig
from ninfer.cli.config import settings_lines
from ninfer.cli.option_table import option_rows
from ninfer.config import load_settings

BROKEN = "import nowhere_at_all\n"


@pytest.fixture
def broken_plugin(folder, monkeypatch):
    """A plugin that cannot be imported; offers the kind `s3` by its name."""
    (folder / "storage_s3_plugin.py").write_text(BROKEN)
    info = folder / "acme_s3-0.4.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-s3\nVersion: 0.4.1\n")
    (info / "entry_points.txt").write_text("[ninfer]\nstorage_s3 = storage_s3_plugin\n")
    monkeypatch.syspath_prepend(str(folder))


def test_module_can_be_run(folder):
    done = subprocess.run(
        [sys.executable, "-m", "ninfer", "version"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("ninfer 0.1.0")


def test_version_names_the_contract(ninfer):
    result = ninfer("version")
    assert result.exit_code == 0
    assert "plugin API 1.0" in result.stdout


def test_wrong_settings_exit_with_2_and_without_traceback(ninfer, folder):
    (folder / "ninfer.toml").write_text("[engine]\nmax_concurency = 2\n")
    result = ninfer("serve", "--port", "999999", NINFER_FOO="1")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        "ninfer: 3 settings are wrong",
        "  ninfer.toml: unknown setting engine.max_concurency; did you mean engine.max_concurrency?",
        "  NINFER_FOO: unknown setting foo",
        "  --port: server.port = 999999: input should be less than or equal to 65535",
    ]


def test_config_file_that_does_not_exist_exits_with_2(ninfer):
    result = ninfer("serve", "--config", "absent.toml")
    assert (result.exit_code, result.stderr.splitlines()[1]) == (
        2,
        "  absent.toml: there is no such file",
    )


def test_unknown_flag_exits_with_2(ninfer):
    assert ninfer("serve", "--colour").exit_code == 2


def test_broken_configured_plugin_exits_with_3_and_the_report(ninfer, folder, broken_plugin):
    (folder / "ninfer.toml").write_text('[[cache.tiers]]\nname = "remote"\nkind = "s3"\n')
    result = ninfer("serve")
    assert result.exit_code == 3
    assert result.stderr.startswith("ninfer: cannot start, ")
    assert (
        "  storage_s3   acme-s3 0.4.1   (ninfer: storage_s3 = storage_s3_plugin)" in result.stderr
    )
    assert 'used by  ninfer.toml: cache.tiers[0] name="remote" kind="s3"' in result.stderr
    assert "Traceback" not in result.stderr


def test_plugins_lists_states_and_exits_with_1_if_a_configured_one_is_broken(
    ninfer, folder, broken_plugin
):
    (folder / "ninfer.toml").write_text('[[cache.tiers]]\nname = "remote"\nkind = "s3"\n')
    result = ninfer("plugins")
    assert result.exit_code == 1
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("storage_s3 ")]
    assert "acme-s3 0.4.1" in line
    assert "broken" in line
    assert "import: ModuleNotFoundError: No module named 'nowhere_at_all'" in line


def test_plugins_json_is_json(ninfer, broken_plugin):
    data = {item["name"]: item for item in json.loads(ninfer("plugins", "--json").stdout)}
    assert {"builtin", "storage_s3"} <= set(data)
    assert data["storage_s3"]["problems"][0]["phase"] == "import"


def test_disabled_plugins_are_shown_on_request_only(ninfer, folder, broken_plugin):
    (folder / "ninfer.toml").write_text('[plugins]\ndisabled = ["storage_s3"]\n')
    assert "storage_s3" not in ninfer("plugins").stdout
    assert "storage_s3" in ninfer("plugins", "--all").stdout


def test_plugins_show_prints_options_and_tracebacks(ninfer, broken_plugin):
    shown = ninfer("plugins", "show", "storage_s3", "--traceback")
    assert shown.exit_code == 0
    assert "Traceback (most recent call last)" in shown.stdout
    assert "Traceback" not in ninfer("plugins", "show", "storage_s3").stdout


def test_plugins_show_of_an_unknown_name_lists_the_installed(ninfer):
    result = ninfer("plugins", "show", "nothing")
    assert result.exit_code == 1
    assert "there is no plugin 'nothing'; installed: builtin" in result.stderr


def test_plugins_and_config_import_neither_torch_nor_the_server():
    code = (
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from ninfer.cli.main import app\n"
        "for command in (['plugins'], ['config', 'show'], ['version']):\n"
        "    CliRunner().invoke(app, command)\n"
        "print([name for name in ('torch', 'fastapi', 'uvicorn', 'transformers') if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.strip() == "[]"


def test_config_show_is_toml_that_gives_the_same_settings(tmp_path):
    loaded = load_settings(
        sets=[
            "engine.kv_capacity=8GiB",
            "cache.policy_options.x=[1, 'two']",
            'cache.tiers=[{name = "a", kind = "b", "odd key" = 1.5}]',
            'server.served_name=Größe "x"',
        ]
    )
    path = tmp_path / "again.toml"
    path.write_text("\n".join(settings_lines(loaded, with_sources=True)), encoding="utf-8")
    assert load_settings(path).settings == loaded.settings


def test_config_show_masks_api_keys():
    loaded = load_settings(sets=["server.api_keys=sk-a,sk-b"])
    text = "\n".join(settings_lines(loaded, with_sources=True))
    assert "sk-a" not in text
    assert tomllib.loads(text)["server"]["api_keys"] == ["***", "***"]


def test_config_show_says_where_values_come_from(ninfer, folder):
    (folder / "ninfer.toml").write_text("[server]\nport = 1\n")
    result = ninfer(
        "config", "show", "--sources", "--set", "log.level=debug", NINFER_MODEL__NAME="x"
    )
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert "port = 1  # ninfer.toml" in lines
    assert 'level = "debug"  # --set log.level' in lines
    assert 'name = "x"  # NINFER_MODEL__NAME' in lines
    assert 'host = "127.0.0.1"  # default' in lines


def test_config_path_prints_the_file_or_exits_with_1(ninfer, folder):
    assert ninfer("config", "path").exit_code == 1
    (folder / "ninfer.toml").write_text("")
    assert ninfer("config", "path").stdout.strip() == str(folder / "ninfer.toml")


def test_options_are_described_by_field_or_by_docstring():
    class Config(PluginConfig):
        """Settings.

        Attributes:
            capacity: bytes taken,
                at start.
            mode: how.
        """

        capacity: int
        mode: str | None = "fast"
        names: tuple[str, ...] = ()

    assert option_rows(Config) == [
        ("capacity", "int", "required", "bytes taken, at start."),
        ("mode", "str | nothing", '"fast"', "how."),
        ("names", "tuple[str]", "()", ""),
    ]


def test_serve_hands_settings_and_catalog_to_the_server(ninfer, fake_server):
    calls = fake_server(7)
    arguments = [
        "serve",
        "--model",
        "m",
        "--port",
        "0",
        "--max-context",
        "99",
        "--kv-capacity",
        "8GiB",
    ]
    arguments += ["--max-concurrency", "2", "--spec", "off", "--draft-tokens", "1", "--host", "::1"]
    arguments += ["--set", "cache.enabled=false"]
    result = ninfer(*arguments)
    assert result.exit_code == 7, result.output
    ((loaded, catalog),) = calls
    settings = loaded.settings
    assert (settings.model.name, settings.model.max_context) == ("m", 99)
    assert (settings.server.host, settings.server.port) == ("::1", 0)
    assert (str(settings.engine.kv_capacity), settings.engine.max_concurrency) == ("8GiB", 2)
    assert (settings.spec.decoder, settings.spec.draft_tokens) == ("off", 1)
    assert not settings.cache.enabled
    assert "builtin" in [record.name for record in catalog.records]
