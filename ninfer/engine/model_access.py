"""The loaded model as speculative decoders see it."""

from collections.abc import Callable

from ninfer.models.mtp_head import MtpHead
from ninfer.models.transformer import Transformer


class LoadedModelAccess:
    """A `ModelAccess` over a transformer.

    Args:
        model: the loaded model.
        load_head: loads its multi-token-prediction head.

    Attributes:
        loaded_head: that head, None until somebody asked for it.
    """

    def __init__(self, model: Transformer, load_head: Callable[[], MtpHead]) -> None:
        """Keep the model."""
        self.module = model
        self.family: str = model.config.family
        self.vocab_size = model.config.vocab_size
        self.has_mtp_head = model.has_mtp_head
        self.loaded_head: MtpHead | None = None
        self._load_head = load_head

    @property
    def draft_head(self) -> MtpHead | None:
        """The head, loaded when first asked for; None for a checkpoint without.

        Raises:
            ModelError: its tensors are missing, unknown or misshapen.
        """
        if self.loaded_head is None and self.has_mtp_head:
            self.loaded_head = self._load_head()
        return self.loaded_head
