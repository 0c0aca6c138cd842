from hypothesis import given
from hypothesis import strategies as st

from ninfer.server.chat.reasoning import ReasoningSplitter

PIECES = st.lists(
    st.sampled_from([
        "<think>",
        "</think>",
        "<thi",
        "nk>",
        "</",
        "think>",
        "\n",
        "\n\n",
        " ",
        "a",
        "<",
        "b c",
    ]),
    max_size=12,
)


def split(pieces, *, is_active=True, is_open=False) -> tuple[str, str]:
    splitter = ReasoningSplitter(is_active=is_active, is_open=is_open)
    parts = [splitter.push(piece) for piece in pieces]
    parts.append(splitter.flush())
    return "".join(part[0] for part in parts), "".join(part[1] for part in parts)


def test_the_answer_is_split_at_the_tags_and_their_line_breaks():
    assert split(["<think>\nwell\n</think>\n\nyes"]) == ("well", "yes")
    assert split(["\n<think>well</think>yes\n"]) == ("well", "yes\n")
    assert split(["<think>\n\n</think>\n\nyes"]) == ("", "yes")
    assert split(["plain <think>x</think>"]) == ("", "plain <think>x</think>"), (
        "only an answer begins with it"
    )
    assert split(["<think>never closed\n"]) == ("never closed", "")
    assert split(["<thin"]) == ("", "<thin")
    assert split(["  "]) == ("", "  ")
    assert split(["well\n</think>\nyes"], is_open=True) == ("well", "yes")
    assert split(["<think>x</think>y"], is_active=False) == ("", "<think>x</think>y")


@given(pieces=PIECES, is_open=st.booleans())
def test_the_result_does_not_depend_on_where_the_text_is_cut(pieces, is_open):
    text = "".join(pieces)
    whole = split([text], is_open=is_open)
    assert split(pieces, is_open=is_open) == whole
    assert split(list(text), is_open=is_open) == whole


@given(pieces=PIECES)
def test_nothing_but_tags_and_line_breaks_is_lost(pieces):
    text = "".join("".join(pieces).split())
    before, _, after = text.partition("<think>")
    opened = before + after
    closed = opened.replace("</think>", "", 1)
    reasoning, content = split(pieces)
    assert "".join((reasoning + content).split()) in {text, opened, closed}
