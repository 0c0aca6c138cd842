"""`ninfer conformance`: does an installed plugin keep the contract? Needs the extra `ninfer[testing]`."""

import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from ninfer import __version__
from ninfer.api import API_VERSION
from ninfer.cli.exit_codes import CONFIG_ERROR, FAILED, PLUGIN_ERROR
from ninfer.core.plugin_guard import describe, is_interrupt
from ninfer.plugins import Family, PluginCatalog, PluginRecord
from ninfer.plugins.record import Offer
from ninfer.plugins.report import problem_lines
from ninfer.plugins.suspects import may_offer

if TYPE_CHECKING:
    from ninfer.testing.report import Outcome
    from ninfer.testing.requirement import Requirement

_NEEDED: Final = ("pytest", "hypothesis")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Subject:
    """One kind that is looked at, and what was found.

    Attributes:
        record: the plugin that offers it.
        offer: the kind.
        outcomes: one per requirement.
        problem: why nothing could be looked at; empty if it could.
    """

    record: PluginRecord
    offer: Offer
    outcomes: tuple["Outcome", ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Effort:
    """How to look: profile, wanted requirements, seed, folder to keep."""

    profile: str
    only: frozenset[str]
    seed: int | None
    folder: Path | None


def conformance(  # noqa: PLR0913 - one parameter per flag
    kind: Annotated[Family | None, typer.Argument(help="What the plugin is.")] = None,
    name: Annotated[
        str | None, typer.Argument(help="Its kind, as in ninfer.toml, for example disk.")
    ] = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="All installed plugins.")] = False,
    profile: Annotated[
        Literal["quick", "full", "soak"], typer.Option(help="Seconds, minutes or hours.")
    ] = "quick",
    only: Annotated[
        list[str] | None, typer.Option(help="Only this requirement, for example TIER-07.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of random inputs; without it, the same every time.")
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write results here.")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the folders of tests.")] = False,
) -> None:
    """Run the conformance suite of a contract on installed plugins.

    Exit status: 0 conformant, 1 not, 2 no such plugin, 3 the plugin is broken.
    """
    missing = [module for module in _NEEDED if find_spec(module) is None]
    if missing:
        typer.echo(
            f"ninfer: conformance suites need {' and '.join(missing)}; "
            "try: python -m pip install 'ninfer[testing]'",
            err=True,
        )
        raise typer.Exit(FAILED)
    if every == (kind is not None) or (kind is None) != (name is None):
        typer.echo(
            "ninfer: name a plugin, for example: conformance tier disk; or use --all", err=True
        )
        raise typer.Exit(CONFIG_ERROR)
    catalog = PluginCatalog.discover()
    broken = _report_broken(catalog, kind, name)
    subjects = _subjects(catalog, kind, name)
    if not subjects and not broken:
        _explain_absence(catalog, kind, name)
        raise typer.Exit(CONFIG_ERROR)
    if only:
        _refuse_unknown_ids(subjects, only)
    if json_file is not None and (json_file.is_dir() or not json_file.parent.is_dir()):
        typer.echo(f"ninfer: --json {json_file}: no file can be written there", err=True)
        raise typer.Exit(CONFIG_ERROR)
    folder = Path(tempfile.mkdtemp(prefix="ninfer-conformance-")) if keep else None
    effort = _Effort(profile=profile, only=frozenset(only or ()), seed=seed, folder=folder)
    done = [_examine(subject, effort) for subject in subjects]
    if folder is not None:
        typer.echo(f"kept {folder}")
    if json_file is not None:
        _write(json_file, json.dumps(_to_data(done, effort), indent=2) + "\n")
    raise typer.Exit(_exit_code(done, is_broken=bool(broken)))


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        typer.echo(f"ninfer: --json {path}: {error.strerror}", err=True)
        raise typer.Exit(CONFIG_ERROR) from None


def _report_broken(
    catalog: PluginCatalog, kind: Family | None, name: str | None
) -> list[PluginRecord]:
    """Print and return the broken plugins that are meant."""
    meant = [
        record
        for record in catalog.broken()
        if kind is None or (name and not catalog.has(kind, name) and may_offer(record, kind, name))
    ]
    for record in meant:
        typer.echo(f"{record.name} from {record.origin} is broken", err=True)
        for problem in record.problems:
            typer.echo("\n".join(problem_lines(problem)), err=True)
    return meant


def _subjects(catalog: PluginCatalog, kind: Family | None, name: str | None) -> list[_Subject]:
    found = [
        _Subject(record=record, offer=offer)
        for record in catalog.records
        if not record.is_broken
        for offer in record.offers
        if kind is None or (offer.family, offer.kind) == (kind, name)
    ]
    return sorted(found, key=lambda subject: list(Family).index(subject.offer.family))


def _explain_absence(catalog: PluginCatalog, kind: Family | None, name: str | None) -> None:
    typer.echo(f"ninfer: no {kind or 'plugin'} {name!r} is installed; there is", err=True)
    for family in Family:
        names = ", ".join(catalog.kinds(family)) or "none"
        typer.echo(f"  {family:<8} {names}", err=True)


