"""The trainer's model is transformers' model, and its tricks are what they claim to be."""

from random import Random

import pytest
import torch

from tools.tiny_hybrid.attention import Span, _attend
from tools.tiny_hybrid.batch import Stretch, build_batch
from tools.tiny_hybrid.model import TinyHybrid
from tools.tiny_hybrid.norm import ZeroCentredNorm
from tools.tiny_hybrid.sample import Sample
from tools.tiny_hybrid.shape import Shape

SHAPE = Shape(vocab_size=64, hidden_size=32, intermediate_size=48)


def random_model(*, seed=0):
    model = TinyHybrid(SHAPE, seed=seed)
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim < 2:
                parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return model


@pytest.mark.filterwarnings("ignore")
def test_logits_equal_those_of_transformers():
    from transformers import AutoConfig, AutoModelForCausalLM

    model = random_model()
    fields = SHAPE.config(eos_id=1, pad_id=0)
    config = AutoConfig.for_model(**{k: v for k, v in fields.items() if k != "dtype"})
    reference = AutoModelForCausalLM.from_config(config).eval()
    missing, unexpected = reference.load_state_dict(model.state_dict(), strict=False)
    assert missing == ["lm_head.weight"]
    assert all(name.startswith("mtp.") for name in unexpected)
    token_ids = torch.randint(0, SHAPE.vocab_size, (2, 96))
    with torch.no_grad():
        ours = model.logits(model.model(token_ids, Span.of(torch.arange(96)[None], SHAPE)))
        theirs = reference(token_ids).logits
    assert (ours - theirs).abs().max() < 1e-4 * theirs.abs().max()


def test_the_mtp_head_is_a_layer_over_embedding_and_hidden_state():
    """Against the layers of the trunk, which are tested against transformers."""
    model = random_model(seed=1)
    token_ids = torch.randint(0, SHAPE.vocab_size, (1, 32))
    span = Span.of(torch.arange(32)[None], SHAPE)
    with torch.no_grad():
        hidden = model.model(token_ids, span)
        drafted = model.draft_hidden(hidden, token_ids, span)[:, :-1]
        following = model.model.embed_tokens(token_ids[:, 1:])
        head = model.mtp
        joined = torch.cat(
            [head.pre_fc_norm_embedding(following), head.pre_fc_norm_hidden(hidden[:, :-1])], -1
        )
        short = Span.of(torch.arange(31)[None], SHAPE)
        expected = head.norm(head.layers[0](head.fc(joined), short))
    assert torch.allclose(drafted, expected, atol=1e-5)


def test_the_norm_has_the_gradient_of_its_formula():
    x = torch.randn(3, 5, 8, dtype=torch.float64, requires_grad=True)
    norm = ZeroCentredNorm(8, 1e-6).double()
    torch.nn.init.normal_(norm.weight)
    assert torch.autograd.gradcheck(norm, x)
    plain = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * (1 + norm.weight)
    assert torch.allclose(norm(x), plain)


def test_a_diluted_key_counts_like_copies_of_it():
    """Softmax over a key with log n added equals softmax over n such keys."""
    torch.manual_seed(3)
    key, value = torch.randn(1, 1, 6, 8), torch.randn(1, 1, 6, 8)
    query = torch.randn(1, 1, 6, 8)
    copies = [1, 5, 5, 1, 1, 1]
    bias = torch.tensor(copies).float().log().expand(1, 1, 2, 6).clone()
    bias[0, 0, 0, 5] = -torch.inf
    mixed = _attend(query, key, value, bias)[0, 0, -2:]
    for row, visible in ((0, 5), (1, 6)):
        index = [i for i in range(visible) for _ in range(copies[i])]
        scores = key[0, 0, index] @ query[0, 0, 4 + row] / 8**0.5
        assert torch.allclose(mixed[row], scores.softmax(0) @ value[0, 0, index], atol=1e-5)


def test_a_stretched_row_jumps_and_dilutes_in_its_filler_only():
    filler = [False] * 10 + [True] * 40 + [False] * 14
    sample = Sample(list(range(64)), [False] * 60 + [True] * 4, filler)
    plain = build_batch([sample], SHAPE)
    assert plain.span.tail_bias is None
    batch = build_batch([sample], SHAPE, rng=Random(1), stretch=Stretch(spread=1.0, dilute=1.0))
    bias = batch.span.tail_bias[0, 0]
    assert bias.shape == (14, 64)
    assert (bias[:, :10] == 0).all()
    assert (bias[:, 10:50] > 0).all()
    assert torch.isinf(bias[0, 51:]).all()
    assert torch.equal(batch.span.cosines[:, :, :10], plain.span.cosines[:, :, :10])
    assert not torch.equal(batch.span.cosines[:, :, 50:], plain.span.cosines[:, :, 50:])


def test_targets_are_the_learned_tokens_and_what_stands_before_them():
    sample = Sample([5, 6, 7, 8, 9], [False, False, True, True, False], [False] * 5)
    batch = build_batch([sample, sample], SHAPE)
    width = batch.token_ids.shape[1]
    index, targets = batch.targets(1)
    assert index.tolist() == [1, 2, width + 1, width + 2]
    assert targets.tolist() == [7, 8, 7, 8]
    index, targets = batch.targets(2)
    assert (index.tolist()[:2], targets.tolist()[:2]) == ([0, 1], [7, 8])
