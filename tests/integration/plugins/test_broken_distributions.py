"""All ways to be broken at once, as installed distributions, seen by the real command line: one report, one status."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from ninfer.plugins.record import Phase
from tests.integration.plugins.broken import CASES, GOOD, HEAD, IMPOSTOR
from tests.integration.plugins.wheels import build_wheel, install

SAME_NAME = "storage_twice"
SHARED_KIND = (
    HEAD.format(kind="shared") + "\n@hookimpl\ndef ninfer_storage_tiers():\n    return [tier()]\n"
)
ALL_KINDS = [*(case.kind for case in CASES), "twice", "shared"]


@dataclass(frozen=True)
class Ninfer:
    """The command line in a folder of its own, with the broken distributions on its path."""

    folder: Path
    site: Path

    def __call__(self, *arguments: str, toml: str = "") -> subprocess.CompletedProcess[str]:
        (self.folder / "ninfer.toml").write_text(toml)
        environ = {key: value for key, value in os.environ.items() if not key.startswith("NINFER_")}
        environ["PYTHONPATH"] = str(self.site)
        return subprocess.run(
            [sys.executable, "-m", "ninfer", *arguments],
            cwd=self.folder,
            env=environ,
            capture_output=True,
            text=True,
            timeout=300,
        )


@pytest.fixture(scope="module")
def ninfer(tmp_path_factory) -> Ninfer:
    folder = tmp_path_factory.mktemp("wheels")
    plugins = [(case.name, f"acme-{case.kind}", case.text) for case in (*CASES, GOOD)]
    plugins += [(SAME_NAME, f"acme-twice-{letter}", IMPOSTOR) for letter in "ab"]
    plugins += [(f"{word}_shared", f"acme-{word}", SHARED_KIND) for word in ("attic", "cellar")]
    wheels = [
        build_wheel(
            folder,
            distribution,
            f"1.{number}",
            files={f"{distribution.replace('-', '_')}_plugin.py": source},
            entry_points={name: f"{distribution.replace('-', '_')}_plugin"},
        )
        for number, (name, distribution, source) in enumerate(plugins)
    ]
    site = tmp_path_factory.mktemp("site")
    install(wheels, site)
    return Ninfer(folder=tmp_path_factory.mktemp("run"), site=site)


def tiers(*kinds: str, **options: object) -> str:
    lines = "".join(f"{key} = {value}\n" for key, value in options.items())
    return "".join(
        f'[[cache.tiers]]\nname = "t-{kind}"\nkind = "{kind}"\n{lines}' for kind in kinds
    )


EVERYTHING = (
    tiers(*ALL_KINDS)
    + tiers("good", size=0, colour='"red"')
    + "[cache.policy_options]\nhalf_life_s = -1\n"
)


@pytest.fixture(scope="module")
def report(ninfer):
    """What `ninfer serve` says when the configuration wants all of them."""
    done = ninfer("serve", toml=EVERYTHING)
    assert done.returncode == 3, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.stderr


def block_of(report: str, name: str, origin: str) -> list[str]:
    lines = report.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"  {name}   {origin}"))
    rest = lines[start + 1 :]
    length = next((i for i, line in enumerate(rest) if not line.startswith("    ")), len(rest))
    return rest[:length]


def test_one_report_counts_every_broken_plugin(report):
    assert report.startswith(
        f"ninfer: cannot start, {len(CASES) + 4} configured plugins are broken\n"
    )
    assert report.count("    phase    ") == len(CASES) + 4


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.kind)
def test_report_names_phase_error_and_the_line_that_wanted_it(report, case):
    block = block_of(report, case.name, f"acme-{case.kind} 1.{CASES.index(case)}")
    assert block[0] == f"    phase    {case.phase}"
    assert block[1].startswith("    error    ")
    assert case.message in block[1]
    where = f'ninfer.toml: cache.tiers[{CASES.index(case)}] name="t-{case.kind}" kind="{case.kind}"'
    assert f"    used by  {where}" in block
    assert any(f"acme_{case.kind}_plugin.py:" in line for line in block) == case.has_place
    hint = f"    try      ninfer plugins show {case.name}" + (
        " --traceback" if case.has_traceback else ""
    )
    assert hint in block
    assert f'    or       [plugins] disabled = ["{case.name}"]' in block


def test_a_name_in_two_distributions_is_reported_for_both_and_neither_is_imported(report):
    for letter, number in (("a", len(CASES) + 1), ("b", len(CASES) + 2)):
        block = block_of(report, SAME_NAME, f"acme-twice-{letter} 1.{number}")
        assert block[0] == f"    phase    {Phase.DISCOVER}"
        assert f"acme-twice-a 1.{len(CASES) + 1} and acme-twice-b 1.{len(CASES) + 2}" in block[1]


def test_a_kind_in_two_distributions_is_reported_for_both(report):
    for word in ("attic", "cellar"):
        block = block_of(report, f"{word}_shared", f"acme-{word} ")
        assert block[0] == f"    phase    {Phase.RESULT}"
        assert "tier kind 'shared' is offered twice: by attic_shared (acme-attic" in block[1]
        assert "and by cellar_shared (acme-cellar" in block[1]


def test_wrong_options_are_in_the_same_report_with_path_and_source(report):
    at = f"ninfer.toml: cache.tiers[{len(ALL_KINDS)}]"
    also = report.partition("also, settings are wrong\n")[2].splitlines()
    origin = f"(plugin storage_good, acme-good 1.{len(CASES)})"
    assert f"  {at}.size = 0: input should be greater than or equal to 1 {origin}" in also
    assert f"  {at}.colour: unknown key; it has size {origin}" in also
    assert any(
        line.startswith("  ninfer.toml: cache.policy_options.half_life_s = -1: ") for line in also
    )
    assert len(also) == 3


def test_plugins_lists_all_of_them_with_the_same_report_and_status_1(ninfer, report):
    done = ninfer("plugins", toml=EVERYTHING)
    assert done.returncode == 1
    assert done.stderr == report
    rows = {line.split()[0]: line for line in done.stdout.splitlines()[1:]}
    for case in CASES:
        assert "  broken  " in rows[case.name]
        assert f"{case.phase}: " in rows[case.name]
    assert "  active  " in rows["builtin"]


def test_json_has_every_problem(ninfer):
    done = ninfer("plugins", "--json", toml=EVERYTHING)
    assert done.returncode == 1
    found = {item["name"]: item for item in json.loads(done.stdout)}
    for case in CASES:
        (problem,) = found[case.name]["problems"]
        assert problem["phase"] == case.phase
        assert case.message in problem["message"]
    assert found["storage_good"]["state"] == "active"


def test_show_has_the_traceback_of_a_failed_import(ninfer):
    done = ninfer("plugins", "show", "storage_missing", "--traceback")
    assert done.returncode == 0
    assert "Traceback (most recent call last)" in done.stdout
    assert "acme_missing_plugin.py" in done.stdout
    assert "ImportError: libaws.so.1" in done.stdout
    assert "Traceback" not in ninfer("plugins", "show", "storage_missing").stdout


def test_broken_plugins_that_nothing_uses_cost_nothing(ninfer):
    done = ninfer("plugins", toml="[cache]\ntiers = []\n")
    assert done.returncode == 0
    assert done.stderr == ""


def test_strict_stops_for_broken_plugins_that_nothing_uses(ninfer):
    done = ninfer("serve", toml="[cache]\ntiers = []\n[plugins]\nstrict = true\n")
    assert done.returncode == 3
    assert f"cannot start, {len(CASES) + 4} plugins are broken" in done.stderr
    assert "    used by  nothing, but [plugins] strict = true" in done.stderr


def test_wrong_options_alone_exit_with_2(ninfer):
    done = ninfer("serve", toml=tiers("good", size=0))
    assert done.returncode == 2
    assert done.stderr.startswith(
        "ninfer: 1 setting is wrong\n  ninfer.toml: cache.tiers[0].size = 0"
    )
    assert ninfer("plugins", toml=tiers("good", size=0)).returncode == 2


def test_disabled_plugins_are_not_in_the_report(ninfer):
    disabled = "[plugins]\nstrict = true\ndisabled = " + json.dumps(
        [case.name for case in CASES] + [SAME_NAME, "attic_shared", "cellar_shared"]
    )
    done = ninfer("plugins", toml=tiers("good") + disabled)
    assert done.returncode == 0, done.stderr
