"""`ninfer simulate`: what would more memory, or another policy, be worth? Runs without a model, a server or torch."""

import json
from math import inf
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from ninfer.api import ConfigError, PolicyProvider
from ninfer.cache.tier_space import WriteFilter, WriteRules
from ninfer.cli.exit_codes import errors_for_people
from ninfer.cli.output import print_table, progress
from ninfer.config.quantities import parse_bytes, parse_duration_s
from ninfer.plugins import PluginCatalog
from ninfer.simulate.capacity import parse_blocks
from ninfer.simulate.costs import Costs, with_calibration
from ninfer.simulate.plot import plot, require_matplotlib
from ninfer.simulate.replay import TIER_NAMES, ReplayOptions
from ninfer.simulate.report import header, remarks, rows, to_data
from ninfer.simulate.study import Study, study
from ninfer.simulate.trace import MOONCAKE_BLOCK_TOKENS, Trace, read_trace

_DEFAULT_POLICIES: Final = ("costmodel", "lru")


def simulate(  # noqa: PLR0913 - one parameter per flag
    trace_file: Annotated[
        Path,
        typer.Argument(metavar="TRACE", help="Mooncake trace or request log, JSON lines or .gz."),
    ],
    *,
    policy: Annotated[
        list[str] | None, typer.Option(help="Placement policy; may be given again.")
    ] = None,
    device: Annotated[
        str, typer.Option(help='Size: blocks ("2000"), "480k tokens" or "8GiB".')
    ] = "2000",
    host: Annotated[str, typer.Option(help="Size of host memory; without it, no such tier.")] = "",
    disk: Annotated[str, typer.Option(help="Size of the disk; without it, no such tier.")] = "",
    capacities: Annotated[
        str, typer.Option(metavar="A,B,C", help="Sizes of the slowest of these tiers to compare.")
    ] = "",
    bytes_per_token: Annotated[
        str, typer.Option(help="KV of one token of the model.")
    ] = f"{Costs().bytes_per_token}B",
    prefill_speed: Annotated[
        float, typer.Option(help="Prefill at the start of a prompt. Unit: tokens per second.")
    ] = 1 / Costs().seconds_per_token,
    retention: Annotated[
        str, typer.Option(help='Every request asks that its context stays so long ("300s").')
    ] = "0s",
    admit: Annotated[
        WriteFilter, typer.Option(help="What one-time contexts displace on the slowest tier.")
    ] = WriteFilter.ALL,
    max_write_per_day: Annotated[
        str, typer.Option(help="Most bytes written to the slowest tier in 24 hours.")
    ] = "0B",
    calibration: Annotated[
        Path | None, typer.Option(help="Speeds that the policy costmodel of a server measured.")
    ] = None,
    block_tokens: Annotated[
        int, typer.Option(min=1, help="Tokens of one block of a Mooncake trace.")
    ] = MOONCAKE_BLOCK_TOKENS,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write results here.")] = None,
    plot_file: Annotated[
        Path | None, typer.Option("--plot", help="Draw hit rate against capacity, PNG.")
    ] = None,
) -> None:
    """Replay a trace through the real store, planner and policies, and compare with what is possible.

    Exit status: 0 done, 2 a flag or the trace is wrong.
    """
    with errors_for_people():
        if plot_file is not None:
            require_matplotlib()
        for flag, path in (("--json", json_file), ("--plot", plot_file)):
            if path is not None and (path.is_dir() or not path.parent.is_dir()):
                raise ConfigError(f"{flag} {path}: no file can be written there")
        providers = _providers(policy or list(_DEFAULT_POLICIES))
        costs = _costs(bytes_per_token, prefill_speed, calibration)
        trace = read_trace(trace_file, block_tokens)
        sizes = _sizes(trace, costs, (device, host, disk), capacities)
        setup = _setup(retention, admit, max_write_per_day)
        studies = _run(trace, providers, sizes, costs, setup)
        print_table(header(len(sizes[0])), rows(studies))
        for line in remarks(studies):
            typer.echo(line)
        if json_file is not None:
            _write(json_file, json.dumps(to_data(trace, costs, studies), indent=1))
        if plot_file is not None:
            plot(plot_file, trace.name, studies)


def _providers(names: list[str]) -> list[PolicyProvider[Any]]:
    catalog = PluginCatalog.discover()
    return [catalog.policy(name)[0] for name in dict.fromkeys(names)]


def _costs(bytes_per_token: str, prefill_speed: float, calibration: Path | None) -> Costs:
    try:
        num_bytes = parse_bytes(bytes_per_token)
    except ValueError as error:
        raise ConfigError(f"--bytes-per-token: {error}") from error
    if num_bytes < 1:
        raise ConfigError(f"--bytes-per-token {bytes_per_token}: a token takes at least one byte")
    if not 0 < prefill_speed < inf:
        raise ConfigError(
            f"--prefill-speed {prefill_speed:g}: must be more than 0 tokens per second, and finite"
        )
    costs = Costs(bytes_per_token=num_bytes, seconds_per_token=1 / prefill_speed)
    return costs if calibration is None else with_calibration(costs, calibration)


def _sizes(
    trace: Trace, costs: Costs, texts: tuple[str, str, str], capacities: str
) -> list[tuple[int, ...]]:
    """Return blocks per tier for each study; the slowest tier takes the sizes to compare."""
    given = zip(TIER_NAMES, texts, strict=True)
    named = [(name, text) for name, text in given if text or name == TIER_NAMES[0]]
    if [name for name, _ in named] != list(TIER_NAMES[: len(named)]):
        raise ConfigError("--disk needs --host: tiers are filled from the fastest to the slowest")

    def blocks(flag: str, text: str) -> int:
        return parse_blocks(
            text,
            block_tokens=trace.block_tokens,
            bytes_per_token=costs.bytes_per_token,
            flag=flag,
        )

    fixed = tuple(blocks(f"--{name}", text) for name, text in named)
    if not capacities:
        return [fixed]
    swept = [blocks("--capacities", text) for text in capacities.split(",")]
    return [(*fixed[:-1], size) for size in swept]


def _run(
    trace: Trace,
    providers: list[PolicyProvider[Any]],
    sizes: list[tuple[int, ...]],
    costs: Costs,
    setup: ReplayOptions,
) -> list[Study]:
    num_steps = len(trace.requests) * len(providers) * len(sizes)
    with progress(f"replaying {trace.name}", num_steps) as advanced:
        return [
            study(trace, providers, capacities, costs, advanced, setup=setup)
            for capacities in sizes
        ]


def _setup(retention: str, admit: WriteFilter, max_write_per_day: str) -> ReplayOptions:
    try:
        seconds = parse_duration_s(retention)
    except ValueError as error:
        raise ConfigError(f"--retention: {error}") from error
    try:
        rules = WriteRules(filter=admit, max_bytes_per_day=parse_bytes(max_write_per_day))
    except ValueError as error:
        raise ConfigError(f"--max-write-per-day: {error}") from error
    return ReplayOptions(retention_s=seconds, rules=rules)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--json {path}: {error.strerror}") from error
