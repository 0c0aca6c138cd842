from hypothesis import example, given, settings
from hypothesis import strategies as st

from ninfer.text.tokenizer import Tokenizer


def deltas(tokenizer: Tokenizer, groups: list[list[int]], *, skip_special: bool) -> list[str]:
    detokenizer = tokenizer.detokenizer(skip_special=skip_special)
    return [*(detokenizer.push(group) for group in groups), detokenizer.flush()]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.lists(st.integers(0, 49160), max_size=3), max_size=30), st.booleans())
def test_deltas_join_to_the_decoded_text_with_a_real_vocabulary(smollm2, groups, skip) -> None:
    flat = [token_id for group in groups for token_id in group]
    joined = "".join(deltas(smollm2, groups, skip_special=skip))
    assert joined == smollm2.decode(flat, skip_special=skip)


@settings(max_examples=500, deadline=None)
@given(st.lists(st.lists(st.integers(0, 270), max_size=3), max_size=30), st.booleans())
def test_deltas_join_to_the_decoded_text_for_any_bytes(byte_tokenizer, groups, skip) -> None:
    flat = [token_id for group in groups for token_id in group]
    joined = "".join(deltas(byte_tokenizer, groups, skip_special=skip))
    assert joined == byte_tokenizer.decode(flat, skip_special=skip)


@settings(max_examples=300, deadline=None)
@given(st.text())
@example("你好，世界😀👩‍👩‍👧‍👦 한국어 é")
def test_single_tokens_never_show_a_broken_character(byte_tokenizer, text) -> None:
    token_ids = byte_tokenizer.encode(text, add_special=False)
    pieces = deltas(byte_tokenizer, [[token_id] for token_id in token_ids], skip_special=False)
    assert "".join(pieces) == text
    if "\ufffd" not in text:
        assert not any("\ufffd" in piece for piece in pieces)


def test_incomplete_bytes_are_held_back_and_flushed(byte_tokenizer) -> None:
    token_ids = byte_tokenizer.encode("€")
    detokenizer = byte_tokenizer.detokenizer()
    assert [detokenizer.push([token_id]) for token_id in token_ids[:2]] == ["", ""]
    assert detokenizer.flush() == "\ufffd"
    assert detokenizer.flush() == ""


def test_an_encoded_surrogate_becomes_three_replacement_characters(byte_tokenizer) -> None:
    by_byte = {byte_tokenizer.token_bytes[index]: index for index in range(256)}
    surrogate = [by_byte[bytes([byte])] for byte in (0xED, 0xA0, 0x80)]
    assert "".join(deltas(byte_tokenizer, [surrogate], skip_special=True)) == "\ufffd" * 3


def test_special_tokens_leave_no_text_unless_asked(smollm2) -> None:
    token_ids = smollm2.encode("a<|im_end|>b")
    assert "".join(deltas(smollm2, [token_ids], skip_special=True)) == "ab"
    assert "".join(deltas(smollm2, [token_ids], skip_special=False)) == "a<|im_end|>b"
