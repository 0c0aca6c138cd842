"""Teaches the MTP head to go on from its own results, the rest of the model as it is. Knows nothing about files.

Training with the model shows the head true hidden states only, so its second draft, made from its own result, was right
in a third of the cases in which the first was. Here it drafts several tokens after every token of a text, as it does when
the model runs: each draft sees what true hidden states left for the tokens before, and its own earlier drafts.
"""

from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from tools.tiny_hybrid.attention import Attention, Span
from tools.tiny_hybrid.batch import Batch
from tools.tiny_hybrid.fused_projection import project
from tools.tiny_hybrid.model import TinyHybrid

NUM_PLACES: Final = 3
"""Drafts in a row that are learned."""


class DraftUnroll:
    """The head over all tokens of a batch, draft by draft.

    Args:
        model: whose head it is.
        batch: with plain positions, all rows filled.
    """

    def __init__(self, model: TinyHybrid, batch: Batch) -> None:
        self._model = model
        self._token_ids = batch.token_ids
        with torch.no_grad():
            self.hidden = model.model(batch.token_ids, batch.span)
            self.said = model.logits(self.hidden).argmax(-1)
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []

    def places(self) -> list[Tensor]:
        """Run the head NUM_PLACES times.

        Returns:
            For each place, [batch, num_tokens, hidden_size]: row t predicts token t + 1 + place, the first place is 1.
        """
        results, hidden = [], self.hidden
        for place in range(1, NUM_PLACES + 1):
            following = torch.roll(self._token_ids, -place, 1)
            hidden = self._head(hidden, following, place)
            results.append(hidden)
        return results

    def _head(self, hidden: Tensor, token_ids: Tensor, place: int) -> Tensor:
        head, embed = self._model.mtp, self._model.model.embed_tokens
        layer = head.layers[0]
        embedded = head.pre_fc_norm_embedding(embed(token_ids).detach())
        x = head.fc(torch.cat([embedded, head.pre_fc_norm_hidden(hidden)], -1))
        x = x + self._attend(layer.self_attn, layer.input_layernorm(x), place)
        return head.norm(x + layer.mlp(layer.post_attention_layernorm(x)))

    def _attend(self, attention: Attention, x: Tensor, place: int) -> Tensor:
        """As `Attention`, over the entries of the first place before a token and the token's own of later ones."""
        batch, num_tokens, _ = x.shape
        shape = attention.shape
        positions = torch.arange(num_tokens).expand(batch, -1) + place
        span = Span.of(positions, shape)
        joined, key, value = project(x, attention.q_proj, attention.k_proj, attention.v_proj)
        query, gate = joined.view(batch, num_tokens, -1, 2 * shape.head_dim).chunk(2, -1)
        query = span.rotate(attention.q_norm(query).transpose(1, 2))
        key = attention.k_norm(key.view(batch, num_tokens, -1, shape.head_dim))
        self._keys.append(span.rotate(key.transpose(1, 2)))
        self._values.append(value.view(batch, num_tokens, -1, shape.head_dim).transpose(1, 2))
        before = torch.ones(num_tokens, num_tokens, dtype=torch.bool).tril()
        own = torch.eye(num_tokens, dtype=torch.bool)
        mask = torch.cat([before, *[own] * (place - 1)], 1)
        repeats = shape.num_attention_heads // shape.num_key_value_heads
        keys, values = (
            torch.cat(parts, 2).repeat_interleave(repeats, 1)
            for parts in (self._keys, self._values)
        )
        mixed = functional.scaled_dot_product_attention(query, keys, values, attn_mask=mask)
        mixed = mixed.transpose(1, 2).reshape(batch, num_tokens, -1)
        return attention.o_proj(mixed * gate.reshape(batch, num_tokens, -1).sigmoid())


def draft_targets(unroll: DraftUnroll, batch: Batch, place: int) -> tuple[Tensor, Tensor]:
    """Find where a draft can be judged.

    It can where the model itself would have written the text up to there, as only then the draft is asked for.

    Returns:
        Flat indices into [batch * num_tokens], and what the model says there.
    """
    token_ids, said = batch.token_ids, unroll.said
    asked = torch.zeros_like(batch.is_answer)
    asked[:, : -place - 1] = batch.is_answer[:, place + 1 :]
    for earlier in range(1, place + 1):
        asked &= torch.roll(token_ids, -earlier, 1) == torch.roll(said, 1 - earlier, 1)
    index = asked.flatten().nonzero()[:, 0]
    return index, torch.roll(said, -place, 1).flatten()[index]


def draft_losses(
    model: TinyHybrid, batch: Batch, *, max_targets: int | None = None
) -> tuple[list[Tensor], list[float]]:
    """Compute loss and share of right drafts at every place.

    Args:
        model: its head gets gradients.
        batch: chats.
        max_targets: judge the first so many positions of a random order only; None for all.

    Returns:
        Per place, cross entropy, and the share of drafts that are right where the text is what the model says.
    """
    unroll = DraftUnroll(model, batch)
    losses, right = [], []
    for place, hidden in enumerate(unroll.places(), start=1):
        index, targets = draft_targets(unroll, batch, place)
        if max_targets is not None and len(index) > max_targets:
            chosen = torch.randperm(len(index))[:max_targets]
            index, targets = index[chosen], targets[chosen]
        logits = functional.linear(
            hidden.flatten(0, 1)[index], model.model.embed_tokens.weight.detach()
        )
        losses.append(functional.cross_entropy(logits, targets))
        right.append(float((logits.argmax(-1) == targets).float().mean()))
    return losses, right
