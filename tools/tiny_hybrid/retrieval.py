"""Measures whether the model finds secrets."""

from random import Random

import torch
from torch import Tensor
from torch.nn import functional

from tools.tiny_hybrid.batch import Batch, build_batch
from tools.tiny_hybrid.feed import Feed
from tools.tiny_hybrid.model import TinyHybrid


@torch.no_grad()
def retrieval_accuracy(
    model: TinyHybrid,
    feed: Feed,
    *,
    num_tokens: int,
    num_haystacks: int,
    is_thinking: bool = True,
    seed: int = 0,
) -> float:
    """Share of haystacks with one secret for which greedy decoding gives the whole thought, or the whole answer.

    All tokens are checked in one pass: if each is the most likely one after the right ones before it,
    greedy decoding writes exactly them.
    """
    rng = Random(f"retrieval/{seed}/{num_tokens}")
    rows = max(1, min(16, 16384 // num_tokens))
    right = done = 0
    while done < num_haystacks:
        samples = [
            feed.test_haystack(rng, num_tokens=num_tokens, is_thinking=is_thinking)
            for _ in range(min(rows, num_haystacks - done))
        ]
        right += int(rows_right(model, build_batch(samples, model.shape)).sum())
        done += len(samples)
    return right / num_haystacks


@torch.no_grad()
def rows_right(model: TinyHybrid, batch: Batch) -> Tensor:
    """Tell for each row whether all learned tokens are predicted; [batch], bool."""
    index, targets = batch.targets(1)
    hidden = model.model(batch.token_ids, batch.span)
    wrong = model.logits(hidden.flatten(0, 1)[index]).argmax(-1) != targets
    rows = index // batch.token_ids.shape[1]
    return torch.zeros(len(batch.token_ids)).index_add(0, rows, wrong.float()) == 0


@torch.no_grad()
def draft_acceptance(model: TinyHybrid, batch: Batch) -> float:
    """Share of learned tokens for which the MTP head's first draft is what the model itself would say."""
    index, _ = batch.targets(2)
    hidden = model.model(batch.token_ids, batch.span)
    drafts = model.draft_hidden(hidden, batch.token_ids, batch.span).flatten(0, 1)
    drafted = model.logits(drafts[index]).argmax(-1)
    said = model.logits(hidden.flatten(0, 1)[index + 1]).argmax(-1)
    return float((drafted == said).float().mean())


@torch.no_grad()
def held_out_loss(model: TinyHybrid, batch: Batch) -> float:
    """Cross entropy per learned token, nats."""
    index, targets = batch.targets(1)
    hidden = model.model(batch.token_ids, batch.span)
    return float(functional.cross_entropy(model.logits(hidden.flatten(0, 1)[index]), targets))
