"""Runs conformance suites in this process, without a test file. Knows nothing about which plugins are installed."""

import contextlib
import io
import shutil
import tempfile
import threading
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

from ninfer.testing.base import ConformanceSuite
from ninfer.testing.report import Outcome, Verdict
from ninfer.testing.requirement import Requirement

_ENTRY: Final = "suites.bound"
"""An empty file that pytest is pointed at; its contents are the classes handed over."""

_ARGUMENTS: Final = (
    "--quiet",
    "--tb=no",
    "--capture=sys",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:asyncio",
    "-p",
    "no:faulthandler",
)

STUCK_S: Final = 60.0
"""A test that takes longer than this is reported while it runs: the plugin may hang."""

OnOutcome = Callable[[str, Outcome], None]
OnStuck = Callable[[str, Requirement], None]


class RunBroken(Exception):
    """pytest itself did not work; the text has its output."""


def ignore_outcome(label: str, outcome: Outcome) -> None:
    """Do nothing with an outcome while the run goes on."""
    del label, outcome


def ignore_stuck(label: str, requirement: Requirement) -> None:
    """Do nothing about a test that takes long."""
    del label, requirement


def run_suites(
    suites: Mapping[str, type[ConformanceSuite]],
    *,
    folder: Path | None = None,
    only: Collection[str] = (),
    on_outcome: OnOutcome = ignore_outcome,
    on_stuck: OnStuck = ignore_stuck,
) -> dict[str, list[Outcome]]:
    """Run suites one after another and return what became of each requirement.

    Args:
        suites: label -> complete suite, see `ConformanceSuite.bound_to`.
        folder: where tests work; kept. None uses a temporary folder that is deleted afterwards.
        only: ids of requirements to look at; empty for all.
        on_outcome: called with label and outcome as soon as each is known. Standard output and error are
            redirected meanwhile; write to a stream taken before.
        on_stuck: called from another thread with label and requirement of a test that runs for `STUCK_S`.

    Returns:
        label -> outcomes in the order of requirement ids.

    Raises:
        RunBroken: pytest stopped for another reason than a failed test.
        KeyboardInterrupt: the user stopped the run.
    """
    with _work_folder(folder) as work:
        (work / _ENTRY).touch()
        (work / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        judge = _Judge(suites, work / _ENTRY, only, on_outcome, on_stuck)
        output = io.StringIO()
        arguments = [str(work / _ENTRY), *_ARGUMENTS]
        arguments += ["-c", str(work / "pytest.ini"), "--rootdir", str(work)]
        arguments += ["--basetemp", str(work / "tests")]
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            code = pytest.main(arguments, plugins=[judge])
    if code == pytest.ExitCode.INTERRUPTED:
        raise KeyboardInterrupt
    if code not in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED}:
        raise RunBroken(f"pytest ended with {code!r}\n{output.getvalue()}")
    return {
        label: sorted(found.values(), key=lambda outcome: outcome.requirement_id)
        for label, found in judge.outcomes.items()
    }


@contextlib.contextmanager
def _work_folder(folder: Path | None) -> Iterator[Path]:
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
        return
    temporary = Path(tempfile.mkdtemp(prefix="ninfer-conformance-"))
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


class _Judge:
    """A pytest plugin that hands over the suites and writes down the verdicts.

    Attributes:
        outcomes: label -> requirement id -> outcome.
    """

    def __init__(
        self,
        suites: Mapping[str, type[ConformanceSuite]],
        entry: Path,
        only: Collection[str],
        on_outcome: OnOutcome,
        on_stuck: OnStuck,
    ) -> None:
        self.outcomes: dict[str, dict[str, Outcome]] = {label: {} for label in suites}
        self._entry = entry
        self._only = only
        self._on_outcome = on_outcome
        self._on_stuck = on_stuck
        self._module = ModuleType("ninfer_conformance")
        self._labels: dict[str, str] = {}
        for number, (label, suite) in enumerate(suites.items()):
            name = f"Test{number}"
            self._labels[name] = label
            vars(self._module)[name] = suite.derived(name, {})

    def pytest_collect_file(
        self, file_path: Path, parent: pytest.Collector
    ) -> pytest.Collector | None:
        """Give pytest the module of suites for the entry file."""
        if file_path != self._entry:
            return None
        module = pytest.Module.from_parent(parent, path=file_path)
        module.obj = self._module
        return module

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep the tests of requirements that are wanted, in the order of labels and ids."""
        labels = list(self.outcomes)
        wanted = []
        for item in items:
            place = self._place(item)
            if place and (not self._only or place[1].requirement_id in self._only):
                wanted.append((labels.index(place[0]), place[1].requirement_id, item))
        items[:] = [item for *_, item in sorted(wanted, key=lambda entry: entry[:2])]

    def _place(self, item: pytest.Item) -> tuple[str, Requirement] | None:
        """Return label and requirement of a test; None if it tests no requirement."""
        if not isinstance(item, pytest.Function) or item.cls is None:
            return None
        for known in item.cls.requirements.values():
            if known.test_name == item.originalname:
                return self._labels[item.cls.__name__], known
        return None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Watch how long a test takes."""
        watch = threading.Timer(STUCK_S, self._on_stuck, self._place(item))
        watch.daemon = True
        watch.start()
        try:
            return (yield)
        finally:
            watch.cancel()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Write down what a phase of a test says about its requirement."""
        report = yield
        place = self._place(item)
        if place is not None and (report.when == "call" or report.outcome != "passed"):
            self._note(place[0], place[1], report, call)
        if place is not None and report.when == "teardown":
            label, known = place
            self._on_outcome(label, self.outcomes[label][known.requirement_id])
        return report

    def _note(
        self,
        label: str,
        known: Requirement,
        report: pytest.TestReport,
        call: pytest.CallInfo[None],
    ) -> None:
        verdict, reason = _judgement(report)
        example: tuple[str, ...] = ()
        if verdict is Verdict.FAIL and call.excinfo is not None:
            reason, example = _explanation(call.excinfo)
        outcome = Outcome(
            requirement_id=known.requirement_id,
            sentence=known.sentence,
            verdict=verdict,
            reason=reason,
            example=example,
        )
        self.outcomes[label][known.requirement_id] = outcome


def _judgement(report: pytest.TestReport) -> tuple[Verdict, str]:
    if report.outcome == "passed":
        return Verdict.OK, ""
    if report.outcome == "failed":
        return Verdict.FAIL, str(report.longrepr or "")
    known = vars(report).get("wasxfail")
    if known is not None:
        return Verdict.KNOWN, str(known).removeprefix("reason: ")
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return Verdict.NOT_APPLICABLE, reason.removeprefix("Skipped: ")


def _explanation(excinfo: pytest.ExceptionInfo[BaseException]) -> tuple[str, tuple[str, ...]]:
    """Return what went wrong, and the smallest example if hypothesis found one."""
    error = excinfo.value
    reason = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
    if not isinstance(error, AssertionError):
        last = excinfo.traceback[-1]
        reason += f"\nraised at {last.path}:{last.lineno + 1}"
    notes = vars(error).get("__notes__", [])
    lines = [line for note in notes for line in str(note).splitlines()]
    return reason, tuple(line for line in lines if line.strip())