def _refuse_unknown_ids(subjects: Sequence[_Subject], only: Sequence[str]) -> None:
    from ninfer.testing.imports import REQUIREMENT_ID  # noqa: PLC0415 - needs the extra
    from ninfer.testing.kinds import suite_of  # noqa: PLC0415

    known = {key for s in subjects for key in suite_of(s.offer.family).requirements}
    known.add(REQUIREMENT_ID)
    unknown = sorted(set(only) - known)
    if unknown:
        typer.echo(
            f"ninfer: there is no requirement {', '.join(unknown)}; there is {', '.join(sorted(known))}",
            err=True,
        )
        raise typer.Exit(CONFIG_ERROR)


def _examine(subject: _Subject, effort: _Effort) -> _Subject:
    """Run the suite of one kind; print each outcome as soon as it is known."""
    from ninfer.testing.imports import (  # noqa: PLC0415 - needs the extra
        REQUIREMENT_ID,
        judge_imports,
    )
    from ninfer.testing.kinds import suite_of  # noqa: PLC0415
    from ninfer.testing.report import is_conformant, summary  # noqa: PLC0415
    from ninfer.testing.runner import STUCK_S, RunBroken, run_suites  # noqa: PLC0415

    stream, errors, label = sys.stdout, sys.stderr, subject.offer.label
    suite = suite_of(subject.offer.family)
    wanted = effort.only & {REQUIREMENT_ID, *suite.requirements}
    if effort.only and not wanted:
        return subject
    typer.echo(f"{subject.offer.family} {subject.offer.kind!r} from {subject.record.origin}")
    problem = _sample_problem(subject.offer)
    if problem:
        typer.echo(f"  broken: {problem}")
        return replace(subject, problem=problem)

    def show(_label: str, outcome: "Outcome") -> None:
        typer.echo("\n".join(outcome.lines()), file=stream)
        stream.flush()

    def show_stuck(_label: str, known: "Requirement") -> None:
        text = f"  {known.requirement_id} still runs after {STUCK_S:.0f} s; stop it with Ctrl-C"
        typer.echo(text, file=errors)

    outcomes = []
    if not effort.only or REQUIREMENT_ID in wanted:
        outcomes.append(judge_imports(subject.record.entry_point))
        show(label, outcomes[0])
    if wanted != {REQUIREMENT_ID}:
        bound = suite.bound_to(subject.offer.provider).derived(
            "Bound", {"profile": effort.profile, "seed": effort.seed}
        )
        folder = effort.folder and effort.folder / label.replace(":", "-")
        try:
            found = run_suites(
                {label: bound},
                folder=folder,
                only=wanted,
                on_outcome=show,
                on_stuck=show_stuck,
            )
        except RunBroken as error:
            typer.echo(f"  broken: {error}")
            return replace(subject, problem=str(error))
        outcomes += found[label]
    verdict = "conformant" if is_conformant(outcomes) else "NOT conformant"
    typer.echo(f"  {verdict}: {summary(outcomes)}\n")
    return replace(subject, outcomes=tuple(outcomes))


def _sample_problem(offer: Offer) -> str:
    """Return what is wrong with the sample configuration, empty if nothing."""
    with tempfile.TemporaryDirectory(prefix="ninfer-sample-") as folder:
        try:
            sample = offer.provider.sample_config(Path(folder))
        except BaseException as error:
            if is_interrupt(error):
                raise
            return f"sample_config raised {describe(error)}"
    if isinstance(sample, offer.provider.config):
        return ""
    return (
        f"sample_config returned a {type(sample).__name__}, not a {offer.provider.config.__name__}"
    )


def _exit_code(done: Sequence[_Subject], *, is_broken: bool) -> int:
    from ninfer.testing.report import is_conformant  # noqa: PLC0415 - needs the extra

    if is_broken or any(subject.problem for subject in done):
        return PLUGIN_ERROR
    looked_at = [subject for subject in done if subject.outcomes]
    return 0 if all(is_conformant(subject.outcomes) for subject in looked_at) else FAILED


def _to_data(done: Sequence[_Subject], effort: _Effort) -> dict[str, object]:
    from ninfer.testing.report import is_conformant  # noqa: PLC0415 - needs the extra

    return {
        "ninfer": __version__,
        "api_version": f"{API_VERSION[0]}.{API_VERSION[1]}",
        "profile": effort.profile,
        "seed": effort.seed,
        "only": sorted(effort.only),
        "plugins": [
            {
                "type": subject.offer.family.value,
                "kind": subject.offer.kind,
                "plugin": subject.record.name,
                "distribution": subject.record.distribution,
                "version": subject.record.version,
                "api_version": ".".join(str(part) for part in subject.record.api or ()),
                "conformant": is_conformant(subject.outcomes),
                "problem": subject.problem,
                "requirements": [outcome.to_data() for outcome in subject.outcomes],
            }
            for subject in done
            if subject.outcomes or subject.problem
        ],
    }
