"""The loaded model as speculative decoders see it."""

from ninfer.models.transformer import Transformer


class LoadedModelAccess:
    """A `ModelAccess` over a transformer.

    Args:
        model: the loaded model.
    """

    def __init__(self, model: Transformer) -> None:
        """Keep the model."""
        self.module = model
        self.family: str = model.config.family
        self.vocab_size = model.config.vocab_size
        self.has_mtp_head = model.has_mtp_head
