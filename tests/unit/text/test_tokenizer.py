import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import pre_tokenizers

from ninfer.api.errors import ModelError
from ninfer.text.tokenizer import Tokenizer
from tests.unit.text.conftest import byte_backend

TEXTS = [
    "",
    " ",
    "Hello, world!",
    "The quick brown fox\tjumps  over   the lazy dog.\r\n\r\n",
    "def f(x: int) -> int:\n    return x ** 2  # comment\n\n\n    if x:\n\t\tpass",
    "It's John's, we'll they've I'd I'M DON'T",
    "12345 3.14159 1,000,000 x1 2y",
    "naïve café ÀÉÎ ß ﬁ Å Å e\u0301 ñ",
    "你好，世界。日本語テキスト 한국어 텍스트",
    "😀😃 👩‍👩‍👧‍👦 🇩🇪 \u200d\ufe0f",
    "السلام عليكم שלום नमस्ते ไทย",
    "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n",
    "a<|im_end|>b <|endoftext|> c<file_sep>",
    "<|im_start|",
    "trailing spaces   ",
    "\n\n \n  \n\t\n",
    "\u00a0nbsp\u2003em\u3000ideographic",
    '{"key": [1, 2.5e-10, null, true], "s": "\\u00e9\\n"}',
    "https://example.com/a/b?c=d&e=%20f#g",
    "a" * 300 + "!" * 50 + "=" * 80,
    "\x00\x01\x7f\x80",
]
DIGITS_AFTER_SPACES = ["a   1", "x=  42; ²③Ⅷ ٣", "\t\t7", "    0x1F", "\n\n1. one\n\n   2. two"]


@pytest.fixture(scope="session")
def transformers_tokenizer(smollm2_gguf):
    transformers = pytest.importorskip("transformers")
    return transformers.AutoTokenizer.from_pretrained(
        smollm2_gguf.parent, gguf_file=smollm2_gguf.name
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_tokens_equal_those_of_transformers(smollm2, transformers_tokenizer) -> None:
    for text in TEXTS:
        expected = transformers_tokenizer.encode(text)
        assert smollm2.encode(text) == expected, text
        assert smollm2.encode_with_starts(text).token_ids == expected, text
        decoded = transformers_tokenizer.decode(expected, skip_special_tokens=True)
        assert smollm2.decode(expected) == decoded
    assert smollm2.vocab_size == len(transformers_tokenizer)
    assert transformers_tokenizer.eos_token_id in smollm2.eos_ids
    assert set(transformers_tokenizer.all_special_ids) <= smollm2.special_ids
    # transformers forgets on conversion that SmolLM2 was trained with digits split off first (llama.cpp: "smollm");
    # with that step put back its tokens are ours here too.
    backend = transformers_tokenizer.backend_tokenizer
    backend.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        backend.pre_tokenizer,
    ])
    for text in TEXTS + DIGITS_AFTER_SPACES:
        assert smollm2.encode(text) == backend.encode(text).ids, text


def test_known_tokens_of_smollm2(smollm2) -> None:
    assert smollm2.encode("12345") == [33, 34, 35, 36, 37]
    assert smollm2.encode("a   1") == [81, 333, 33]
    assert smollm2.encode("<|im_start|>a<|im_end|>") == [1, 81, 2]
    assert smollm2.eos_ids == {0, 2}
    assert smollm2.bos_id == 1
    assert smollm2.vocab_size == 49152
    assert smollm2.token_id("<|im_end|>") == 2
    assert smollm2.token_text(smollm2.encode(" hello")[0]) == " hello"


@pytest.mark.parametrize("text", TEXTS + DIGITS_AFTER_SPACES)
def test_texts_survive_a_round_trip(smollm2, text: str) -> None:
    token_ids = smollm2.encode(text)
    assert smollm2.decode(token_ids, skip_special=False) == text
    assert smollm2.encode(text) == token_ids


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.text(max_size=80),
            st.sampled_from(["<|im_start|>", "<|im_end|>", "<file_sep>", "   ", "x" * 70]),
        ),
        max_size=8,
    )
)
def test_parts_tokenized_alone_equal_the_whole(smollm2, parts) -> None:
    text = "".join(parts)
    whole = smollm2._backend.encode(text, add_special_tokens=False)
    for _ in range(2):
        encoded = smollm2.encode_with_starts(text)
        assert encoded.token_ids == list(whole.ids)
        assert encoded.starts == [start for start, _ in whole.offsets]
    assert smollm2.encode(text, add_special=False) == list(whole.ids)


def test_cached_parts_are_bounded(byte_tokenizer, monkeypatch) -> None:
    from ninfer.text import segment_cache

    monkeypatch.setattr(segment_cache, "_MAX_CACHED_CHARS", 250)
    cache = segment_cache.SegmentCache.over(byte_backend())
    for index in range(10):
        cache.encode(f"{index}" * 100)
    assert cache._num_chars == sum(map(len, cache._parts)) == 200
    assert cache.encode("5" * 100).token_ids == byte_tokenizer.encode("5" * 100)


