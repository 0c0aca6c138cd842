"""`ninfer cache` on what a real engine left on a real disk tier."""

import json
import random

import pytest
from ninfer_storage_disk.config import DiskConfig
from ninfer_storage_disk.tier import DiskTier
from typer.testing import CliRunner

from ninfer.api import TierContext
from ninfer.cache.recovery import by_value
from ninfer.cli.main import app
from tests.fakes.harness import Harness

CAPACITY = 8 << 20
HEAD = [random.Random(1).randrange(4) for _ in range(200)]


class Nothing:
    def monotonic_s(self):
        return 0.0

    def unix_s(self):
        return 0.0

    def allocate_host(self, num_bytes):
        return memoryview(bytearray(num_bytes))


def open_tier(folder, fingerprint=b"m" * 32, name="some-model"):
    context = TierContext(
        tier_name="disk",
        fingerprint=fingerprint,
        clock=Nothing(),
        host_allocator=Nothing(),
        model_name=name,
        page_image_bytes=512,
        by_value=by_value,
    )
    return DiskTier.open(context, DiskConfig(path=folder, capacity=CAPACITY))


def prompts():
    rng = random.Random(2)
    return [HEAD + [rng.randrange(4) for _ in range(length)] for length in (40, 90, 333)]


def serve(folder, wanted):
    """Answer prompts one after another on a small device over a disk tier; return (answers, cached counts)."""
    harness = Harness(num_pages=16, tiers=[open_tier(folder)], has_state=True, num_slots=8)
    answers = [harness.ask(prompt, 5) for prompt in wanted]
    # What is served is what no cache would have answered.
    assert [answer.tokens for answer in answers] == [harness.cold(answer) for answer in answers]
    harness.settle()
    harness.flush()
    harness.close()
    for tier in harness.tiers:
        tier.close()
    return [(answer.tokens, answer.cached) for answer in answers]


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("filled")
    answers = serve(folder, prompts())
    return folder, answers


def continuation(filled):
    """The next turn of the last conversation."""
    return [*prompts()[-1], *filled[1][-1][0], 1, 2, 3]


@pytest.fixture
def copy(filled, tmp_path):
    import shutil

    shutil.copytree(filled[0], tmp_path / "copy")
    return tmp_path / "copy"


def run(*arguments, code=0):
    result = CliRunner().invoke(app, ["cache", *map(str, arguments)])
    assert result.exit_code == code, result.output + result.stderr
    return result


def listed(folder):
    return json.loads(run("ls", "--path", folder, "--json").stdout)


def test_ls_names_every_context_its_model_and_what_it_shares(copy):
    contexts = listed(copy)
    # Each answer ends with a token that was sampled but not computed.
    assert sorted(c["num_tokens"] for c in contexts) == sorted(len(p) + 4 for p in prompts())
    assert {c["model"] for c in contexts} == {"some-model"}
    assert all(c["resume_tokens"] == c["num_tokens"] for c in contexts)
    assert all(0 < c["own_bytes"] < c["num_bytes"] for c in contexts)
    text = run("ls", "--path", copy).stdout
    assert "some-model" in text
    assert "idle" in text


def test_show_gives_the_exact_tokens(copy):
    for context in listed(copy):
        shown = json.loads(run("show", context["context"], "--path", copy, "--tokens").stdout)
        assert shown["token_ids"][:-4] in prompts()
        assert shown["num_shared_pages"] == (3 if len(shown["token_ids"]) > 200 else 0)
        assert shown["state_positions_tokens"][-1] == context["resume_tokens"]


def test_verify_finds_exactly_the_damaged_image(copy):
    assert "0 damaged, 0 of no use" in run("verify", "--path", copy).stdout
    data = next(copy.glob("*/data"))
    content = bytearray(data.read_bytes())
    content[100] ^= 1
    data.write_bytes(content)
    before = data.read_bytes()
    result = run("verify", "--path", copy, code=1)
    assert "1 damaged" in result.stdout
    assert data.read_bytes() == before, "looking changes nothing"
    assert "1 damaged" in run("gc", "--damaged", "--path", copy).stdout
    assert "0 damaged, 0 of no use" in run("verify", "--path", copy).stdout


def test_gc_keeps_the_latest_used_within_the_bytes_and_the_server_still_serves_them(copy, filled):
    newest, *others = listed(copy)
    keep = newest["num_bytes"] + 100
    dry = run("gc", "--keep", f"{keep}B", "--path", copy, "--dry-run").stdout
    assert "would remove" in dry
    assert len(listed(copy)) == 3
    run("gc", "--keep", f"{keep}B", "--path", copy)
    assert [c["context"] for c in listed(copy)] == [newest["context"]]
    answers = serve(copy, [continuation(filled), prompts()[0]])
    assert answers[0][1] == len(prompts()[-1]) + 4
    assert answers[1][0] == filled[1][0][0]


def test_gc_of_old_contexts_takes_those_alone(copy):
    assert "removed 0 images" in run("gc", "--older-than", "1h", "--path", copy).stdout
    assert "3 contexts" in run("gc", "--older-than", "0s", "--path", copy).stdout
    assert listed(copy) == []


def test_export_and_import_move_chosen_contexts_to_another_machine(copy, tmp_path, filled):
    longest = max(listed(copy), key=lambda context: context["num_tokens"])
    run("export", longest["context"], "--path", copy, "--to", tmp_path / "bag")
    assert listed(tmp_path / "bag") == [longest | {"own_bytes": longest["num_bytes"]}]
    run("import", "--from", tmp_path / "bag", "--path", tmp_path / "other")
    answers = serve(tmp_path / "other", [continuation(filled), prompts()[0]])
    assert answers[0][1] == len(prompts()[-1]) + 4
    assert answers[1][0] == filled[1][0][0]


def test_with_a_running_server_one_can_look_but_not_change(copy, tmp_path):
    tier = open_tier(copy)
    try:
        assert "in use by a server" in run("ls", "--path", copy).stdout
        run("verify", "--path", copy)
        run("export", "--path", copy, "--to", tmp_path / "bag")
        assert "in use" in run("gc", "--older-than", "0s", "--path", copy, code=1).stderr
        assert "in use" in run("import", "--from", tmp_path / "bag", "--path", copy, code=1).stderr
        assert len(list(tier.records())) > 0
        assert tier.check() == []
    finally:
        tier.close()
    assert len(listed(copy)) == 3


def test_other_models_are_kept_apart(copy):
    open_tier(copy, b"x" * 32, "other-model").close()
    assert "other-model" in run("ls", "--path", copy).stdout
    assert len(json.loads(run("ls", "--json", "--model", "some", "--path", copy).stdout)) == 3
    assert json.loads(run("ls", "--json", "--model", "other", "--path", copy).stdout) == []
    result = run("ls", "--model", "nope", "--path", copy, code=2)
    assert "some-model" in result.stderr
    assert "other-model" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("ls", "--path", "absent"), 1, "absent is not a directory"),
        (("show", "123", "--path", "."), 1, "there is no context 123"),
        (("gc", "--keep", "10 apples", "--path", "."), 2, "--keep: '10 apples'"),
        (("ls", "--kind", "tape", "--path", "."), 2, "tape"),
        (("ls", "--kind", "host", "--path", "."), 2, "these do: disk"),
    ],
)
def test_mistakes_are_explained(arguments, code, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(*arguments, code=code)
    assert text in result.stderr
    assert "Traceback" not in result.stderr
