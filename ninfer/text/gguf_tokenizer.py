"""Builds a `tokenizers` tokenizer from the vocabulary inside a GGUF file. Knows nothing about chat.

Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md#tokenizer
"""

from collections.abc import Mapping
from typing import Final, cast

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, processors

from ninfer.api.errors import ModelError
from ninfer.text.pre_tokenizer import build_normalizer, build_pre_tokenizer, ignores_merges

_UNKNOWN: Final = 2
_CONTROL: Final = 3
_USER_DEFINED: Final = 4
_LLAMA3_PRE: Final = frozenset({"llama-bpe", "llama3", "llama-v3", "falcon3", "tekken"})


def build_gguf_backend(metadata: Mapping[str, object]) -> Tokenizer:
    """Build the tokenizer that GGUF metadata describes.

    Args:
        metadata: key-value pairs of the file.

    Returns:
        A tokenizer that parses special tokens and adds BOS where the file says so.

    Raises:
        ModelError: a key is missing or the kind of tokenizer is not supported.
    """
    kind = metadata.get("tokenizer.ggml.model")
    if kind == "gpt2":
        backend = _build_byte_level(metadata)
    elif kind == "llama":
        backend = _build_sentence_piece(metadata)
    else:
        raise ModelError(
            f"GGUF tokenizer {kind!r} is not supported; supported are: 'gpt2' (byte-level BPE), 'llama' (SPM)"
        )
    _add_special_tokens(backend, metadata)
    _add_template(backend, metadata)
    return backend


def _strings(metadata: Mapping[str, object], key: str) -> list[str]:
    value = metadata.get(key)
    if not isinstance(value, list):
        raise ModelError(f"GGUF metadata has no {key}")
    return cast(list[str], value)


def _build_byte_level(metadata: Mapping[str, object]) -> Tokenizer:
    pre = str(metadata.get("tokenizer.ggml.pre", "gpt-2"))
    tokens = _strings(metadata, "tokenizer.ggml.tokens")
    merges = []
    for merge in _strings(metadata, "tokenizer.ggml.merges"):
        left, _, right = merge.partition(" ")
        merges.append((left, right))
    backend = Tokenizer(
        models.BPE(
            vocab={token: index for index, token in enumerate(tokens)},
            merges=merges,
            fuse_unk=False,
            ignore_merges=ignores_merges(pre),
        )
    )
    normalizer = build_normalizer(pre)
    if normalizer is not None:
        backend.normalizer = normalizer
    backend.pre_tokenizer = build_pre_tokenizer(pre)
    backend.decoder = decoders.ByteLevel()
    return backend


def _build_sentence_piece(metadata: Mapping[str, object]) -> Tokenizer:
    tokens = _strings(metadata, "tokenizer.ggml.tokens")
    scores = metadata.get("tokenizer.ggml.scores")
    if not isinstance(scores, list):
        raise ModelError("GGUF metadata has no tokenizer.ggml.scores")
    vocab = {token: index for index, token in enumerate(tokens)}
    unknown = tokens[int(cast(int, metadata.get("tokenizer.ggml.unknown_token_id", 0)))]
    backend = Tokenizer(
        models.BPE(
            vocab=vocab,
            merges=_merges_from_scores(vocab, cast(list[float], scores)),
            unk_token=unknown,
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    steps: list[normalizers.Normalizer] = [normalizers.Replace(" ", "▁")]
    decoding: list[decoders.Decoder] = [
        decoders.Replace("▁", " "),
        decoders.ByteFallback(),
        decoders.Fuse(),
    ]
    if metadata.get("tokenizer.ggml.add_space_prefix", True):
        steps.insert(0, normalizers.Prepend("▁"))
        decoding.append(decoders.Strip(" ", 1, 0))
    backend.normalizer = normalizers.Sequence(steps)
    backend.decoder = decoders.Sequence(decoding)
    return backend


def _merges_from_scores(vocab: Mapping[str, int], scores: list[float]) -> list[tuple[str, str]]:
    """Turn SPM scores to ranked merges: every split of a token into two tokens, best score first."""
    ranked: list[tuple[float, int, int, str, str]] = []
    for token, index in vocab.items():
        for border in range(1, len(token)):
            left, right = token[:border], token[border:]
            if left in vocab and right in vocab:
                ranked.append((-scores[index], vocab[left], vocab[right], left, right))
    ranked.sort()
    return [(left, right) for *_, left, right in ranked]


def _add_special_tokens(backend: Tokenizer, metadata: Mapping[str, object]) -> None:
    tokens = _strings(metadata, "tokenizer.ggml.tokens")
    kinds = metadata.get("tokenizer.ggml.token_type")
    if not isinstance(kinds, list):
        return
    special, plain = [], []
    for token, kind in zip(tokens, kinds, strict=False):
        if kind in (_CONTROL, _UNKNOWN):
            special.append(AddedToken(token, normalized=False, special=True))
        elif kind == _USER_DEFINED:
            plain.append(AddedToken(token, normalized=False, special=False))
    backend.add_special_tokens(special)
    backend.add_tokens(plain)


def _add_template(backend: Tokenizer, metadata: Mapping[str, object]) -> None:
    """Add BOS (and EOS, rarely) to encoded texts as the file wants it."""
    tokens = _strings(metadata, "tokenizer.ggml.tokens")
    is_spm = metadata.get("tokenizer.ggml.model") == "llama"
    adds_by_default = is_spm or metadata.get("tokenizer.ggml.pre") in _LLAMA3_PRE
    pieces, used = ["$A"], []
    bos = metadata.get("tokenizer.ggml.bos_token_id")
    if metadata.get("tokenizer.ggml.add_bos_token", adds_by_default) and isinstance(bos, int):
        pieces.insert(0, tokens[bos])
        used.append((tokens[bos], bos))
    eos = metadata.get("tokenizer.ggml.eos_token_id")
    if metadata.get("tokenizer.ggml.add_eos_token", False) and isinstance(eos, int):
        pieces.append(tokens[eos])
        used.append((tokens[eos], eos))
    if used:
        backend.post_processor = processors.TemplateProcessing(
            single=pieces, special_tokens=list(dict.fromkeys(used))
        )
