"""Prompt chunks: within the budget, at multiples and captures, and no lane starves."""

from collections import deque
from types import SimpleNamespace

from hypothesis import given, settings
from hypothesis import strategies as st

from ninfer.sched.chunks import ChunkSizes, auto_chunk_tokens, choose_prefills


def lane(num_tokens, num_computed=0, captures=()):
    return SimpleNamespace(
        num_prompt_tokens=num_tokens, num_computed=num_computed, captures=deque(captures)
    )


def left_of(made):
    return made.num_prompt_tokens - made.num_computed


def choose(lanes, sizes, *, is_decoding, step_index):
    for made in lanes:
        made.num_left = left_of(made)
    return choose_prefills(lanes, sizes, is_decoding=is_decoding, step_index=step_index)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_chunks_keep_the_budget_and_every_prompt_gets_done(data):
    sizes = ChunkSizes(
        alone_tokens=data.draw(st.integers(1, 64)), shared_tokens=data.draw(st.integers(1, 32))
    )
    prompts = data.draw(st.lists(st.integers(1, 300), min_size=1, max_size=5))
    lanes = [
        lane(num, captures=sorted(data.draw(st.sets(st.integers(1, num), max_size=3))))
        for num in prompts
    ]
    wanted = [set(made.captures) for made in lanes]
    ends = [set() for _ in lanes]
    everyone = list(lanes)
    num_steps = 0
    while lanes:
        num_steps += 1
        is_decoding = data.draw(st.booleans()) if num_steps < 20 else False
        budget = sizes.shared_tokens if is_decoding else sizes.alone_tokens
        chosen = choose(lanes, sizes, is_decoding=is_decoding, step_index=num_steps)
        assert chosen, "somebody always goes on"
        assert len({id(made) for made, _ in chosen}) == len(chosen)
        assert sum(end - made.num_computed for made, end in chosen) <= budget
        if num_steps % 2 == 0:
            assert chosen[0][0] is lanes[0], "the oldest goes on in every second step"
        for number, (made, end) in enumerate(chosen):
            assert made.num_computed < end <= made.num_prompt_tokens
            at = everyone.index(made)
            is_border = end == made.num_prompt_tokens or end in wanted[at]
            if number == 0:
                assert is_border or end % budget == 0
            ends[at].add(end)
            made.num_computed = end
        lanes = [made for made in lanes if made.num_computed < made.num_prompt_tokens]
    assert all(want <= end for want, end in zip(wanted, ends, strict=True))
    smallest = min(sizes.alone_tokens, sizes.shared_tokens)
    assert num_steps <= 2 * (sum(prompts) / smallest + 5 * len(prompts)) + 2


def test_a_short_prompt_is_not_held_up_by_a_long_one():
    long, short = lane(100_000), lane(40)
    sizes = ChunkSizes(alone_tokens=64, shared_tokens=16)
    for step_index in range(2, 12):
        for made, end in choose(
            [made for made in (long, short) if left_of(made)],
            sizes,
            is_decoding=True,
            step_index=step_index,
        ):
            made.num_computed = end
    assert left_of(short) == 0
    assert long.num_computed >= 16 * 4


def test_a_resumed_prompt_is_split_where_a_cold_one_is():
    sizes = ChunkSizes(alone_tokens=64, shared_tokens=64)
    made, ends = lane(300, num_computed=100), []
    while left_of(made):
        (chosen,) = choose([made], sizes, is_decoding=False, step_index=0)
        ends.append(chosen[1])
        made.num_computed = chosen[1]
    assert ends == [128, 192, 256, 300]


def test_a_fast_model_gets_larger_chunks():
    sizes = {speed: auto_chunk_tokens(speed) for speed in (10.0, 9_000.0, 12_000.0, 30_000.0, 1e9)}
    assert list(sizes.values()) == [512, 512, 1024, 2048, 4096]
