"""Runs the public `cache-pressure` tools, unmodified, against `ninfer serve` with SmolLM2 and small tiers.

The tools run one after another on one server: device 4,096 tokens, host 8,192, disk for the rest. Then the server is
restarted and the newest contexts are asked again; they must come from the disk. Exit status 0 if everything passed.

    python tools/public_tools.py --output public-tools.json
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import httpx

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tools.cache_pressure import (
    MAX_ABORT_TRIES,
    VERSION,
    ToolRunner,
    has_stopped_early,
    install_tools,
)
from tools.local_server import LocalServer

DEVICE_TOKENS, HOST_TOKENS, DISK_BYTES = 4096, 8192, 4 << 30
NUM_NEWEST = 4
DEFAULT_ABORT_BUDGET = 32_768
WORDS = [
    "alpha",
    "beta",
    "gamma",
    "delta",
    "river",
    "stone",
    "cloud",
    "paper",
    "green",
    "seven",
    "window",
    "engine",
    "garden",
    "letter",
]


class Tools:
    """Runs the tools against one server and collects rows (name, passed, detail)."""

    def __init__(self, server: LocalServer, scripts: Path, folder: Path) -> None:
        self.server = server
        self._runner = ToolRunner(server, scripts, folder)
        self.run = self._runner.run
        self.rows: list[dict] = []

    def note(self, name: str, passed: bool, detail: str) -> None:
        self.rows.append({"check": name, "passed": passed, "detail": detail})

    def cache_pressure(self) -> None:
        begun = time.monotonic()
        status, found = self.run("cache-pressure", "--kv-size", "4096", "--context-tokens", "512")
        retained, wanted = found.get("retained", 0), found.get("num_contexts", -1)
        detail = f"{retained}/{wanted} retained, {found.get('retained_pct')}% of capacity"
        self.note("cache-pressure", status == 0 and retained == wanted, _timed(detail, begun))

    def agent_sim(self) -> None:
        begun = time.monotonic()
        sizes = {"main": 3000, "sub": 800, "step": 500, "finalize": 200}
        arguments = [part for key, n in sizes.items() for part in (f"--{key}-tokens", str(n))]
        status, found = self.run(
            "agent-sim", "--sessions", "2", *arguments, "--max-tokens", "16", "--no-viz"
        )
        summary = found.get("summary") or {}
        pairs = {
            "reused": (summary.get("main_reused"), summary.get("main_total")),
            "finals from cache": (summary.get("finalize_ok"), summary.get("finalize_total")),
            "subs cold": (summary.get("subs_cold"), summary.get("subs_total")),
        }
        passed = status == 0 and all(ok == total for ok, total in pairs.values())
        detail = ", ".join(f"{ok}/{total} {name}" for name, (ok, total) in pairs.items())
        self.note("agent-sim", passed, _timed(detail, begun))

    def abort_sim(self) -> None:
        """Both runs have to reach the point of the abort, which a small model's early stop can prevent."""
        for attempt in range(1, MAX_ABORT_TRIES + 1):
            begun = time.monotonic()
            status, found = self.run(
                "abort-sim",
                *("--context-tokens", "2000", "--thinking-tokens", "60", "--runs", "2"),
                # The tool asks for 32,768 tokens and refuses to start on a model that says it has less; the server
                # is to clamp that itself.
                *("--max-context", str(DEFAULT_ABORT_BUDGET + 2000), "--salt", str(attempt)),
            )
            summary, records = found.get("summary") or {}, found.get("records") or []
            reuse = ", ".join(f"{record.get('reuse') or 0:.1%}" for record in records)
            detail = f"{summary.get('ok')}/{summary.get('runs')} runs, reuse {reuse}"
            if has_stopped_early(found) and attempt < MAX_ABORT_TRIES:
                print("  the model ended its answer before the abort; again with another salt")
                continue
            if attempt > 1:
                detail += f", attempt {attempt}"
            self.note("abort-sim", status == 0, _timed(detail, begun))
            return

    def restart(self) -> None:
        """Ask the newest contexts, restart, and ask them again."""
        contexts = [_context(number) for number in range(NUM_NEWEST)]
        for context in contexts:
            self._ask(context)
        begun = time.monotonic()
        status = self.server.stop()
        self.note("stop", status == 0, _timed(f"exit status {status}", begun))
        begun = time.monotonic()
        self.server.start()
        self.note("start", passed=True, detail=_timed("healthy", begun))
        for number, context in reversed(list(enumerate(contexts))):
            usage, record = self._ask(context)
            cached = usage["prompt_tokens_details"]["cached_tokens"]
            disk_bytes = record["restored_bytes"].get("disk", 0)
            passed = cached >= usage["prompt_tokens"] - 64 and disk_bytes > 0
            detail = f"{cached}/{usage['prompt_tokens']} tokens cached, {disk_bytes:,} B from disk"
            self.note(f"after restart, context {number}", passed, detail)

    def _ask(self, content: str) -> tuple[dict, dict]:
        answer = httpx.post(
            f"{self.server.base_url}/chat/completions",
            json={
                "model": "smollm2",
                "messages": [{"role": "user", "content": content}],
                "max_tokens": 1,
            },
            timeout=300,
        )
        answer.raise_for_status()
        body = answer.json()
        return body["usage"], _record_of(self.server, body["id"])


def _record_of(server: LocalServer, request_id: str) -> dict:
    """The record is written just after the answer."""
    for _ in range(100):
        for record in reversed(server.requests()):
            if record["request"]["request_id"] == request_id:
                return record
        time.sleep(0.05)
    raise RuntimeError(f"no record of {request_id} in the request log")


def _context(number: int) -> str:
    """About 900 tokens, different from the first word on."""
    words = [WORDS[(number * 5 + index * (number + 3)) % len(WORDS)] for index in range(850)]
    return f"Note {number}: " + " ".join(words)


def _timed(detail: str, begun: float) -> str:
    return f"{detail}, {time.monotonic() - begun:.1f} s"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, help="write the table as JSON")
    parser.add_argument(
        "--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="settings of ninfer"
    )
    parser.add_argument("--tools", type=Path, default=Path(sys.prefix) / "public-tools")
    args = parser.parse_args()
    scripts = install_tools(args.tools)
    with tempfile.TemporaryDirectory(prefix="ninfer-tools-") as name:
        folder = Path(name)
        server = LocalServer(
            folder,
            device_tokens=DEVICE_TOKENS,
            host_tokens=HOST_TOKENS,
            disk_bytes=DISK_BYTES,
            settings=("engine.max_concurrency=2", *args.set),
        )
        server.start()
        tools = Tools(server, scripts, folder)
        try:
            for step in (tools.cache_pressure, tools.agent_sim, tools.abort_sim, tools.restart):
                step()
        finally:
            server.kill()
    print(f"\n{'check':<28} {'passed':<7} detail")
    for row in tools.rows:
        print(f"{row['check']:<28} {'yes' if row['passed'] else 'NO':<7} {row['detail']}")
    passed = all(row["passed"] for row in tools.rows)
    if args.output:
        result = {"passed": passed, "cache_pressure": VERSION, "checks": tools.rows}
        args.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
