"""The guard alone: what is replaced, what is counted, what is forgiven, what is told."""

import threading
from asyncio import CancelledError

import pytest
from structlog.testing import capture_logs

from ninfer.core.plugin_guard import FORGIVENESS, PluginGuard, WrongAnswer
from ninfer.core.plugin_identity import PluginIdentity
from ninfer.engine.plugin_watch import HANG_S, PluginWatch
from ninfer.testing.clock import FakeClock

IDENTITY = PluginIdentity(
    family="policy", name="x", plugin="acme_plugin", distribution="acme-plugin 1.2"
)


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def guard(clock):
    return PluginGuard(IDENTITY, clock, budget_s=0.05, instead="lru answers")


def fail(*arguments):
    raise OSError(f"no {arguments}")


def instead(*arguments):
    return ("instead", *arguments)


def good(*arguments):
    return ("good", *arguments)


def test_a_good_answer_comes_back_with_its_arguments(guard):
    assert guard.ask("price", good, instead, 1, "b") == ("good", 1, "b")
    assert guard.problem == ""


def test_an_exception_is_replaced_and_named(guard):
    assert guard.ask("price", fail, instead, 1) == ("instead", 1)
    assert guard.problem == (
        "policy x (plugin acme_plugin, acme-plugin 1.2) failed: price: OSError: no (1,)"
    )
    assert not guard.is_aside


class Panic(BaseException):
    pass


class Speechless(Exception):
    def __str__(self):
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (Panic("out of bounds"), "Panic: out of bounds"),
        (CancelledError(), "CancelledError"),
        (GeneratorExit(), "GeneratorExit"),
        (SystemExit(3), "SystemExit: 3"),
        (Speechless(), "Speechless: its text cannot be made"),
    ],
)
def test_whatever_is_raised_is_a_fault(guard, error, text):
    def panic():
        raise error

    assert guard.ask("price", panic, lambda: "instead") == "instead"
    assert guard.problem.endswith(f"failed: price: {text}")
    guard.close(panic)


def test_only_the_main_thread_is_interrupted_by_the_user(guard):
    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        guard.ask("price", interrupt, instead)
    assert guard.problem == ""
    assert guard.busy_s() == 0.0
    thread = threading.Thread(target=guard.ask, args=("price", interrupt, instead))
    thread.start()
    thread.join()
    assert guard.problem.endswith("failed: price: KeyboardInterrupt")


def test_the_third_fault_of_a_method_puts_the_plugin_aside_for_good(guard):
    told = []
    guard.on_aside = lambda: told.append(guard.is_aside)
    for _ in range(3):
        guard.ask("price", fail, instead)
    assert guard.is_aside
    assert told == [True]
    assert guard.problem.endswith("; it is not asked any more, lru answers")
    assert guard.ask("price", good, instead) == ("instead",)
    guard.fault("price", "again")
    assert told == [True]


def test_faults_of_different_methods_do_not_add_up(guard):
    for method in "abcdef":
        guard.ask(method, fail, instead)
        guard.ask(method, fail, instead)
    assert not guard.is_aside


def test_good_calls_of_other_methods_forgive_nothing(guard):
    for _ in range(3):
        guard.ask("rare", fail, instead)
        for _ in range(1000):
            guard.ask("often", good, instead)
    assert guard.is_aside


def test_a_method_that_fails_less_often_than_it_is_forgiven_is_never_put_aside(guard):
    for number in range(2000):
        guard.ask("m", good if number % int(1 / FORGIVENESS + 2) else fail, instead)
    assert not guard.is_aside
    for _ in range(100):
        guard.ask("m", good, instead)
    assert guard.problem == ""


def test_slow_answers_are_used_and_counted(guard, clock):
    def slow():
        clock.advance(0.06)
        return "late"

    assert [guard.ask("m", slow, instead) for _ in range(3)] == ["late"] * 3
    assert guard.is_aside
    assert "m: took 0.06 s; a call may take 0.05 s" in guard.problem


def test_a_wrong_answer_is_told_without_the_name_of_our_exception(guard):
    def wrong():
        raise WrongAnswer("returned nan")

    guard.ask("m", wrong, instead)
    assert guard.problem.endswith("failed: m: returned nan")


def test_a_keyboard_interrupt_is_not_swallowed(guard):
    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        guard.ask("m", interrupt, instead)


def test_repeated_faults_write_few_lines(guard, clock):
    with capture_logs() as logs:
        for number in range(20):
            guard.ask(f"m{number}", fail, instead)
        clock.advance(11)
        guard.ask("m20", fail, instead)
    assert [entry["event"] for entry in logs] == ["plugin_failed"] * 2
    assert logs[0]["plugin"] == "acme_plugin"
    assert logs[0]["distribution"] == "acme-plugin 1.2"
    assert logs[0]["operation"] == "m0"


def test_a_call_that_does_not_return_is_seen_from_another_thread(guard, clock):
    gate, inside = threading.Event(), threading.Event()

    def hang():
        inside.set()
        gate.wait()
        return "at last"

    watch = PluginWatch([guard])
    answers = []
    thread = threading.Thread(target=lambda: answers.append(guard.ask("price", hang, instead)))
    thread.start()
    assert inside.wait(10)
    assert watch.hang() is None
    clock.advance(HANG_S + 1)
    plugin, problem = watch.hang()
    assert plugin == "acme_plugin"
    assert problem == (
        "policy x (plugin acme_plugin, acme-plugin 1.2) hangs: price has not returned for 11 s, "
        "and nothing is served until it does"
    )
    with capture_logs() as logs:
        watch.look()
        watch.look()
    assert [(entry["event"], entry["plugin"]) for entry in logs] == [
        ("plugin_hangs", "acme_plugin")
    ]
    gate.set()
    thread.join(10)
    assert answers == ["at last"]
    assert watch.hang() is None
    assert "took 11 s" in watch.problems()[0][1]


def test_closing_is_tried_also_after_the_plugin_was_put_aside(guard):
    closed = []
    for _ in range(3):
        guard.ask("m", fail, instead)
    guard.close(lambda: closed.append(1))
    assert closed == [1]


def test_a_close_that_raises_or_hangs_does_not_stop_the_shutdown(guard, monkeypatch):
    monkeypatch.setattr("ninfer.core.plugin_guard.CLOSE_DEADLINE_S", 0.01)
    gate = threading.Event()
    with capture_logs() as logs:
        guard.close(fail)
        guard.close(gate.wait)
    gate.set()
    assert logs[0]["operation"] == "close"
