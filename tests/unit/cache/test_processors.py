"""Threads that share the processors out: each has its own, and has all of them back afterwards."""

import os
import sys
import threading

import pytest

from ninfer.cache.processors import own_processors

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="Linux lets threads choose")


def in_a_thread(run):
    found = []
    thread = threading.Thread(target=lambda: found.append(run()))
    thread.start()
    thread.join()
    return found[0]


def shares(num_threads):
    def share(number):
        with own_processors(number, num_threads):
            inside = os.sched_getaffinity(0)
        return inside, os.sched_getaffinity(0)

    return [in_a_thread(lambda number=number: share(number)) for number in range(num_threads)]


@on_linux
def test_shares_are_disjoint_and_together_all_that_is_allowed():
    allowed = os.sched_getaffinity(0)
    num_threads = min(2, len(allowed))
    found = shares(num_threads)
    assert set.union(*(inside for inside, _ in found)) == allowed
    assert sum(len(inside) for inside, _ in found) == len(allowed)
    assert all(after == allowed for _, after in found)


@on_linux
def test_more_threads_than_processors_keep_what_they_have():
    allowed = os.sched_getaffinity(0)
    for inside, after in shares(len(allowed) + 1):
        assert inside == after == allowed


@on_linux
@pytest.mark.parametrize("call", ["sched_getaffinity", "sched_setaffinity"])
def test_a_system_that_refuses_is_let_alone(monkeypatch, call):
    get = os.sched_getaffinity
    allowed = get(0)

    def refuse(*_):
        raise PermissionError(1, "not allowed")

    monkeypatch.setattr(os, call, refuse)
    with own_processors(0, 1):
        assert get(0) == allowed


@on_linux
def test_a_system_that_refuses_to_give_them_back_is_no_error(monkeypatch):
    real, calls = os.sched_setaffinity, []

    def once(*arguments):
        calls.append(arguments)
        if len(calls) > 1:
            raise OSError(22, "those processors are gone")
        real(*arguments)

    def run():
        monkeypatch.setattr(os, "sched_setaffinity", once)
        with own_processors(0, 1):
            pass

    in_a_thread(run)
    assert len(calls) == 2


@on_linux
def test_processors_come_back_after_an_error():
    def run():
        before = os.sched_getaffinity(0)
        with pytest.raises(ZeroDivisionError), own_processors(0, 2):
            raise ZeroDivisionError
        return before == os.sched_getaffinity(0)

    assert in_a_thread(run)


def test_other_systems_are_let_alone(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with own_processors(0, 2):
        pass
