"""Every way in which a plugin can be broken becomes a record; none becomes an exception."""

from pathlib import Path

import pytest

from ninfer.plugins.discovery import discover
from ninfer.plugins.record import Family, Phase, PluginRecord, PluginState

HEAD = """
from ninfer.api import MatcherProvider, PluginConfig, TierProvider, hookimpl
NINFER_API = (1, 0)
class Config(PluginConfig):
    pass
def tier(**changes):
    fields = dict(kind="toy", summary="", config=Config, open=lambda context, config: None,
                  sample_config=lambda root: Config())
    return TierProvider(**{**fields, **changes})
"""


def only(site: Path) -> PluginRecord:
    (record,) = discover(path=[str(site)])
    return record


def problem_of(site: Path, phase: Phase) -> str:
    record = only(site)
    assert record.state is PluginState.BROKEN
    assert [problem.phase for problem in record.problems] == [phase]
    return record.problems[0].message


def test_good_plugin_is_loaded_with_its_offers(site, install):
    install("good", kind="attic", version="2.3")
    record = only(site)
    assert record.state is PluginState.LOADED
    assert (record.name, record.origin, record.api) == ("good", "dist-good 2.3", (1, 0))
    assert [(offer.family, offer.kind) for offer in record.offers] == [(Family.TIER, "attic")]
    assert record.problems == ()


PANIC = "class Panic(BaseException): pass"


def test_what_is_no_exception_becomes_a_record_too(site, install):
    install("panics", f"{PANIC}\nraise Panic('out of bounds')")
    install("panics_later", HEAD + f"{PANIC}\n@hookimpl\ndef ninfer_storage_tiers(): raise Panic")
    first, second = discover(path=[str(site)])
    assert [problem.message for problem in first.problems] == ["Panic: out of bounds"]
    assert [problem.message for problem in second.problems] == ["ninfer_storage_tiers raised Panic"]


def test_the_user_may_interrupt_an_import(site, install):
    install("slow", "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        discover(path=[str(site)])


def test_records_come_in_the_order_of_names(site, install):
    for name in ("zebra", "ant", "mule"):
        install(name)
    assert [record.name for record in discover(path=[str(site)])] == ["ant", "mule", "zebra"]


def test_one_broken_plugin_does_not_hide_the_others(site, install):
    install("bad", "import nowhere_at_all")
    install("good")
    assert [record.state for record in discover(path=[str(site)])] == [
        PluginState.BROKEN,
        PluginState.LOADED,
    ]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import nowhere_at_all", "ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("def broken(:", "SyntaxError: invalid syntax"),
        ("raise SystemExit(3)", "SystemExit: 3"),
    ],
)
def test_failing_import_is_reported_with_its_traceback(site, install, source, message):
    install("bad", source)
    assert message in problem_of(site, Phase.IMPORT)
    assert "Traceback" in only(site).problems[0].traceback


def test_entry_point_of_an_absent_module_is_reported(site, install):
    install("bad", module="toy_gone")
    (site / "toy_gone.py").unlink()
    assert "toy_gone" in problem_of(site, Phase.IMPORT)


@pytest.mark.parametrize(
    ("declaration", "message"),
    [
        ("", "does not declare NINFER_API"),
        (
            "NINFER_API = (2, 0)",
            "built against API 2.0, another major version; this ninfer offers 1.0",
        ),
        ("NINFER_API = (1, 99)", "built against API 1.99, a newer version; this ninfer offers 1.0"),
        ("NINFER_API = '1.0'", "NINFER_API is '1.0', not a pair"),
    ],
)
def test_other_contract_versions_are_refused(site, install, declaration, message):
    install("bad", f"import sys\n{declaration}\n")
    assert message in problem_of(site, Phase.API)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("@hookimpl\ndef ninfer_storage_tier(): pass", "did you mean ninfer_storage_tiers?"),
        (
            "@hookimpl\ndef ninfer_placement_policies(settings): pass",
            "asks for an argument settings",
        ),
        ("@hookimpl\ndef ninfer_storage_tiers(context=None): pass", "has a default for context"),
        ("@hookimpl(wrapper=True)\ndef ninfer_storage_tiers(): return (yield)", "is a wrapper"),
        ("@hookimpl(hookwrapper=True)\ndef ninfer_storage_tiers(): yield", "is a wrapper"),
        (
            "@hookimpl(specname='ninfer_storage_tiers')\ndef tiers(): return []",
            "specname='ninfer_storage_tiers'",
        ),
        ("def ninfer_storage_tiers(): return []", "is not marked with @hookimpl"),
    ],
)
def test_wrong_hook_implementations_are_refused_with_their_place(site, install, function, message):
    install("bad", HEAD + function)
    assert message in problem_of(site, Phase.REGISTER)
    assert only(site).problems[0].location.startswith(str(site / "toy_bad.py:"))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return None", "returned a value of type NoneType, not a list of TierProvider"),
        ("return 'host'", "returned a value of type str, not a list of TierProvider"),
        ("return [1]", "returned a value of type int where TierProvider is wanted"),
        (
            "return [MatcherProvider(kind='m', summary='', config=Config, open=tier, sample_config=tier)]",
            "MatcherProvider where TierProvider is wanted",
        ),
        ("raise OSError('no disk')", "ninfer_storage_tiers raised OSError: no disk"),
        ("yield tier(); raise OSError('late')", "ninfer_storage_tiers raised OSError: late"),
        ("return [tier(config=dict)]", "config is dict, not a subclass of ninfer.api.PluginConfig"),
        ("return [tier(open=lambda context: None)]", "open must take exactly (context, config)"),
        ("return [tier(open=None)]", "open must take exactly (context, config)"),
        ("return [tier(sample_config=lambda: None)]", "sample_config must take exactly (folder)"),
        ("return [tier(kind='My Tier')]", "kind must be lower-case"),
    ],
)
def test_wrong_results_are_refused(site, install, body, message):
    install("bad", f"{HEAD}\n@hookimpl\ndef ninfer_storage_tiers():\n    {body}\n")
    assert message in problem_of(site, Phase.RESULT)


