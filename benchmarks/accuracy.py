"""What packed weights cost in accuracy: distributions after each token of a text, against bf16 weights.

Every token is one decode step of one row, because packed weights are used for few rows only. The floor is the
difference between bf16 weights in one pass over all rows and row by row: the same model, other rounding. bf16 rows are
computed by torch.
"""

from pathlib import Path

import torch
from torch import Tensor

from benchmarks.served import THREADS, Bench
from benchmarks.table import Row
from ninfer.core.step import PAGE_SIZE_TOKENS
from ninfer.kernels.compiled.opening import open_compiler
from ninfer.kernels.kv_pool import KvPool
from ninfer.models.batch import ForwardBatch, Segment
from ninfer.models.loader import load_model
from ninfer.models.resolve import resolve_model
from ninfer.text.tokenizer import Tokenizer

TEXT = Path(__file__).with_name("text.txt")


def measure(bench: Bench) -> list[Row]:
    torch.set_num_threads(THREADS)
    source = resolve_model("smollm2")
    tokens = Tokenizer.from_path(source.path).encode(TEXT.read_text(encoding="utf-8"))
    tokens = tokens[: bench.pick(500, 40)]
    compiler = open_compiler(bench.folder / "cache" / "code")
    plain = load_model(source, weight_format="plain")
    expected = _row_by_row(plain, tokens)
    rows = [_compare("bf16, all rows at once (floor)", expected, _at_once(plain, tokens))]
    names = {
        "plain": "bf16 weights, compiled steps",
        "int8": "int8 weights",
        "int4": "int4 weights",
    }
    for name, figure in names.items():
        model = load_model(source, weight_format=name, compiler=compiler)
        row = _compare(figure, expected, _row_by_row(model, tokens))
        row.raw["policy"] = str(model.linear_policy)
        rows.append(row)
    return rows


def _row_by_row(model, tokens: list[int]) -> Tensor:
    kv, runs = _pool(model, tokens)
    rows = []
    for position, token in enumerate(tokens):
        batch = ForwardBatch.of([token], [Segment(0, 1, position, runs)])
        rows.append(model.logits(model.forward(batch, kv)))
    return torch.cat(rows).log_softmax(-1)


def _at_once(model, tokens: list[int]) -> Tensor:
    kv, runs = _pool(model, tokens)
    batch = ForwardBatch.of(tokens, [Segment(0, len(tokens), 0, runs)])
    return model.logits(model.forward(batch, kv)).log_softmax(-1)


def _pool(model, tokens: list[int]):
    num_pages = -(-len(tokens) // PAGE_SIZE_TOKENS)
    return KvPool(model.kv_spec, num_pages), ((0, num_pages),)


def _compare(name: str, expected: Tensor, found: Tensor) -> Row:
    divergence = (expected.exp() * (expected - found)).sum(-1)
    is_same = expected.argmax(-1) == found.argmax(-1)
    agreement = float(is_same.float().mean())
    return Row(
        figure=f"accuracy against bf16: {name}",
        measured=float(divergence.mean()),
        unit=f"nats mean KL, top-1 equal {100 * agreement:.1f} %",
        note=f"{len(expected)} positions of benchmarks/text.txt",
        raw={
            "mean_kl": float(divergence.mean()),
            "p99_kl": float(divergence.quantile(0.99)),
            "top1_agreement": agreement,
            "num_tokens": len(expected),
        },
    )
