"""The MTP head against the layer of `transformers`; any split into calls gives the same; wrong tensors are named."""

import random
from dataclasses import replace

import pytest
import torch
from torch.nn.functional import linear

from ninfer.api import LaneRows
from ninfer.api.errors import ModelError
from ninfer.kernels.kv_pool import KvPool
from ninfer.kernels.linear import LinearPolicy
from ninfer.models import mtp_head
from ninfer.models.build_options import BuildOptions
from ninfer.models.config import HYBRID_FAMILIES
from ninfer.models.loader import load_model, load_mtp_head
from ninfer.models.mtp_head import build_mtp_head
from ninfer.models.random_model import RandomWeights, random_model, random_mtp_head, tiny_config
from ninfer.models.resolve import resolve_model

SEED = 5
RUNS = ((1, 2), (5, 2))
families = pytest.mark.parametrize("family", HYBRID_FAMILIES)


def make(family):
    model = random_model(tiny_config(family), SEED, dtype=torch.float64, has_mtp_head=True)
    head = random_mtp_head(model, SEED)
    pool = KvPool(head.kv_spec, 8)
    pool.kv.normal_(generator=torch.Generator().manual_seed(1))
    head.bind(pool)
    return model, head


def rows(lane, start, token_ids, runs=RUNS):
    return LaneRows(lane=lane, start_tokens=start, token_ids=token_ids, runs=runs)


def inputs(config, num_tokens, seed=3):
    rng = random.Random(seed)
    token_ids = [rng.randrange(config.vocab_size) for _ in range(num_tokens)]
    generator = torch.Generator().manual_seed(seed)
    return token_ids, torch.randn(
        num_tokens, config.hidden_size, generator=generator, dtype=torch.float64
    )


def reference_layer(config, family):
    """The decoder layer with full attention of `transformers`, float64."""
    import transformers

    name = {
        "qwen3_5": "Qwen3_5",
        "qwen3_5_moe": "Qwen3_5Moe",
        "qwen3_next": "Qwen3Next",
    }[family]
    module = getattr(transformers.models, family)
    modeling = getattr(module, f"modeling_{family}")
    options = {
        "hidden_size": config.hidden_size,
        "num_hidden_layers": 1,
        "layer_types": ["full_attention"],
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "intermediate_size": config.intermediate_size,
        "rms_norm_eps": config.rms_norm_eps,
        "vocab_size": config.vocab_size,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": config.rope_theta,
            "partial_rotary_factor": config.rotated_dim / config.head_dim,
        },
    }
    if config.experts is not None:
        experts = config.experts
        options |= {
            "num_experts": experts.num_experts,
            "num_experts_per_tok": experts.num_chosen,
            "moe_intermediate_size": experts.intermediate_size,
            "shared_expert_intermediate_size": experts.shared_intermediate_size,
            "norm_topk_prob": experts.normalises,
        }
    prefix = name if family == "qwen3_next" else f"{name}Text"
    configuration = getattr(module, f"configuration_{family}")
    made = getattr(configuration, f"{prefix}Config")(**options)
    made._attn_implementation = "eager"
    made._experts_implementation = "eager"
    layer = getattr(modeling, f"{name}DecoderLayer")(made, 0).double()
    rotary = getattr(
        modeling, f"{name}TextRotaryEmbedding" if prefix != name else f"{name}RotaryEmbedding"
    )
    return layer, rotary(made)


def load_layer(layer, tensors):
    found = {
        name.removeprefix("mtp.layers.0."): tensor
        for name, tensor in tensors.items()
        if name.startswith("mtp.layers.0.")
    }
    wanted = layer.state_dict()
    if "mlp.experts.gate_up_proj" in wanted:
        count = len(wanted["mlp.experts.gate_up_proj"])
        parts = [
            [found.pop(f"mlp.experts.{i}.{p}_proj.weight") for i in range(count)]
            for p in ("gate", "up", "down")
        ]
        gate, up, down = (torch.stack(part) for part in parts)
        found["mlp.experts.gate_up_proj"] = torch.cat((gate, up), 1)
        found["mlp.experts.down_proj"] = down
    layer.load_state_dict(found)


