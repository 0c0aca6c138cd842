"""Documents say what the code says: hooks, settings, words."""

import ast
import inspect
import re
import tomllib
from pathlib import Path

import pytest

from ninfer.api import hookspecs
from ninfer.cli.config import toml_text
from ninfer.config import Settings, load_settings
from ninfer.config.known_keys import default_of, env_name, known_fields
from ninfer.config.layers import FLAG_SETTINGS
from ninfer.plugins.record import HOOKS, Phase

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "ninfer.example.toml"
CONFIGURATION = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
HOOKS_PAGE = (ROOT / "docs" / "plugins" / "hooks.md").read_text(encoding="utf-8")

SETTINGS = [".".join(path) for path, _ in known_fields()]


def signatures() -> dict[str, str]:
    """Each hook of the contract with its signature as it is written."""
    tree = ast.parse(inspect.getsource(hookspecs))
    return {
        node.name: f"{node.name}({ast.unparse(node.args)}) -> {ast.unparse(node.returns)}"
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
    }


def test_loader_knows_exactly_the_hooks_of_the_contract():
    assert set(HOOKS) == set(signatures())


@pytest.mark.parametrize("hook", sorted(HOOKS))
def test_hook_is_documented_with_its_exact_signature(hook):
    assert f"### `{signatures()[hook]}`" in HOOKS_PAGE.splitlines()


def test_no_hook_is_documented_that_does_not_exist():
    assert set(re.findall(r"^### `(\w+)\(", HOOKS_PAGE, re.MULTILINE)) == set(HOOKS)


def test_phases_of_the_loader_are_documented():
    table = HOOKS_PAGE.partition("## What is refused")[2]
    assert re.findall(r"^\| (\w+) \| [^|]+\|$", table, re.MULTILINE)[1:] == [
        phase.value for phase in Phase
    ]


def test_every_setting_has_a_description():
    assert [".".join(path) for path, field in known_fields() if not field.description] == []


def test_example_has_every_setting_and_no_other():
    table = tomllib.loads(EXAMPLE.read_text(encoding="utf-8"))
    found = {f"{section}.{key}" for section, values in table.items() for key in values}
    assert found == set(SETTINGS)


def test_example_is_the_default():
    assert load_settings(EXAMPLE).settings == Settings()


def test_every_setting_of_the_example_has_a_comment():
    lines = EXAMPLE.read_text(encoding="utf-8").splitlines()
    bare = [
        line
        for number, line in enumerate(lines)
        if re.match(r"\w+ = ", line)
        and not lines[number - 1].startswith("#")
        and not line.startswith(("name", "kind"))
    ]
    assert bare == []


def test_configuration_page_has_every_setting_and_no_other():
    assert re.findall(r"^\| `([a-z_]+\.[a-z_]+)` \|", CONFIGURATION, re.MULTILINE) == SETTINGS


@pytest.mark.parametrize("setting", SETTINGS)
def test_configuration_page_has_default_and_meaning(setting):
    field = dict(known_fields())[tuple(setting.split("."))]
    section, key = setting.split(".")
    default = toml_text(Settings().model_dump(mode="json")[section][key])
    if setting == "cache.dir":
        default = '"auto"'
    (row,) = [line for line in CONFIGURATION.splitlines() if line.startswith(f"| `{setting}` |")]
    shown = "host and disk" if setting == "cache.tiers" else f"`{default}`"
    assert row.split(" | ")[1] == shown
    assert field.description in row


@pytest.mark.parametrize(("flag", "setting"), FLAG_SETTINGS.items())
def test_flags_set_existing_settings_and_are_documented(flag, setting):
    (row,) = [line for line in CONFIGURATION.splitlines() if line.startswith(f"| `{setting}` |")]
    assert f"Flag: `{flag}`." in row


def test_defaults_survive_their_own_validation():
    for path, field in known_fields():
        default_of(field)
        assert env_name(".".join(path)).startswith("NINFER_")


def test_links_between_documents_lead_somewhere():
    broken = []
    readmes = [*ROOT.glob("plugins/*/README.md"), *ROOT.glob("examples/**/README.md")]
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *readmes]:
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if (
                "://" not in target
                and not target.startswith("mailto:")
                and not (page.parent / target).exists()
            ):
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert broken == []


def test_constraints_pin_every_dependency():
    pinned = set(
        re.findall(
            r"^([\w.-]+)==", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE
        )
    )
    wanted = set()
    for path in [ROOT / "pyproject.toml", *ROOT.glob("plugins/*/pyproject.toml")]:
        project = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
        for line in [
            *project["dependencies"],
            *sum(project.get("optional-dependencies", {}).values(), []),
        ]:
            wanted.add(re.split(r"[\[<>=!~; ]", line)[0])

    def normal(names):
        return {re.sub(r"[-_.]+", "-", name).lower() for name in names}

    assert normal(wanted) - normal(pinned) == {"ninfer"}
