"""Fields that a request leaves out mean what the model wants; those it sends win."""

from ninfer.core.sampling import SamplingParams
from ninfer.server.generation.schema import GenerationFields
from ninfer.text.sampling_defaults import SamplingDefaults

WANTED = SamplingDefaults(temperature=0.0, top_p=0.9, top_k=20, min_p=0.1, repetition_penalty=1.2)


def _sampling(**fields: object) -> SamplingParams:
    body = GenerationFields.model_validate(fields)
    return body.sampling(vocab_size=9, defaults=WANTED, num_logprobs=None, choice=0)


def test_absent_and_null_fields_are_the_model_s() -> None:
    wanted = SamplingParams(temperature=0.0, top_p=0.9, top_k=20, min_p=0.1, repetition_penalty=1.2)
    assert _sampling() == wanted
    assert _sampling(temperature=None, top_k=None) == wanted


def test_sent_fields_win_also_when_they_are_zero() -> None:
    sent = _sampling(temperature=1, top_p=1, top_k=0, min_p=0, repetition_penalty=1)
    assert sent == SamplingParams(temperature=1.0)