def normed(x, weight, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * (1 + weight)


@families
def test_results_are_those_of_transformers(family):
    model, head = make(family)
    config = model.config
    file = RandomWeights(config, SEED, has_mtp_head=True)
    tensors = {name: file.read_tensor(name) for name in file.shapes}
    layer, rotary = reference_layer(config, family)
    load_layer(layer, tensors)
    token_ids, hidden = inputs(config, 90)
    eps = config.rms_norm_eps
    embedded = tensors["model.embed_tokens.weight"][torch.tensor(token_ids)]
    joined = torch.cat(
        (
            normed(embedded, tensors["mtp.pre_fc_norm_embedding.weight"], eps),
            normed(hidden, tensors["mtp.pre_fc_norm_hidden.weight"], eps),
        ),
        -1,
    )
    x = linear(joined, tensors["mtp.fc.weight"]).unsqueeze(0)
    positions = torch.arange(1, len(token_ids) + 1).unsqueeze(0)
    mask = torch.full((len(token_ids),) * 2, -torch.inf, dtype=torch.float64).triu(1)
    with torch.no_grad():
        out = layer(
            x,
            position_embeddings=rotary(x, positions),
            attention_mask=mask[None, None],
            position_ids=positions,
        )
    out = out[0] if isinstance(out, tuple) else out
    expected = normed(out[0], tensors["mtp.norm.weight"], eps)
    for count in (1, 2, 63, 64, 90):
        found = head.extend([rows(0, 1, token_ids[:count])], hidden[:count])
        assert (found[0] - expected[count - 1]).abs().max() < 1e-6
    logits = linear(expected[-1:], tensors["lm_head.weight"])
    assert head.choose(found) == logits.argmax(-1).tolist()


@families
def test_any_split_and_any_batch_give_the_same(family):
    model, head = make(family)
    token_ids, hidden = inputs(model.config, 150)
    whole = head.extend([rows(0, 1, token_ids)], hidden)
    rng = random.Random(9)
    other_ids, other_hidden = inputs(model.config, 40, seed=4)
    at = 0
    while at < len(token_ids):
        end = min(len(token_ids), at + rng.choice([1, 2, 30, 64]))
        # Guesses that are rejected afterwards leave no trace.
        head.extend([rows(0, 1 + at, [7] * 3)], hidden[:3])
        both = [rows(0, 1 + at, token_ids[at:end]), rows(1, 1, other_ids, runs=((3, 2),))]
        found = head.extend(both, torch.cat((hidden[at:end], other_hidden)))
        at = end
    assert (found[0] - whole[0]).abs().max() < 1e-10


def test_position_0_is_never_looked_at():
    model, head = make("qwen3_5")
    token_ids, hidden = inputs(model.config, 20)
    before = head.extend([rows(0, 1, token_ids)], hidden)
    head._pool.kv[:, :, 64].fill_(1e6)
    assert torch.equal(before, head.extend([rows(0, 1, token_ids)], hidden))
    with pytest.raises(ValueError, match="position 0"):
        head.extend([rows(0, 0, token_ids)], hidden)


@families
@pytest.mark.parametrize("max_unpacked", [0, mtp_head.MAX_UNPACKED_WEIGHTS])
def test_the_head_of_a_bf16_model_keeps_bf16_kv_however_it_is_held(
    family, max_unpacked, monkeypatch
):
    monkeypatch.setattr(mtp_head, "MAX_UNPACKED_WEIGHTS", max_unpacked)
    _, exact = make(family)
    model = random_model(tiny_config(family), SEED, dtype=torch.bfloat16, has_mtp_head=True)
    head = random_mtp_head(model, SEED)
    assert head.kv_spec.dtype == torch.bfloat16
    head.bind(KvPool(head.kv_spec, 8))
    token_ids, hidden = inputs(model.config, 70)
    expected = exact.extend([rows(0, 1, token_ids)], hidden)
    found = head.extend([rows(0, 1, token_ids)], hidden.float())
    alike = torch.nn.functional.cosine_similarity(found.double(), expected)
    assert alike.min() > 0.99


def compiled_and_torch(compiler, form="bf16", **changes):
    """The heads of one bf16 model over equal pools."""
    pytest.importorskip("numba")
    policy = LinearPolicy() if form == "bf16" else LinearPolicy(few=form, max_few_rows=4)
    heads = []
    for each in (compiler, None):
        model = random_model(
            replace(tiny_config("qwen3_5"), **changes),
            SEED,
            dtype=torch.bfloat16,
            has_mtp_head=True,
            policy=policy,
            compiler=each,
        )
        head = random_mtp_head(model, SEED)
        head.bind(KvPool(head.kv_spec, 8))
        heads.append(head)
    assert heads[0]._compiled is not None
    assert heads[1]._compiled is None
    return model.config, heads


@pytest.mark.parametrize(
    "changes",
    [{}, {"head_dim": 32}, {"hidden_size": 40, "qk_norm": False}, {"attention_gate": False}],
    ids=str,
)
@pytest.mark.parametrize("form", ["bf16", "int8"])
def test_a_compiled_head_gives_what_torch_gives(form, changes, compiler, monkeypatch):
    if form != "bf16":
        monkeypatch.setattr(mtp_head, "MAX_UNPACKED_WEIGHTS", 0)
    config, heads = compiled_and_torch(compiler, form, **changes)
    token_ids, hidden = inputs(config, 160)
    hidden = hidden.float()
    for head in heads:
        head.extend([rows(0, 1, token_ids[:100])], hidden[:100])
        head.extend([rows(1, 1, token_ids[:70], runs=((3, 2),))], hidden[:70])
    heads[1]._pool.kv.copy_(heads[0]._pool.kv)
    calls = [(1, 0), (3, 1), (1, 2), (0, 5)]
    at = {0: 100, 1: 70}
    for counts in calls:
        lanes, of_lanes = [], []
        for lane, count in enumerate(counts):
            if count:
                first = at[lane]
                runs = RUNS if lane == 0 else ((3, 2),)
                lanes.append(rows(lane, 1 + first, token_ids[first : first + count], runs))
                of_lanes.append(hidden[first : first + count])
                at[lane] += count
        found, expected = (head.extend(lanes, torch.cat(of_lanes)) for head in heads)
        torch.testing.assert_close(found, expected, rtol=0, atol=0.05 * float(expected.std()))
    kept, expected = (head._pool.kv for head in heads)
    torch.testing.assert_close(kept, expected, rtol=0.02, atol=0.05)


def test_a_lane_has_the_same_guesses_alone_and_beside_others(compiler):
    config, (head, _) = compiled_and_torch(compiler, head_dim=32)
    head.bind(KvPool(head.kv_spec, 60))
    token_ids, hidden = inputs(config, 1100)
    hidden, runs = hidden.float(), ((20, 20),)
    head.extend([rows(0, 1, token_ids[:1090], runs)], hidden[:1090])
    head.extend([rows(1, 1, token_ids[:70])], hidden[:70])
    long, short = rows(0, 1091, token_ids[1090:1093], runs), rows(1, 71, token_ids[70:71])
    alone = head.extend([long], hidden[1090:1093])
    both = head.extend([short, long], torch.cat((hidden[70:71], hidden[1090:1093])))
    assert torch.equal(both[1:], alone)


def test_a_head_wants_a_hidden_state_for_each_token(compiler):
    _, heads = compiled_and_torch(compiler)
    for head in heads:
        with pytest.raises(ValueError, match="1 hidden states for 3 tokens"):
            head.extend([rows(0, 1, [1, 2, 3])], torch.zeros(1, 48))


def test_a_compiled_head_leaves_long_calls_to_torch(compiler, monkeypatch):
    config, heads = compiled_and_torch(compiler)
    token_ids, hidden = inputs(config, 40)
    called = []
    results = heads[0]._compiled.results
    monkeypatch.setattr(
        heads[0]._compiled, "results", lambda x, *rest: called.append(len(x)) or results(x, *rest)
    )
    heads[0].extend([rows(0, 1, token_ids[:24])], hidden[:24].float())
    heads[0].extend([rows(0, 25, token_ids[24:33])], hidden[24:33].float())
    assert called == [], "a lane's rows are at most eight"
    first = heads[0].extend([rows(0, 34, token_ids[33:36])], hidden[33:36].float())
    assert called == [3]
    kept = first.clone()
    heads[0].extend([rows(0, 37, token_ids[36:37])], hidden[36:37].float())
    assert torch.equal(first, kept)
    from ninfer.models import compiled_head

    monkeypatch.setattr(compiled_head, "MAX_KEYS", 38)
    heads[0].extend([rows(0, 38, token_ids[37:38])], hidden[37:38].float())
    assert called == [3, 1], "heads of 16 elements attend row by row"


def test_a_head_that_cannot_be_compiled_is_computed_in_torch(compiler, monkeypatch):
    from ninfer.models.layer_program import LayerProgram

    def fail(*_):
        raise RuntimeError("no code for this processor")

    source = resolve_model("tiny-hybrid")
    model = load_model(source, policy=LinearPolicy(), compiler=compiler)
    assert load_mtp_head(source, model)._compiled is not None
    monkeypatch.setattr(LayerProgram, "layer", fail)
    assert load_mtp_head(source, model)._compiled is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.pop("mtp.fc.weight"), "mtp.fc.weight: expected shape .48, 96., it is missing"),
        (lambda t: t.update({"mtp.norm.weight": torch.zeros(9)}), "mtp.norm.weight.*found .9."),
        (lambda t: t.update({"mtp.extra": torch.zeros(3)}), "mtp.extra: not part of.*found shape"),
    ],
)
def test_tensors_that_do_not_fit_are_named(change, words):
    config = tiny_config("qwen3_5")
    model = random_model(config, SEED, dtype=torch.float64, has_mtp_head=True)
    file = RandomWeights(config, SEED, has_mtp_head=True)
    change(file._tensors)
    options = BuildOptions(model.dtype, model.linear_policy, model.device)
    with pytest.raises(ModelError, match=words):
        build_mtp_head(model, file, options)
