"""`ninfer plugin new` with names and folders that cannot be used. What it writes is tested in integration/plugins."""

import os

import pytest

REFUSED = {
    "upper case": (("tier", "My Tier"), "'My Tier': kind must be lower-case letters"),
    "no letter first": (("tier", "2nd"), "'2nd': kind must be lower-case letters"),
    "no text": (("tier", ""), "'': kind must be lower-case letters"),
    "another alphabet": (("tier", "größe"), "'größe': kind must be lower-case letters"),
    "a hyphen at the end": (("tier", "big-"), "'big-': the name of a distribution ends in a"),
    "the device": (("tier", "device"), "'device': kind has a meaning of its own in ninfer.toml"),
    "no decoder": (("decoder", "off"), "'off': kind has a meaning of its own in ninfer.toml"),
    "an installed one": (("policy", "lru"), "policy kind 'lru' exists: plugin builtin, ninfer "),
    "StorageTier": (("tier", "storage"), "the class would be StorageTier, as in ninfer.api"),
    "PluginConfig": (("matcher", "plugin"), "the class would be PluginConfig, as in ninfer.api"),
    "no family": (("store", "x"), "'store' is not one of 'tier', 'matcher', 'policy', 'decoder'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_names_that_cannot_be_used_are_refused(ninfer, folder, case):
    arguments, message = REFUSED[case]
    result = ninfer("plugin", "new", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert list(folder.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_an_error_for_people(ninfer, folder):
    (folder / "file").touch()
    result = ninfer("plugin", "new", "tier", "attic", "--path", "file/package")
    assert result.exit_code == 2
    assert result.stderr.startswith("ninfer: file/package cannot be written: ".replace("/", os.sep))


def test_a_name_longer_than_any_file_may_have_is_an_error_for_people(ninfer):
    result = ninfer("plugin", "new", "tier", "x" * 300)
    assert result.exit_code == 2
    assert "cannot be written" in result.stderr


def test_words_of_python_and_repeated_hyphens_make_good_packages(ninfer, folder):
    for kind in ("class", "none", "a--b_2"):
        assert ninfer("plugin", "new", "policy", kind).exit_code == 0
    packages = [path.name for path in folder.rglob("ninfer_policy_*")]
    assert sorted(packages) == ["ninfer_policy_a_b_2", "ninfer_policy_class", "ninfer_policy_none"]
    for path in folder.rglob("*.py"):
        compile(path.read_text(), str(path), "exec")
