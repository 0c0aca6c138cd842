"""The tokenizer: byte-level BPE, digits apart, trained on the generated text."""

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Final

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)

from tools.tiny_hybrid import chats, tool_calls
from tools.tiny_hybrid.haystacks import Needle
from tools.tiny_hybrid.words import ALL, inflected, invented

SPECIAL: Final = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
"""Tokens that are no text."""
MARKS: Final = (
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
)
"""Tokens that are text and must be one piece."""
END: Final = "<|im_end|>"
PAD: Final = "<|endoftext|>"

_SPLIT: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""The split of the Qwen tokenizers."""


def train_tokenizer(vocab_size: int, *, seed: int = 1) -> Tokenizer:
    """Train on chats, needles and every known word; deterministic."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(_SPLIT), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    added = [AddedToken(text, special=True, normalized=False) for text in SPECIAL]
    added += [AddedToken(text, special=False, normalized=False) for text in MARKS]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(added),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_corpus(Random(seed)), trainer)
    tokenizer.add_tokens(added)
    return tokenizer


def _corpus(rng: Random) -> Iterator[str]:
    for word in ALL:
        # Often enough that every known word is likely to become one piece.
        yield f" {word}" * 40
        yield f" {word.capitalize()}" * 2
        for form in inflected(word):
            yield f" {form}" * 2
    for _ in range(700):
        yield " ".join(invented(rng) for _ in range(10))
        yield Needle.draw(rng).text
    for kind in (
        chats.tell_story,
        chats.read_story,
        chats.greet,
        chats.listing,
        tool_calls.use_tools,
    ):
        for _ in range(300):
            yield kind(rng).text()
    for _ in range(60):
        yield chats.puzzle(rng).text()


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Write tokenizer.json, tokenizer_config.json and chat_template.jinja as transformers reads them."""
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END,
        "pad_token": PAD,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 262_144,
    }
    text = json.dumps(config, indent=2) + "\n"
    (folder / "tokenizer_config.json").write_text(text, encoding="utf-8")
    template = Path(__file__).with_name("chat_template.jinja").read_text(encoding="utf-8")
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
