"""Which state images of a conversation stay: the newest, its anchors, and what others use; the rest goes first."""

from tests.integration.scenarios.conversation import Session, asked, ended, engine, tokens


def images(harness):
    """Position of every image, and whether it is superseded."""
    nodes = harness.store.tree.nodes()
    return sorted((n.end_tokens, n.image.is_superseded) for n in nodes if n.image is not None)


def test_newer_turns_supersede_older_ends_and_keep_anchors():
    harness = engine(40, has_state=True, first_rung=4096)
    session = Session(harness, "grows", 100)
    ends = []
    for _ in range(4):
        session.turn(30, markers=[50])
        ends.append(len(session.tokens) - 1)
    found = dict(images(harness))
    assert found[50] is False
    assert found[ends[-1]] is False
    assert [found[end] for end in ends[:-1]] == [True, True, True]
    assert sum(not is_superseded for is_superseded in found.values()) == 3, "anchor, last, end"
    ended(harness)


def test_an_end_that_two_conversations_went_on_from_is_not_superseded():
    harness = engine(40, has_state=True)
    session = Session(harness, "parent", 100)
    session.turn()
    end = len(session.tokens) - 1
    for number in range(2):
        asked(harness, [*session.tokens, *tokens(number, 30)])
    assert (end, False) in images(harness)
    ended(harness)


def test_rungs_from_the_start_outlive_the_prompt_and_those_from_the_end_do_not():
    harness = engine(60, has_state=True, num_slots=40, first_rung=128)
    session = Session(harness, "long", 1000)
    session.turn()
    session.turn(200)
    found = dict(images(harness))
    assert [found[rung] for rung in (128, 256, 512)] == [False] * 3
    assert found[768] is True, "256 before the end of the first prompt, 896 being too near the end"
    ended(harness)


def test_what_superseded_images_take_is_given_up_first():
    harness = engine(60, has_state=True, num_slots=9, num_lanes=1, first_rung=4096)
    other = Session(harness, "other", 100)
    other.turn(markers=[60])
    session = Session(harness, "grows", 100)
    for _ in range(12):
        session.turn(30)
    assert dict(images(harness))[60] is False
    assert other.turn().computed <= 21
    ended(harness)


def test_an_anchor_stays_as_fresh_as_the_conversation_that_needs_it():
    harness = engine(80, has_state=True, num_slots=7, num_lanes=1, first_rung=4096)
    session = Session(harness, "agent", 200)
    for number in range(8):
        session.turn(30, markers=[150])
        asked(harness, tokens(f"one-off {number}", 70))
    assert asked(harness, [*session.tokens[:150], 51, *tokens("edit", 30)]).cached == 150
    ended(harness)


def test_a_rung_is_named_in_the_log():
    harness = engine(60, has_state=True, num_slots=20, first_rung=128)
    prompt = tokens("long", 1000)
    asked(harness, prompt)
    answer = asked(harness, [*prompt[:600], 51, *tokens("edit", 9)])
    assert answer.cached == 512
    assert answer.finished.stats.reuse_path == "private_long_anchor"
    ended(harness)


def test_the_partial_page_under_an_anchor_stays_with_it():
    harness = engine(16, has_state=True, num_slots=20, num_lanes=1, first_rung=4096)
    session = Session(harness, "agent", 200)
    for number in range(8):
        session.turn(10, 2, markers=[150])
        asked(harness, tokens(f"one-off {number}", 70), 2)
    assert asked(harness, [*session.tokens[:150], 51, *tokens("edit", 30)]).cached == 150
    ended(harness)


def test_a_partial_page_goes_with_the_superseded_image_that_alone_needs_it():
    harness = engine(14, has_state=True, num_slots=30, num_lanes=1, first_rung=4096)
    other = Session(harness, "other", 100)
    other.turn()
    session = Session(harness, "grows", 100)
    for _ in range(12):
        session.turn(20, 2)
    assert other.turn().computed <= 21
    ended(harness)
