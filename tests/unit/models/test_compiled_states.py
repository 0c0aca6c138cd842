"""Models whose recurrent layers are compiled equal the same in torch."""

from dataclasses import replace

import pytest
import torch

from ninfer.kernels.kv_pool import KvPool
from ninfer.kernels.state_pool import StatePool
from ninfer.models.batch import ForwardBatch, Segment
from ninfer.models.compiling import can_compile_states
from ninfer.models.random_model import random_model, tiny_config

pytest.importorskip("numba")
RUNS = ((0, 4),)


def hybrid(value_dim=16, key_dim=8):
    config = tiny_config("qwen3_5")
    assert config.delta_net is not None
    return replace(
        config, delta_net=replace(config.delta_net, value_dim=value_dim, key_dim=key_dim)
    )


def test_a_model_with_compiled_recurrent_layers_equals_the_same_in_torch(compiler):
    found = []
    for which in (compiler, None):
        model = random_model(hybrid(), 3, dtype=torch.bfloat16, compiler=which)
        kv, states = KvPool(model.kv_spec, 4), StatePool(model.state_layout, 3)
        ids = [(17 * i) % 250 for i in range(100)]
        rows = [
            model.forward(
                ForwardBatch.of(ids[start:end], [Segment(0, end - start, start, RUNS, 1)]),
                kv,
                states,
            )
            for start, end in ((0, 90), (90, 99), (99, 100))
        ]
        found.append((torch.cat(rows), states.images))
    for compiled, plain in zip(*found, strict=True):
        # bf16 products round differently whatever differs a little before them.
        torch.testing.assert_close(compiled, plain, rtol=0, atol=0.03 * float(plain.std()))
    assert not torch.equal(found[0][1], found[1][1]), "the compiled layer computed"


def test_only_small_heads_of_bf16_models_are_compiled():
    assert can_compile_states(hybrid(), torch.bfloat16)
    assert not can_compile_states(hybrid(), torch.float32)
    assert not can_compile_states(hybrid(value_dim=12), torch.bfloat16)
    assert not can_compile_states(hybrid(value_dim=128, key_dim=128), torch.bfloat16)
    assert not can_compile_states(tiny_config(), torch.bfloat16)
