"""One decoder layer: a mixer and a feed-forward block around the residual stream. Knows nothing about either."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from ninfer.kernels.rms_norm import RmsNorm
from ninfer.models.residual_stream import ResidualStream
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

    def add_to(self, stream: ResidualStream, step: Step) -> None:
        """Run the layer.

        Args:
            stream: of the rows.
            step: shared by all layers.

        Changes: `stream`, and what the rows leave in KV or state slots of this layer.
        """
        stream.add(self.mixer(stream.normalised(self.input_norm), step))
        stream.add(self.feed_forward(stream.normalised(self.feed_forward_norm)))
