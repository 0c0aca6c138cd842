"""One decoder layer: a mixer and a feed-forward block around the residual stream. Knows nothing about either."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from ninfer.kernels.rms_norm import RmsNorm
from ninfer.models.step import Mixer, Step


@dataclass(frozen=True, slots=True)
class DecoderLayer:
    """Mixer and feed-forward block.

    Attributes:
        input_norm: before the mixer.
        mixer: where tokens of a lane meet.
        feed_forward_norm: before the feed-forward block.
        feed_forward: row by row.
    """

    input_norm: RmsNorm
    mixer: Mixer
    feed_forward_norm: RmsNorm
    feed_forward: Callable[[Tensor], Tensor]

    def add_to(self, x: Tensor, step: Step) -> None:
        """Run the layer.

        Args:
            x: residual stream `[num_rows, hidden_size]`; updated in place.
            step: shared by all layers.

        Changes: `x`, and what the rows leave in KV or state slots of this layer.
        """
        x.add_(self.mixer(self.input_norm(x), step))
        x.add_(self.feed_forward(self.feed_forward_norm(x)))
