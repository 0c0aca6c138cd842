"""The text that the model learns from."""

from random import Random

import pytest

from ninfer.obs.clock import SystemClock
from ninfer.text.chat_template import ChatTemplate
from tools.tiny_hybrid import chats, tokenizer, tool_calls
from tools.tiny_hybrid.drill import draw_drill
from tools.tiny_hybrid.haystacks import draw_haystack
from tools.tiny_hybrid.sample import Sample

KINDS = [
    chats.tell_story,
    chats.read_story,
    chats.greet,
    chats.repeat,
    chats.listing,
    chats.puzzle,
    chats.no_question,
    tool_calls.use_tools,
]


@pytest.fixture(scope="module")
def backend():
    return tokenizer.train_tokenizer(600)


@pytest.fixture(scope="module")
def template(backend, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    tokenizer.save_tokenizer(backend, folder)
    return ChatTemplate.from_directory(folder, clock=SystemClock())


def haystack(seed, *, num_tokens=300, max_needles=3):
    return draw_haystack(
        Random(seed),
        num_tokens=num_tokens,
        max_needles=max_needles,
        count_tokens=lambda s: len(s) // 4,
    )


def kept(chat):
    """Messages as a client would send them: without thoughts if the answers have none."""
    names = {"role", "content", "tool_calls"} | (
        {"reasoning_content"} if chat.is_thinking else set()
    )
    return [{k: v for k, v in message.items() if k in names} for message in chat.messages]


@pytest.mark.parametrize("kind", KINDS)
def test_chats_are_written_as_the_template_writes_them(kind, template):
    for seed in range(12):
        chat = kind(Random(seed))
        rendered = template.render(kept(chat), tools=chat.tools, add_generation_prompt=False)
        assert chat.text() == rendered


def test_haystacks_are_written_as_the_template_writes_them(template):
    for seed in range(12):
        chat = haystack(seed).chat
        assert chat.text() == template.render(kept(chat), add_generation_prompt=False)


@pytest.mark.parametrize("is_thinking", [True, False])
def test_a_learned_answer_follows_the_opener_of_the_template(template, is_thinking):
    chat = chats.start(Random(0))
    chat.is_thinking = is_thinking
    chat.say("user", "Hi").say("assistant", "Hello!", reasoning_content="I am polite.")
    segments = chat.segments()
    before = "".join(s.text for s in segments[: [s.is_answer for s in segments].index(True)])
    options = {} if is_thinking else {"enable_thinking": False}
    assert before == template.render(kept(chat)[:-1], options=options)


def test_thinking_is_dropped_from_earlier_turns(template):
    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b", "reasoning_content": "old thought"},
        {"role": "user", "content": "c"},
        {"role": "assistant", "content": "d", "reasoning_content": "new thought"},
    ]
    text = template.render(messages, add_generation_prompt=False)
    assert "old thought" not in text
    assert "<think>\nnew thought\n</think>\n\nd" in text


def test_every_secret_stands_in_the_text_and_not_in_the_filler():
    for seed in range(40):
        stack = haystack(seed)
        text = stack.chat.text()
        filler = [text[start:end] for start, end in stack.filler]
        for needle in stack.needles:
            assert needle.text in text
            assert not any(needle.text in part for part in filler)
        assert not any(mark in part for mark in ("[", "]", "<|") for part in filler)
        answers = "".join(s.text for s in stack.chat.segments() if s.is_answer)
        assert all(needle.code in answers for needle in stack.needles)


def test_a_sample_knows_which_tokens_are_answer_and_filler(backend):
    stack = haystack(5, max_needles=1)
    segments = stack.chat.segments()
    sample = Sample.encode(backend, segments, filler=stack.filler)
    pairs = list(zip(sample.token_ids, sample.is_answer, strict=True))
    answer = backend.decode([i for i, flag in pairs if flag], skip_special_tokens=False)
    assert answer == "".join(s.text for s in segments if s.is_answer)
    assert 0.3 < sum(sample.is_filler) / len(sample.is_filler) < 1


def test_a_drill_repeats_and_learns_only_what_can_be_known():
    for seed in range(20):
        drill = draw_drill(Random(seed), num_tokens=96, vocab_size=50)
        assert len(drill.token_ids) == 96
        first = drill.is_answer.index(True)
        period = first - 1
        assert 12 <= period <= 48
        assert all(drill.is_answer[first:])
        assert drill.token_ids[period:] == drill.token_ids[: 96 - period]


def test_equal_seeds_write_equal_text():
    assert haystack(7).chat.text() == haystack(7).chat.text() != haystack(8).chat.text()


def test_digits_are_single_pieces_and_any_text_comes_back(backend):
    assert len(backend.encode("907331").ids) == 6
    for text in ("naïve 日本 \U0001f600\r\n\t  x", "[[KEY 48213]]", "\x00\x7f  "):
        assert backend.decode(backend.encode(text).ids, skip_special_tokens=False) == text
