"""What all layers of one forward pass share. Knows nothing about layers."""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from ninfer.kernels.paged_attention import AttentionPlan
from ninfer.models.state_plan import StatePlan


@dataclass(frozen=True, slots=True)
class Step:
    """Worked out once, used by every layer.

    Attributes:
        rotation: from `kernels.rope.rotations`.
        attention: writes and reads KV.
        states: reads and writes recurrent states; None for models without.
    """

    rotation: Tensor
    attention: AttentionPlan
    states: StatePlan | None = None

    def require_states(self) -> StatePlan:
        """Return the plan for states.

        Raises:
            ValueError: there is none.
        """
        if self.states is None:
            raise ValueError("the model keeps state, but the step has no state pool")
        return self.states


class Mixer(Protocol):
    """The part of a layer where tokens of a lane meet: attention, or a recurrent state."""

    def __call__(self, x: Tensor, step: Step) -> Tensor:
        """Compute what is added to the residual stream.

        Args:
            x: normalised rows `[num_rows, hidden_size]`.
            step: shared by all layers.

        Returns:
            `[num_rows, hidden_size]`, new, of any float type.

        Changes: what the rows leave in KV or state slots of this layer.
        """
        ...
