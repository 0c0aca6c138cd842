"""The MTP decoder refuses with advice."""

from types import SimpleNamespace

import pytest
from ninfer_spec_mtp.config import MtpConfig
from ninfer_spec_mtp.plugin import ninfer_speculative_decoders

from ninfer.api import DecoderContext, SpeculationError


def open_with(*, has_mtp_head, family):
    model = SimpleNamespace(family=family, vocab_size=10, has_mtp_head=has_mtp_head, module=None)
    (provider,) = ninfer_speculative_decoders()
    assert provider.kind == "mtp"
    return provider.open(
        DecoderContext(clock=None, model=model, max_lanes=1, max_draft_tokens=4), MtpConfig()
    )


def test_a_model_without_a_head_is_refused_with_advice():
    with pytest.raises(SpeculationError) as caught:
        open_with(has_mtp_head=False, family="llama")
    for part in ("llama", "no multi-token-prediction head", "Qwen3.5", '"ngram"', '"off"'):
        assert part in str(caught.value)


def test_a_model_with_a_head_is_told_that_this_version_does_not_run_it():
    with pytest.raises(SpeculationError) as caught:
        open_with(has_mtp_head=True, family="qwen3_5")
    assert "does not run it yet" in str(caught.value)
    assert '"ngram"' in str(caught.value)


def test_sample_config_is_valid(tmp_path):
    (provider,) = ninfer_speculative_decoders()
    assert provider.sample_config(tmp_path) == MtpConfig()
    with pytest.raises(ValueError):
        MtpConfig(num_draft_tokens=0)
