"""`ninfer conformance` on plugins installed in a folder of their own."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from ninfer.plugins.entry_points import find_entry_points

TIER = """
from pathlib import Path
from ninfer.api import PluginConfig, TierProvider, hookimpl
from ninfer.testing.mutants.file_tier import FileTier
from ninfer.testing.mutants.tier_contents import DeletesTwice

NINFER_API = (1, 0)

class ToyConfig(PluginConfig):
    root: Path
    capacity: int = 262144

def provider(kind, tier, sample):
    return TierProvider(
        kind=kind, summary="A toy.", config=ToyConfig,
        open=lambda context, config: tier(context, config.root, config.capacity),
        sample_config=sample,
    )

def no_sample(root):
    raise OSError("no place for a sample")

def exit_instead(root):
    raise SystemExit("no licence")

@hookimpl
def ninfer_storage_tiers():
    return [
        provider("toy", FileTier, lambda root: ToyConfig(root=root)),
        provider("leaky", DeletesTwice, lambda root: ToyConfig(root=root)),
        provider("placeless", FileTier, no_sample),
        provider("leaving", FileTier, exit_instead),
    ]
"""

POLICY = """
from ninfer.api import PolicyProvider
from ninfer.builtin.lru import LruConfig, LruPolicy

@hookimpl
def ninfer_placement_policies():
    return [PolicyProvider(kind="toy", summary="A toy.", config=LruConfig, open=LruPolicy.open,
                           sample_config=lambda root: LruConfig())]
