"""`/admin/plugins`: what is installed, as `ninfer plugins --json` lists it, and what fails right now."""

import pytest

from ninfer.config.sections import ServerSection
from ninfer.obs.health import HealthReport
from ninfer.server.app import create_app
from tests.integration.server.conftest import running
from tests.integration.server.fake_model import Served, serve_fake

PLUGINS = [
    {"name": "attic", "distribution": "acme-attic", "state": "active", "problems": []},
    {"name": "cellar", "distribution": "acme-cellar", "state": "unused", "problems": []},
]


@pytest.fixture
def server():
    fake = serve_fake()
    app = create_app(fake.engine, fake.text, ServerSection(), plugins=PLUGINS)
    with running(Served(fake.engine, fake.text, app)) as live:
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
    app = create_app(fake.engine, fake.text, ServerSection(api_keys=("k",)), plugins=PLUGINS)
    with running(Served(fake.engine, fake.text, app)) as live:
        assert live.http.get("/admin/plugins").status_code == 401
        keyed = live.http.get("/admin/plugins", headers={"authorization": "Bearer k"})
        assert len(keyed.json()) == 2
