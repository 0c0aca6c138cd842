"""Commands from other threads run between steps and never keep a step from running."""

from tests.fakes.harness import Harness


def test_a_command_that_leaves_another_each_time_does_not_starve_steps():
    harness = Harness()
    answer = harness.submit([1] * 70, 4)
    num_runs = 0

    def again():
        nonlocal num_runs
        num_runs += 1
        if answer.finished:
            harness.loop.stop()
        else:
            assert num_runs < 1000
            harness.loop.command(again)

    harness.loop.command(again)
    harness.loop.run()
    assert answer.reason == "length"
    assert not harness.loop.failure
    harness.close()


def test_commands_run_in_the_order_they_were_left():
    harness = Harness()
    seen = []
    for number in range(5):
        harness.loop.command(lambda number=number: seen.append(number))
    harness.loop.drain_commands()
    assert seen == [0, 1, 2, 3, 4]
    harness.close()


def test_a_request_that_arrives_while_the_loop_stops_is_answered():
    harness = Harness()
    answers = []

    def late():
        answers.append(harness.submit([1] * 10, 4))

    harness.loop.stop()
    harness.loop.command(lambda: harness.loop.command(late))
    harness.loop.run()
    assert [answer.reason for answer in answers] == ["aborted"]
    harness.close()