"""


@pytest.fixture
def install(folder, monkeypatch):
    """Install a plugin module as the only distribution there is."""

    def write(source, module="toy_tier_plugin"):
        (folder / f"{module}.py").write_text(source)
        info = folder / "acme_toy-2.5.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-toy\nVersion: 2.5\n")
        (info / "entry_points.txt").write_text(f"[ninfer]\nacme_toy = {module.replace('/', '.')}\n")
        monkeypatch.syspath_prepend(str(folder))
        monkeypatch.setattr("ninfer.plugins.discovery.find_entry_points", only_from(folder))

    yield write
    for name in [name for name in sys.modules if name.startswith("toy_tier_plugin")]:
        del sys.modules[name]


def only_from(folder):
    return lambda path: find_entry_points([str(folder)])


QUICK = ("--only", "TIER-08", "--only", "TIER-26")


def test_a_conformant_plugin_exits_with_0_and_says_what_was_looked_at(ninfer, install):
    install(TIER)
    result = ninfer("conformance", "tier", "toy", *QUICK)
    assert result.exit_code == 0, result.output
    first, deletes, durable, last, _ = result.stdout.splitlines()
    assert first == "tier 'toy' from acme-toy 2.5"
    assert deletes.startswith("  TIER-08     ok    `delete` tells")
    assert durable.startswith("  TIER-26     n/a   ")
    assert durable.endswith("(needs a tier that is not durable)")
    assert last == "  conformant: 1 ok, 1 n/a"


def test_a_plugin_that_breaks_a_requirement_exits_with_1_and_says_how(ninfer, install, folder):
    install(TIER)
    result = ninfer("conformance", "tier", "leaky", *QUICK, "--json", "out.json")
    assert result.exit_code == 1
    assert "  TIER-08     FAIL  " in result.stdout
    assert "TIER-08: answers of delete: got [True, False, True, True], expected" in result.stdout
    assert "NOT conformant: 1 fail, 1 n/a" in result.stdout
    data = json.loads((folder / "out.json").read_text())
    assert (data["api_version"], data["profile"], data["seed"]) == ("1.0", "quick", None)
    (plugin,) = data["plugins"]
    assert (plugin["type"], plugin["kind"], plugin["plugin"]) == ("tier", "leaky", "acme_toy")
    assert (plugin["distribution"], plugin["version"]) == ("acme-toy", "2.5")
    assert plugin["conformant"] is False
    found = {each["id"]: (each["verdict"], each["reason"]) for each in plugin["requirements"]}
    assert found["TIER-08"][0] == "fail"
    assert found["TIER-26"] == ("n/a", "needs a tier that is not durable")


def test_a_plugin_that_is_not_installed_exits_with_2_and_the_names(ninfer, install):
    install(TIER)
    result = ninfer("conformance", "tier", "toi")
    assert result.exit_code == 2
    assert "no tier 'toi' is installed" in result.stderr
    assert "leaky, leaving, placeless, toy" in result.stderr


def test_a_plugin_that_cannot_be_imported_exits_with_3_and_the_reason(ninfer, install):
    install("import nowhere_at_all\n", module="toy_tier_plugin")
    for arguments in (("tier", "toy"), ("--all",)):
        result = ninfer("conformance", *arguments)
        assert result.exit_code == 3, result.output
        assert "acme_toy from acme-toy 2.5 is broken" in result.stderr
        assert "nowhere_at_all" in result.stderr


@pytest.mark.parametrize(
    ("kind", "problem"),
    [("placeless", "OSError: no place for a sample"), ("leaving", "SystemExit: no licence")],
)
def test_a_sample_configuration_that_fails_exits_with_3(ninfer, install, kind, problem):
    install(TIER)
    result = ninfer("conformance", "tier", kind)
    assert result.exit_code == 3
    assert f"sample_config raised {problem}" in result.stdout


def test_all_looks_at_every_plugin_and_the_worst_decides(ninfer, install, folder):
    install(TIER)
    result = ninfer("conformance", "--all", *QUICK, "--json", "out.json")
    assert result.exit_code == 3
    data = json.loads((folder / "out.json").read_text())
    found = {plugin["kind"]: plugin["conformant"] for plugin in data["plugins"]}
    assert found == {"toy": True, "leaky": False, "placeless": False, "leaving": False}
    assert data["only"] == ["TIER-08", "TIER-26"]


def test_what_was_not_looked_at_is_not_in_the_results(ninfer, install, folder):
    install(TIER + POLICY)
    result = ninfer("conformance", "--all", "--only", "POLICY-01", "--json", "out.json")
    assert result.exit_code == 0, result.output
    (plugin,) = json.loads((folder / "out.json").read_text())["plugins"]
    assert (plugin["type"], plugin["conformant"]) == ("policy", True)


@pytest.mark.parametrize("place", [".", "nowhere/out.json"])
def test_a_file_that_cannot_be_written_is_told_before_anything_runs(ninfer, install, place):
    install(TIER)
    result = ninfer("conformance", "tier", "toy", *QUICK, "--json", place)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "--json" in result.stderr
    assert "no file can be written there" in result.stderr


def test_the_requirement_on_imports_can_be_asked_for_alone(ninfer, install):
    install(TIER)
    result = ninfer("conformance", "tier", "toy", "--only", "PLUGIN-01")
    assert result.exit_code == 0, result.output
    assert [line.split()[:2] for line in result.stdout.splitlines()[1:2]] == [["PLUGIN-01", "ok"]]
    assert "  conformant: 1 ok" in result.stdout
    both = ninfer("conformance", "tier", "toy", "--only", "PLUGIN-01", "--only", "TIER-08")
    assert "  conformant: 2 ok" in both.stdout


def test_files_that_are_no_python_are_not_looked_into(ninfer, install, folder):
    (folder / "toy_tier_plugin").mkdir()
    (folder / "toy_tier_plugin" / "skeleton.py").write_text("class {{ name }}:\n")
    install(TIER, module="toy_tier_plugin/plugin")
    result = ninfer("conformance", "tier", "toy", "--only", "PLUGIN-01")
    assert result.exit_code == 0, result.output


def test_imports_of_the_inside_of_ninfer_are_found(ninfer, install):
    install(TIER + "\ndef later():\n    from ninfer import cache\n    import ninfer.api.tier\n")
    result = ninfer("conformance", "tier", "toy")
    assert result.exit_code == 1
    (line,) = [line for line in result.stdout.splitlines() if "imports ninfer" in line]
    assert line.strip().endswith("imports ninfer.cache")
    assert "1 fail" in result.stdout


def test_unknown_requirements_and_missing_names_exit_with_2(ninfer, install):
    install(TIER)
    result = ninfer("conformance", "tier", "toy", "--only", "TIER-99")
    assert result.exit_code == 2
    assert "there is no requirement TIER-99" in result.stderr
    for arguments in ((), ("tier",), ("tier", "toy", "--all")):
        assert ninfer("conformance", *arguments).exit_code == 2


def test_folders_are_kept_on_request(ninfer, install):
    install(TIER)
    result = ninfer("conformance", "tier", "toy", "--only", "TIER-25", "--keep")
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("kept ")]
    kept = Path(line.removeprefix("kept "))
    assert list(kept.rglob("page-*"))
    shutil.rmtree(kept)


def test_without_the_extra_the_command_that_installs_it_is_named(ninfer, monkeypatch):
    monkeypatch.setattr("ninfer.cli.conformance.find_spec", lambda name: None)
    result = ninfer("conformance", "tier", "disk")
    assert result.exit_code == 1
    assert (
        "need pytest and hypothesis; try: python -m pip install 'ninfer[testing]'" in result.stderr
    )
