"""`make bench` and `make bench-disk`: measure everything of a suite in one run and print one table.

    python -m benchmarks.run [--suite disk] [--only FAMILY ...] [--json FILE] [--quick]

The exit status is 1 if a family failed; in the suite "disk" also if a bound was missed.

Every family of rows runs in a process of its own, one after another. Run it alone on the machine: two busy processes
on two cores make everything several times slower.
"""

import argparse
import datetime
import importlib
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.served import THREADS, Bench
from benchmarks.table import Row, table
from ninfer.config.openmp import wait_briefly

SPEED = (
    "decode",
    "accuracy",
    "prefill",
    "ttft",
    "transfers",
    "admission",
    "interference",
    "memory",
    "startup",
    "growth",
    "hybrid",
    "hybrid_mtp",
    "hybrid_ttft",
)
DISK = ("disk_bandwidth", "disk_tokens", "disk_ttft", "disk_startup")
SUITES = {"speed": SPEED, "disk": DISK}
FAMILIES = (*SPEED, *DISK)
JUDGED = {"disk"}
"""Suites whose exit status is 1 too when a bound is missed."""

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    args = _arguments()
    if args.child:
        return _measure_one(args)
    folder = args.folder.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    rows: list[Row] = []
    failed, took = [], {}
    for family in args.only or SUITES[args.suite]:
        start_s = time.perf_counter()
        found = _run_child(family, folder, is_quick=args.quick)
        took[family] = round(time.perf_counter() - start_s, 1)
        print(f"{family}: {took[family]} s" + ("" if found else " FAILED"), file=sys.stderr)
        if found is None:
            failed.append(family)
        rows += found or []
    facts = _machine(folder)
    print("\n".join(f"{key}: {value}" for key, value in facts.items()))
    print(f"seconds: {sum(took.values()):.0f}\n")
    print(table(rows))
    missed = [row.figure for row in rows if row.verdict == "MISS"]
    for label, names in (("missed", missed), ("failed", failed)):
        if names:
            print(f"\n{label}: {'; '.join(names)}")
    if args.json is not None:
        content = {**facts, "seconds": took, "failed": failed, "is_quick": args.quick}
        content["rows"] = [row.as_json() for row in rows]
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    shutil.rmtree(folder, ignore_errors=True)
    return 1 if failed or (missed and args.suite in JUDGED) else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--suite", choices=SUITES, default="speed", help="which families of rows")
    parser.add_argument("--only", nargs="+", choices=FAMILIES, help="these families of rows")
    parser.add_argument("--json", type=Path, help="file that gets every number")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it works")
    parser.add_argument(
        "--folder", type=Path, default=ROOT / "build" / "bench", help="scratch folder, emptied"
    )
    parser.add_argument("--child", choices=FAMILIES, help=argparse.SUPPRESS)
    return parser.parse_args()


def _run_child(family: str, folder: Path, *, is_quick: bool) -> list[Row] | None:
    result = folder / f"{family}.json"
    command = [sys.executable, "-m", "benchmarks.run", "--child", family]
    command += ["--folder", str(folder), "--json", str(result), *["--quick"] * is_quick]
    environ = {**os.environ, "OMP_NUM_THREADS": str(THREADS), "PYTHONPATH": str(ROOT)}
    wait_briefly(environ)
    if subprocess.run(command, env=environ, check=False).returncode:
        return None
    return [Row.from_json(row) for row in json.loads(result.read_text(encoding="utf-8"))]


def _measure_one(args: argparse.Namespace) -> int:
    bench = Bench(folder=args.folder, is_quick=args.quick)
    rows = importlib.import_module(f"benchmarks.{args.child}").measure(bench)
    for row in rows:
        row.family = args.child
    args.json.write_text(json.dumps([row.as_json() for row in rows]), encoding="utf-8")
    return 0


def _machine(folder: Path) -> dict[str, Any]:
    import torch

    capability = torch.backends.cpu.get_cpu_capability()
    return {
        "machine": f"{_cpu_name()}, {os.cpu_count()} cores, {capability}",
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1),
        "load_at_end": os.getloadavg(),
        "file_system": _file_system(folder),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "threads": THREADS,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _file_system(folder: Path) -> str:
    command = ["stat", "--file-system", "--format=%T", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
