"""How hard a suite tries: profiles and the settings of hypothesis. Knows nothing about what is tested."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from hypothesis import HealthCheck, Phase, settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How hard a suite tries.

    Attributes:
        num_examples: random inputs of one property.
        num_machine_runs: runs of a state machine.
        num_machine_steps: operations of one such run.
        num_rounds: repetitions of a test that races threads.
        num_crash_points: write points at which a crash is tried, at most.
        is_filling: state machines also drive what they test to the edge of its capacity.
    """

    num_examples: int
    num_machine_runs: int
    num_machine_steps: int
    num_rounds: int
    num_crash_points: int
    is_filling: bool


EFFORTS: Final[Mapping[str, Effort]] = MappingProxyType({
    "quick": Effort(
        num_examples=10,
        num_machine_runs=12,
        num_machine_steps=20,
        num_rounds=8,
        num_crash_points=12,
        is_filling=False,
    ),
    "full": Effort(
        num_examples=100,
        num_machine_runs=200,
        num_machine_steps=50,
        num_rounds=50,
        num_crash_points=250,
        is_filling=True,
    ),
    "soak": Effort(
        num_examples=2_000,
        num_machine_runs=5_000,
        num_machine_steps=80,
        num_rounds=1_000,
        num_crash_points=10_000,
        is_filling=True,
    ),
})
"""Profiles: seconds, a minute, an hour."""


def hypothesis_settings(num_examples: int, num_steps: int, *, is_seeded: bool) -> settings:
    """Return settings that give the same run every time, and the smallest failing example.

    Args:
        num_examples: random inputs, or runs of a state machine.
        num_steps: operations of one run; of no matter for inputs.
        is_seeded: the caller sets a seed; otherwise hypothesis derives it from the test.
    """
    return settings(
        max_examples=num_examples,
        stateful_step_count=num_steps,
        derandomize=not is_seeded,
        database=None,
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.generate, Phase.target, Phase.shrink],
    )
