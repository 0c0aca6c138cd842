"""What the engine counts, for `/metrics`. Written on the engine thread, read by anyone."""

from dataclasses import dataclass

from ninfer.core.step import StepOutput, StepPlan


@dataclass(slots=True)
class EngineCounters:
    """Sums since the start.

    Attributes:
        num_submitted: requests taken.
        num_steps: steps executed.
        num_failed_steps: steps that failed as a whole.
        num_computed_tokens: tokens run through the model.
        num_sampled_tokens: tokens sampled.
        forward_s: seconds inside model and sampler.
        step_s: seconds of whole steps.
    """

    num_submitted: int = 0
    num_steps: int = 0
    num_failed_steps: int = 0
    num_computed_tokens: int = 0
    num_sampled_tokens: int = 0
    forward_s: float = 0.0
    step_s: float = 0.0

    def count_step(self, plan: StepPlan, output: StepOutput, *, seconds: float) -> None:
        """Add one step."""
        self.num_steps += 1
        self.num_computed_tokens += sum(len(chunk.token_ids) for chunk in plan.chunks)
        self.num_sampled_tokens += sum(len(chunk.token_ids) for chunk in output.chunks)
        self.forward_s += output.forward_s
        self.step_s += seconds
