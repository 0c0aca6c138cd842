"""How GGUF names of pre-tokenizers split text before BPE. Knows nothing about vocabularies.

Source: `llm_tokenizer_bpe` in https://github.com/ggml-org/llama.cpp/blob/master/src/llama-vocab.cpp and the
`tokenizer.json` of the models it names.
"""

from typing import Final

from tokenizers import Regex, normalizers, pre_tokenizers

from ninfer.api.errors import ModelError

_CONTRACTION: Final = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACE: Final = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3: Final = rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACE}"
_QWEN2: Final = (
    rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACE}"
)
_QWEN35: Final = (
    rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACE}"
)
_UPPER: Final = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER: Final = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN: Final = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
    rf"|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACE}"
)

_SPLITS: Final = {
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "falcon3": _LLAMA3,
    "smaug-bpe": _LLAMA3,
    "dbrx": _LLAMA3,
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
    "stablelm2": _QWEN2,
    "qwen35": _QWEN35,
    "tekken": _TEKKEN,
}
_DIGITS_THEN_GPT2: Final = frozenset({
    "smollm",
    "starcoder",
    "refact",
    "command-r",
    "codeshell",
    "exaone",
})
_GPT2: Final = frozenset({"gpt-2", "gpt2", "olmo", "mpt", "jais", "trillion", "granite-docling"})
_NFC: Final = frozenset({"qwen2", "qwen35"})
_IGNORES_MERGES: Final = frozenset({"llama-bpe", "llama3", "llama-v3", "falcon3", "tekken"})

SUPPORTED: Final = tuple(sorted(_GPT2 | _DIGITS_THEN_GPT2 | frozenset(_SPLITS)))
"""Names that `build_pre_tokenizer` knows."""


def build_pre_tokenizer(name: str) -> pre_tokenizers.PreTokenizer:
    """Build the splitter that a GGUF file names in `tokenizer.ggml.pre`.

    Args:
        name: for example "smollm".

    Returns:
        A splitter whose last part maps bytes to characters.

    Raises:
        ModelError: the name is not supported; the text lists those that are.
    """
    if name in _GPT2:
        return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if name in _DIGITS_THEN_GPT2:
        return pre_tokenizers.Sequence([
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ])
    if name not in _SPLITS:
        raise ModelError(
            f"GGUF pre-tokenizer {name!r} is not supported; supported are: {', '.join(SUPPORTED)}"
        )
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(_SPLITS[name]), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])


def build_normalizer(name: str) -> normalizers.Normalizer | None:
    """Build the normalizer that models with this pre-tokenizer were trained with, None for none."""
    return normalizers.NFC() if name in _NFC else None


def ignores_merges(name: str) -> bool:
    """Tell whether a piece that is a token as a whole is taken without looking at merges."""
    return name in _IGNORES_MERGES
