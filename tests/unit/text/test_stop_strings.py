from hypothesis import given, settings
from hypothesis import strategies as st

from ninfer.text.stop_strings import StopMatcher

ALPHABET = st.text(alphabet="abX", max_size=6)


def oracle(text: str, stops: list[str]) -> tuple[str, str | None]:
    """Look at every prefix of the text: the first that ends with a stop ends the text."""
    for end in range(len(text) + 1):
        found = [stop for stop in stops if stop and text[:end].endswith(stop)]
        if found:
            stop = max(found, key=len)
            return text[: end - len(stop)], stop
    return text, None


def run(pieces: list[str], stops: list[str]) -> tuple[str, str | None]:
    matcher = StopMatcher(stops)
    emitted, stop, pushed = "", None, ""
    for piece in pieces:
        result = matcher.push(piece)
        emitted += result.text
        pushed += piece
        if result.is_stopped:
            stop = result.stop
        if stop is None:
            assert pushed.startswith(emitted)
            held = pushed[len(emitted) :]
            assert not held or any(s.startswith(held) and s != held for s in stops)
    return emitted + matcher.flush(), stop


@settings(max_examples=1000, deadline=None)
@given(st.lists(ALPHABET, max_size=12), st.lists(ALPHABET, max_size=4))
def test_any_pieces_give_what_the_oracle_says(pieces, stops) -> None:
    assert run(pieces, stops) == oracle("".join(pieces), stops)


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="abX", max_size=30), st.lists(ALPHABET, max_size=4))
def test_pieces_do_not_matter(text, stops) -> None:
    assert run(list(text), stops) == run([text], stops)


def test_no_part_of_a_stop_is_emitted() -> None:
    matcher = StopMatcher(["DEFGHIJ"])
    assert matcher.push("ABC").text == "ABC"
    assert [matcher.push(char).text for char in "DEFGHI"] == [""] * 6
    assert matcher.push("J").is_stopped


def test_text_before_a_stop_is_emitted_once() -> None:
    matcher = StopMatcher(["><"])
    emitted = [matcher.push("<unk>").text, matcher.push("<unk>").text, matcher.push("x").text]
    assert emitted == ["<unk", "", ""]
    assert matcher.flush() == ""


def test_held_text_is_flushed_at_the_end() -> None:
    matcher = StopMatcher(["\n\n"])
    assert matcher.push("last\n").text == "last"
    assert matcher.flush() == "\n"
    assert matcher.flush() == ""


def test_without_stops_everything_passes() -> None:
    matcher = StopMatcher(["", ""])
    assert matcher.push("abc").text == "abc"
    assert matcher.flush() == ""
