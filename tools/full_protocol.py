"""The full-size cache protocol as one command: the public tools, unmodified, one after another on one server.

    make bench-full                          or  python tools/full_protocol.py
    python tools/full_protocol.py --variant disk --json full-disk.json

Starts a server with tiny-hybrid and `examples/full-protocol.toml` (or, variant "disk", a quarter of the host memory and a
disk), runs every tool without a restart in between, prints one table, writes JSON. Exit status 0 if everything passed.
`--scale 0.02` makes contexts and tiers smaller, to try it out; bounds stay, and at that
size some tools cannot tell a hit from a miss by its time. Run it alone on the machine.
"""

import argparse
import json
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ninfer.config.quantities import parse_bytes
from tools.cache_pressure import (
    MAX_ABORT_TRIES,
    VERSION,
    ToolRunner,
    has_stopped_early,
    install_tools,
)
from tools.local_server import LocalServer

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
VARIANTS = {"host": "full-protocol.toml", "disk": "full-protocol-disk.toml"}


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the table: what a tool found, and whether that is everything it asked for."""

    variant: str
    name: str
    passed: bool
    detail: str
    seconds: float


class Protocol:
    """Runs the tools against one server, in the agreed order."""

    def __init__(self, variant: str, server: LocalServer, runner: ToolRunner, scale: float) -> None:
        self._variant, self._server, self._runner, self._scale = variant, server, runner, scale
        self.checks: list[Check] = []
        self.found: dict[str, Any] = {}

    def run(self) -> None:
        """Run every tool; a failed one does not keep the others from running."""
        steps: tuple[Callable[[], tuple[str, bool, str]], ...] = (
            self._cache_pressure,
            self._agent_sim,
            self._abort_sim,
            self._needle_test,
            self._perf_sim,
        )
        for step in steps:
            begun = time.monotonic()
            name, passed, detail = step()
            seconds = time.monotonic() - begun
            self.checks.append(Check(self._variant, name, passed, detail, round(seconds, 1)))

    def _tokens(self, count: int) -> str:
        return str(round(count * self._scale))

    def _tool(self, name: str, *arguments: str) -> tuple[int, dict[str, Any]]:
        status, found = self._runner.run(name, *arguments)
        self.found[name] = found
        return status, found

    def _cache_pressure(self) -> tuple[str, bool, str]:
        arguments = ["--kv-size", self._tokens(480_000)]
        if self._scale != 1:
            arguments += ["--context-tokens", self._tokens(8000)]
        status, found = self._tool("cache-pressure", *arguments)
        retained, total = found.get("retained", 0), found.get("num_contexts", -1)
        detail = f"{retained}/{total} contexts retained, {found.get('retained_pct')}% of capacity"
        return "cache-pressure", status == 0 and retained == total, detail

    def _agent_sim(self) -> tuple[str, bool, str]:
        arguments = ["--sessions", "4", "--main-tokens", self._tokens(150_000)]
        arguments += ["--sub-tokens", self._tokens(40_000)]
        if self._scale != 1:
            arguments += ["--step-tokens", self._tokens(5000)]
        status, found = self._tool("agent-sim", *arguments, *self._log(), "--no-viz")
        summary = found.get("summary") or {}
        pairs = {
            "continuations reused": (summary.get("main_reused"), summary.get("main_total")),
            "final turns from cache": (summary.get("finalize_ok"), summary.get("finalize_total")),
            "sub windows cold": (summary.get("subs_cold"), summary.get("subs_total")),
        }
        detail = ", ".join(f"{some}/{total} {what}" for what, (some, total) in pairs.items())
        passed = status == 0 and all(total and some == total for some, total in pairs.values())
        return "agent-sim", passed, detail

    def _abort_sim(self) -> tuple[str, bool, str]:
        arguments = [] if self._scale == 1 else ["--context-tokens", self._tokens(40_000)]
        command = ("abort-sim", "--runs", "2", *arguments, *self._log())
        status, found = self._tool(*command)
        attempt = 1
        while has_stopped_early(found) and attempt < MAX_ABORT_TRIES:
            print("  the model ended its answer before the abort; again with other prompts")
            status, found = self._tool(*command)
            attempt += 1
        summary = found.get("summary") or {}
        reuse = ", ".join(
            f"{record.get('reuse') or 0:.1%} ({record.get('reuse_path') or record.get('error')})"
            for record in found.get("records") or []
        )
        detail = f"{summary.get('ok')}/{summary.get('runs')}, reuse {reuse}"
        if attempt > 1:
            detail += f", attempt {attempt}"
        return "abort-sim", status == 0, detail

    def _needle_test(self) -> tuple[str, bool, str]:
        lengths = ",".join(self._tokens(count) for count in (50_000, 100_000, 200_000))
        status, found = self._tool("needle-test", "--lengths", lengths)
        results = found.get("results") or []
        times = ", ".join(f"{r['prompt_tokens']:,}: {r['time_s']} s" for r in results)
        return "needle-test", status == 0, f"{sum(r['ok'] for r in results)}/3 found ({times})"

    def _perf_sim(self) -> tuple[str, bool, str]:
        # Its steps are meant in tokens of four characters; the small vocabulary of tiny-hybrid needs two for that.
        arguments = ["--max-context", self._tokens(120_000)]
        if self._scale != 1:
            arguments += ["--step-tokens", self._tokens(25_000)]
        status, found = self._tool("perf-sim", *arguments)
        summary = found.get("summary") or {}
        detail = f"{summary.get('completed')}/{summary.get('steps')} steps"
        return "perf-sim", status == 0, detail

    def _log(self) -> tuple[str, str]:
        return "--ninfer-log", str(self._server.request_log)


def run_variant(variant: str, scale: float, settings: list[str], scripts: Path) -> Protocol:
    """Start a server, run the tools, stop it; its files are gone afterwards."""
    config = EXAMPLES / VARIANTS[variant]
    with tempfile.TemporaryDirectory(prefix="ninfer-full-") as name:
        folder = Path(name)
        sizes = _smaller(config, scale) if scale != 1 else []
        server = LocalServer(folder, config=config, settings=(*sizes, *settings))
        server.start()
        protocol = Protocol(variant, server, ToolRunner(server, scripts, folder), scale)
        try:
            protocol.run()
            status = server.stop()
            exit_detail = f"exit status {status}"
            protocol.checks.append(Check(variant, "server stops", status == 0, exit_detail, 0.0))
        finally:
            server.kill()
    return protocol


def _smaller(config: Path, scale: float) -> list[str]:
    """Settings that make device and tiers smaller."""
    settings = tomllib.loads(config.read_text(encoding="utf-8"))
    tiers = settings["cache"]["tiers"]
    for tier in tiers:
        tier["capacity"] = round(parse_bytes(tier["capacity"]) * scale)
    device_tokens = round(settings["engine"]["kv_capacity"] * scale)
    return [
        f"engine.kv_capacity={device_tokens}",
        f"cache.tiers=[{', '.join(map(_inline, tiers))}]",
    ]


def _inline(table: dict[str, str | int]) -> str:
    """Write a table as TOML on one line."""
    return "{" + ", ".join(f"{key} = {json.dumps(value)}" for key, value in table.items()) + "}"


def print_table(checks: list[Check]) -> None:
    print(f"\n{'variant':<8} {'tool':<16} {'passed':<7} {'seconds':>8}  detail")
    for check in checks:
        verdict = "yes" if check.passed else "NO"
        print(
            f"{check.variant:<8} {check.name:<16} {verdict:<7} {check.seconds:>8.1f}  {check.detail}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--variant", choices=[*VARIANTS, "both"], default="both")
    parser.add_argument("--json", type=Path, default=Path("full-protocol.json"))
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full size, to try")
    parser.add_argument(
        "--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="settings of ninfer"
    )
    parser.add_argument("--tools", type=Path, default=Path(sys.prefix) / "public-tools")
    args = parser.parse_args()
    scripts = install_tools(args.tools)
    variants = list(VARIANTS) if args.variant == "both" else [args.variant]
    checks: list[Check] = []
    found: dict[str, Any] = {}
    for variant in variants:
        protocol = run_variant(variant, args.scale, args.set, scripts)
        checks += protocol.checks
        found[variant] = protocol.found
        print_table(checks)
        result = {
            "passed": all(check.passed for check in checks),
            "cache_pressure": VERSION,
            "scale": args.scale,
            "checks": [asdict(check) for check in checks],
            "found": found,
        }
        args.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return 0 if all(check.passed for check in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
