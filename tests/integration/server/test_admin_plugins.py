"""`/admin/plugins`: what is installed, as `ninfer plugins --json` lists it, and what fails right now."""

import json

import pytest
from typer.testing import CliRunner

from ninfer.cli.main import app
from ninfer.config.sections import ServerSection
from ninfer.obs.health import HealthReport
from ninfer.server.app import create_app
from tests.integration.server.conftest import running
from tests.integration.server.fake_model import Served, serve_fake

COMMON = {"version": "1.0", "api": [1, 0], "problems": []}
PLUGINS = [
    {
        "name": name,
        "distribution": f"acme-{name}",
        "state": state,
        "provides": [{"family": "tier", "kind": name}],
        **COMMON,
    }
    for name, state in (("attic", "active"), ("cellar", "unused"))
]


@pytest.fixture
def server():
    fake = serve_fake()
    served = create_app(fake.engine, fake.text, ServerSection(), plugins=PLUGINS)
    with running(Served(fake.engine, fake.text, served)) as live:
        yield live


def test_plugins_that_work_are_listed_as_they_were_found(server):
    answer = server.http.get("/admin/plugins")
    assert answer.status_code == 200
    assert answer.json() == [{**plugin, "failures": []} for plugin in PLUGINS]


def test_a_plugin_that_fails_is_degraded_and_says_why(server):
    problem = "tier up (plugin attic, acme-attic 1.0) failed: put: OSError: gone"
    server.engine.report = HealthReport(
        status="degraded", problems=(problem,), plugins={"attic": (problem,)}
    )
    attic, cellar = server.http.get("/admin/plugins").json()
    assert (attic["state"], attic["failures"]) == ("degraded", [problem])
    assert (cellar["state"], cellar["failures"]) == ("unused", [])
    health = server.http.get("/health")
    assert health.status_code == 200
    assert health.json()["problems"] == [problem]


def test_plugins_want_the_api_key():
    fake = serve_fake()
    keyed = create_app(fake.engine, fake.text, ServerSection(api_keys=("k",)), plugins=PLUGINS)
    with running(Served(fake.engine, fake.text, keyed)) as live:
        assert live.http.get("/admin/plugins").status_code == 401
        keyed = live.http.get("/admin/plugins", headers={"authorization": "Bearer k"})
        assert len(keyed.json()) == 2


def command_line(*arguments):
    return CliRunner().invoke(app, ["plugins", *arguments])


def test_the_command_line_shows_the_plugins_of_a_running_server(server):
    shown = command_line("--server", server.url)
    assert shown.exit_code == 0, shown.output
    assert [line.split() for line in shown.stdout.splitlines()[1:]] == [
        ["attic", "acme-attic", "1.0", "1.0", "active", "tier:attic"],
        ["cellar", "acme-cellar", "1.0", "1.0", "unused", "tier:cellar"],
    ]


def test_the_command_line_names_what_fails_on_a_running_server(server):
    problem = "tier up (plugin attic, acme-attic 1.0) failed: put: OSError: gone"
    server.engine.report = HealthReport(
        status="degraded", problems=(problem,), plugins={"attic": (problem,)}
    )
    shown = command_line("--server", f"{server.url}/v1")
    assert shown.exit_code == 1
    assert shown.stderr == f"ninfer: {problem}\n"
    assert shown.stdout.splitlines()[1].split()[4] == "degraded"
    data = command_line("--server", server.url, "--json")
    assert json.loads(data.stdout)[0]["failures"] == [problem]


def test_the_command_line_says_why_a_server_does_not_answer():
    fake = serve_fake()
    keyed = create_app(fake.engine, fake.text, ServerSection(api_keys=("k",)), plugins=PLUGINS)
    with running(Served(fake.engine, fake.text, keyed)) as live:
        refused = command_line("--server", live.url)
        assert refused.exit_code == 1
        assert refused.stderr.endswith("answers 401 Unauthorized; send its key with --api-key\n")
        assert command_line("--server", live.url, "--api-key", "k").exit_code == 0
    gone = command_line("--server", live.url)
    assert gone.exit_code == 1
    assert "does not answer" in gone.stderr
    assert "is no address of a server" in command_line("--server", "file:///etc/passwd").stderr
