"""The ladder: however deep an edit, little that was there before is computed again."""

from hypothesis import given
from hypothesis import strategies as st

from ninfer.sched.ladder import rungs_from_end, rungs_from_start

FIRST = 1024


@given(st.integers(1, 300_000), st.data())
def test_an_edit_loses_at_most_half_of_the_distance_to_either_end(num_tokens, data):
    edit = data.draw(st.integers(0, num_tokens))
    rungs = [*rungs_from_start(num_tokens, FIRST), *rungs_from_end(num_tokens, FIRST)]
    resume = max((rung for rung in rungs if rung <= edit), default=0)
    lost = edit - resume
    assert lost <= max(edit // 2, FIRST)
    assert lost <= num_tokens - edit + 2 * FIRST


@given(st.integers(1, 300_000))
def test_rungs_are_few_page_aligned_and_inside_the_prompt(num_tokens):
    rungs = [*rungs_from_start(num_tokens, FIRST), *rungs_from_end(num_tokens, FIRST)]
    assert all(0 < rung < num_tokens and rung % 64 == 0 for rung in rungs)
    assert len(rungs) <= 2 * max(0, num_tokens.bit_length() - 10)


@given(st.integers(1, 300_000), st.integers(1, 100_000))
def test_rungs_from_the_start_stay_while_a_prompt_grows(num_tokens, num_more):
    rungs = rungs_from_start(num_tokens, FIRST)
    assert rungs_from_start(num_tokens + num_more, FIRST)[: len(rungs)] == rungs
