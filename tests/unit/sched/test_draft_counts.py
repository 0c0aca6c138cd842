"""Acceptance by place in the draft."""

from ninfer.sched.draft_counts import DraftCounts


def test_guesses_are_counted_where_they_stood():
    counts = DraftCounts()
    for num_drafted, num_accepted in ((3, 2), (1, 0), (5, 5)):
        counts.add(num_drafted, num_accepted)
    assert counts.drafted == [3, 2, 2, 1, 1]
    assert counts.accepted == [2, 2, 1, 1, 1]
