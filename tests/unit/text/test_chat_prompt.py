from ninfer.text.chat_prompt import build_chat_prompt
from ninfer.text.chat_template import CHATML_TEMPLATE, ChatTemplate
from tests.unit.text.test_chat_template import QWEN_LIKE

CHAT = [
    {"role": "system", "content": "You are terse."},
    {"role": "user", "content": "First question"},
    {"role": "assistant", "content": "First answer"},
    {"role": "user", "content": "Second question"},
    {"role": "assistant", "content": "Let me look", "reasoning_content": "hm"},
    {"role": "tool", "content": "result"},
]


def prompt_of(source, tokenizer, clock, chat=CHAT, **options):
    template = ChatTemplate(source, clock=clock)
    return build_chat_prompt(template, tokenizer, chat, **options)


def marked_texts(tokenizer, prompt) -> list[str]:
    assert list(prompt.marker_tokens) == sorted(set(prompt.marker_tokens))
    return [
        tokenizer.decode(prompt.token_ids[:marker], skip_special=False)
        for marker in prompt.marker_tokens
    ]


def test_borders_are_ends_of_parts(smollm2, clock) -> None:
    prompt = prompt_of(CHATML_TEMPLATE, smollm2, clock)
    assert prompt.token_ids == smollm2.encode(prompt.text, add_special=False)
    ends = [text.split("<|im_start|>")[-1] for text in marked_texts(smollm2, prompt)]
    assert ends == [
        "system\nYou are terse.<|im_end|>\n",
        "assistant\nFirst answer<|im_end|>\n",
        "user\nSecond question<|im_end|>\n",
        "tool\nresult<|im_end|>\n",
    ]


def test_every_border_begins_the_text_and_the_tokens(smollm2, clock) -> None:
    prompt = prompt_of(CHATML_TEMPLATE, smollm2, clock, marked_messages=[1, 4, 99])
    texts = marked_texts(smollm2, prompt)
    assert len(texts) == 6
    for marker, text in zip(prompt.marker_tokens, texts, strict=True):
        assert prompt.text.startswith(text)
        assert smollm2.encode(text, add_special=False) == prompt.token_ids[:marker]


def test_borders_of_the_next_request_contain_the_stable_ones(smollm2, clock) -> None:
    first = prompt_of(CHATML_TEMPLATE, smollm2, clock)
    longer = [*CHAT, {"role": "assistant", "content": "Done"}, {"role": "user", "content": "More"}]
    second = prompt_of(CHATML_TEMPLATE, smollm2, clock, longer)
    end = first.marker_tokens[-1]
    assert second.token_ids[:end] == first.token_ids[:end]
    assert first.marker_tokens[0] == second.marker_tokens[0]


def test_templates_that_want_a_question_still_mark_the_system_part(smollm2, clock) -> None:
    prompt = prompt_of(QWEN_LIKE, smollm2, clock)
    texts = marked_texts(smollm2, prompt)
    assert texts[0] == "<|im_start|>system\nYou are terse.<|im_end|>\n"
    tools = [{"type": "function", "function": {"name": "f"}}]
    chat = [{"role": "user", "content": "a question"}]
    with_tools = prompt_of(CHATML_TEMPLATE, smollm2, clock, chat, tools=tools)
    assert marked_texts(smollm2, with_tools)[0].endswith("</tool_call><|im_end|>\n")


def test_prefixes_that_render_differently_are_no_borders(smollm2, clock) -> None:
    prompt = prompt_of(QWEN_LIKE, smollm2, clock, marked_messages=[4])
    assert not any("<think>" in text for text in marked_texts(smollm2, prompt))
    assert not any(
        text.endswith("Let me look<|im_end|>\n") for text in marked_texts(smollm2, prompt)
    )


def test_a_single_question_has_the_border_before_the_answer(smollm2, clock) -> None:
    chat = [{"role": "user", "content": "Hi"}]
    prompt = prompt_of(CHATML_TEMPLATE, smollm2, clock, chat)
    assert marked_texts(smollm2, prompt) == ["<|im_start|>user\nHi<|im_end|>\n"]
    closed = prompt_of(CHATML_TEMPLATE, smollm2, clock, chat, add_generation_prompt=False)
    assert closed.marker_tokens == ()


def test_borders_inside_a_token_go_back(smollm2, clock) -> None:
    source = "{% for m in messages %}{{ m.content }}{% endfor %}"
    chat = [{"role": "user", "content": "hel"}, {"role": "user", "content": "lo there"}]
    prompt = prompt_of(source, smollm2, clock, chat)
    assert prompt.text == "hello there"
    assert prompt.marker_tokens == ()
    assert prompt.token_ids == smollm2.encode("hello there")