def test_every_mistake_of_a_result_is_listed(site, install):
    install(
        "bad",
        f"{HEAD}\n@hookimpl\ndef ninfer_storage_tiers():\n    return [1, tier(kind='B'), tier()]\n",
    )
    record = only(site)
    assert len(record.problems) == 2
    assert [offer.kind for offer in record.offers] == ["toy"]


def test_duplicate_kind_names_both_distributions(site, install):
    install("one", kind="attic", version="1.1")
    install("two", kind="attic", version="2.2")
    install("three", kind="cellar")
    one, three, two = discover(path=[str(site)])
    assert three.state is PluginState.LOADED
    for record in (one, two):
        message = record.problems[0].message
        assert record.problems[0].phase is Phase.RESULT
        assert "one (dist-one 1.1)" in message
        assert "two (dist-two 2.2)" in message


def test_duplicate_plugin_name_names_both_distributions_and_imports_neither(site, install):
    source = "raise AssertionError('imported')"
    install("same", source, distribution="dist-a", version="1.0")
    install("same", source, distribution="dist-b", version="2.0")
    records = discover(path=[str(site)])
    assert [record.problems[0].phase for record in records] == [Phase.DISCOVER] * 2
    for record in records:
        assert "dist-a 1.0 and dist-b 2.0" in record.problems[0].message


def test_a_distribution_found_twice_counts_once(site, install, tmp_path):
    install("good")
    assert len(discover(path=[str(site), str(site)])) == 1


def test_disabled_plugin_is_not_imported(site, install):
    install("bad", "raise AssertionError('imported')")
    (record,) = discover(["bad"], path=[str(site)])
    assert record.state is PluginState.DISABLED
    assert not record.is_broken


def test_two_discoveries_do_not_influence_each_other(site, install):
    install("good")
    first, second = (discover(path=[str(site)]) for _ in range(2))
    assert [record.state for record in first + second] == [PluginState.LOADED] * 2


def test_installed_builtins_come_through_the_same_group():
    names = [record.name for record in discover()]
    assert "builtin" in names


def test_an_entry_point_that_names_an_object_is_told_what_to_write(site, install):
    info = install("bad")
    (info / "entry_points.txt").write_text("[ninfer]\nbad = toy_bad:plugin\n")
    message = problem_of(site, Phase.IMPORT)
    assert message.endswith("the entry point names an object, write 'toy_bad'")


def test_a_module_that_puts_something_else_in_its_place_is_refused(site, install):
    install("bad", "import sys\nsys.modules[__name__] = 7\n")
    assert problem_of(site, Phase.IMPORT) == "toy_bad put a int in its own place"


def test_damaged_metadata_of_one_distribution_does_not_hide_the_others(site, install):
    install("good")
    info = install("bad")
    (info / "entry_points.txt").write_text("[ninfer]\nthis is no entry point\n")
    bad, good = sorted(discover(path=[str(site)]), key=lambda record: record.name)
    assert good.state is PluginState.LOADED
    assert bad.problems[0].phase is Phase.DISCOVER
    assert bad.problems[0].message.startswith("entry_points.txt cannot be read: ")
    assert bad.name == bad.distribution == "dist-bad"


def test_a_hook_that_exits_is_a_problem_of_its_plugin(site, install):
    install("bad", f"{HEAD}\n@hookimpl\ndef ninfer_storage_tiers():\n    raise SystemExit(3)\n")
    assert problem_of(site, Phase.RESULT) == "ninfer_storage_tiers raised SystemExit: 3"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ("kind='device'", "kind has a meaning of its own in ninfer.toml for a tier"),
        ("summary=None", "summary is a value of type NoneType, not a sentence"),
    ],
)
def test_words_of_the_configuration_are_no_kinds_and_summaries_are_text(
    site, install, changes, message
):
    body = f"\n@hookimpl\ndef ninfer_storage_tiers():\n    return [tier({changes})]\n"
    install("bad", HEAD + body)
    assert message in problem_of(site, Phase.RESULT)
