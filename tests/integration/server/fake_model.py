"""A real tokenizer of single bytes, real chat templates, and an application over the fake engine."""

from dataclasses import dataclass

import httpx
from fastapi import FastAPI
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Backend

from ninfer.config.sections import ServerSection
from ninfer.obs.clock import SystemClock
from ninfer.server.app import create_app
from ninfer.server.served_text import ServedText
from ninfer.text.chat_template import ChatTemplate
from ninfer.text.tokenizer import Tokenizer
from tests.integration.server.fake_engine import FakeEngine

CHATML = (
    "{%- if tools %}{{- '<|im_start|>system\nTools:' }}{%- for tool in tools %}{{- tool | tojson }}{%- endfor %}"
    "{{- '<|im_end|>\n' }}{%- endif %}"
    "{%- for message in messages %}{{- '<|im_start|>' + message.role + '\n' }}"
    "{%- if message.reasoning_content %}{{- '<r>' + message.reasoning_content + '</r>' }}{%- endif %}"
    "{{- message.content }}"
    "{%- for call in message.tool_calls or [] %}{{- '[' + call.function.name + call.function.arguments + ']' }}"
    "{%- endfor %}{{- '<|im_end|>\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"
    "{%- if reasoning_effort %}{{- 'E=' + reasoning_effort }}{%- endif %}"
)
THINKING = CHATML + "{%- if enable_thinking is false %}{{- '<think>\n\n</think>\n\n' }}{%- endif %}"


def byte_tokenizer() -> Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Backend(
        models.BPE(vocab={char: index for index, char in enumerate(alphabet)}, merges=[])
    )
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([
        AddedToken("<|im_start|>", special=True),
        AddedToken("<|im_end|>", special=True),
    ])
    return Tokenizer(backend)


@dataclass
class Served:
    engine: FakeEngine
    text: ServedText
    app: FastAPI

    def client(self, **options: object) -> httpx.AsyncClient:
        transport = httpx.ASGITransport(app=self.app)
        return httpx.AsyncClient(transport=transport, base_url="http://test", **options)


def serve_fake(*, template: str = CHATML, keep_alive_s: float = 5.0, **settings: object) -> Served:
    tokenizer = byte_tokenizer()
    eos_id = tokenizer.token_id("<|im_end|>")
    assert eos_id is not None
    engine = FakeEngine(
        lambda text: tokenizer.encode(text, add_special=False),
        vocab_size=tokenizer.vocab_size,
        eos_id=eos_id,
    )
    text = ServedText(tokenizer, ChatTemplate(template, clock=SystemClock()))
    app = create_app(engine, text, ServerSection(**settings), keep_alive_s=keep_alive_s)
    return Served(engine, text, app)