def test_lone_surrogates_become_replacement_characters(smollm2) -> None:
    assert smollm2.decode(smollm2.encode("a\ud83d b")) == "a\ufffd b"
    assert smollm2.decode(smollm2.encode("\ud83d\ude00")) == "😀"


def test_directory_gives_eos_of_all_files(tmp_path) -> None:
    backend = byte_backend()
    backend.save(str(tmp_path / "tokenizer.json"))
    config = {"bos_token": None, "eos_token": {"content": "<|im_end|>"}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [5, 6]}))
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": 7}))
    tokenizer = Tokenizer.from_path(tmp_path)
    assert tokenizer.eos_ids == {5, 6, 7, backend.token_to_id("<|im_end|>")}
    assert tokenizer.bos_id is None
    assert tokenizer.encode("hello<|im_end|>") == backend.encode("hello<|im_end|>").ids
    assert tokenizer.digest() == Tokenizer(byte_backend()).digest()


def test_damaged_or_missing_files_are_model_errors(tmp_path) -> None:
    with pytest.raises(ModelError, match="no tokenizer"):
        Tokenizer.from_path(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(ModelError, match="cannot read"):
        Tokenizer.from_path(tmp_path)
    file = tmp_path / "x.gguf"
    file.write_bytes(b"nope")
    with pytest.raises(ModelError, match="not a GGUF"):
        Tokenizer.from_path(file)
    file.write_bytes(b"GGUF\x03\x00\x00\x00")
    with pytest.raises(ModelError, match="damaged"):
        Tokenizer.from_path(file)
    with pytest.raises(ModelError, match="cannot read"):
        Tokenizer.from_path(tmp_path / "none.gguf")


def test_unsupported_kinds_name_the_supported_ones() -> None:
    with pytest.raises(ModelError, match="'gpt2'.*'llama'"):
        Tokenizer.from_gguf_metadata({"tokenizer.ggml.model": "t5"})
    metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "strange",
        "tokenizer.ggml.tokens": ["a"],
        "tokenizer.ggml.merges": [],
    }
    with pytest.raises(ModelError, match="strange.*smollm"):
        Tokenizer.from_gguf_metadata(metadata)
    with pytest.raises(ModelError, match="tokens"):
        Tokenizer.from_gguf_metadata({"tokenizer.ggml.model": "gpt2"})


@pytest.mark.parametrize(
    ("pre", "pieces"),
    [
        ("gpt-2", ["Ab", " 123", " ", " x"]),
        ("smollm", ["Ab", " ", "1", "2", "3", " ", " x"]),
        ("llama-bpe", ["Ab", " ", "123", " ", " x"]),
        ("qwen2", ["Ab", " ", "1", "2", "3", " ", " x"]),
        ("qwen35", ["Ab", " ", "1", "2", "3", " ", " x"]),
        ("tekken", ["Ab", " ", "1", "2", "3", " ", " x"]),
    ],
)
def test_pre_tokenizers_split_as_trained(pre: str, pieces: list[str]) -> None:
    from ninfer.text.pre_tokenizer import build_pre_tokenizer

    split = build_pre_tokenizer(pre).pre_tokenize_str("Ab 123  x")
    assert [piece.replace("Ġ", " ") for piece, _ in split] == pieces


def test_bos_is_added_where_the_file_says_so() -> None:
    metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "llama-bpe",
        "tokenizer.ggml.tokens": ["a", "b", "<s>", "</s>"],
        "tokenizer.ggml.token_type": [1, 1, 3, 3],
        "tokenizer.ggml.merges": [],
        "tokenizer.ggml.bos_token_id": 2,
        "tokenizer.ggml.eos_token_id": 3,
    }
    tokenizer = Tokenizer.from_gguf_metadata(metadata)
    assert tokenizer.encode("ab") == [2, 0, 1]
    assert tokenizer.encode("ab", add_special=False) == [0, 1]
    assert tokenizer.eos_ids == {3}
    silent = Tokenizer.from_gguf_metadata({**metadata, "tokenizer.ggml.add_bos_token": False})
    assert silent.encode("ab") == [0, 1]


def test_sentence_piece_vocabulary() -> None:
    tokens = [
        "<unk>",
        "<s>",
        "</s>",
        "<0xE2>",
        "<0x82>",
        "<0xAC>",
        "▁",
        "a",
        "b",
        "▁a",
        "ab",
        "▁ab",
    ]
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [0, 0, 0, 0, 0, 0, -9, -8, -7, -2, -1, -3],
        "tokenizer.ggml.token_type": [2, 3, 3, 6, 6, 6, 1, 1, 1, 1, 1, 1],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }
    tokenizer = Tokenizer.from_gguf_metadata(metadata)
    assert tokenizer.encode("ab a€") == [1, 11, 9, 3, 4, 5]
    assert tokenizer.decode([1, 11, 9, 3, 4, 5]) == "ab a€"
    detokenizer = tokenizer.detokenizer()
    deltas = [detokenizer.push([token_id]) for token_id in [1, 11, 9, 3, 4, 5]]
    assert deltas == ["", "ab", " a", "", "", "€"]
    assert detokenizer.flush() == ""
