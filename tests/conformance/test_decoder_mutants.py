"""Each requirement of decoders has a decoder that fails it and no other, so each test can fail.

A mutant's suite names its requirement as a known failure: strict, so it has to fail there, and passes elsewhere.
"""

import pytest

from ninfer.testing.decoder import SpeculativeDecoderSuite
from ninfer.testing.mutants.decoder import DECODER_MUTANTS, SoundDecoder


def suite_of(decoder, known_failures):
    return SpeculativeDecoderSuite.derived(
        f"Test{decoder.__name__}",
        {"open_decoder": lambda self, context: decoder(context), "known_failures": known_failures},
    )


TestSoundDecoder = suite_of(SoundDecoder, {})

for requirement_id, mutant in DECODER_MUTANTS.items():
    globals()[f"Test{mutant.__name__}"] = suite_of(mutant, {requirement_id: "broken on purpose"})


def test_every_requirement_has_its_own_mutant():
    assert list(DECODER_MUTANTS) == list(SpeculativeDecoderSuite.requirements)
    assert len(set(DECODER_MUTANTS.values())) == len(DECODER_MUTANTS)


@pytest.mark.parametrize("mutant", DECODER_MUTANTS.values(), ids=lambda each: each.__name__)
def test_every_mutant_says_what_is_wrong_with_it(mutant):
    assert mutant.__doc__
