"""Tells which model is served. Knows nothing about HTTP."""

from ninfer.server.context import ServerContext


class ModelService:
    """The list of models: the one that is served.

    Args:
        context: of the server.
    """

    def __init__(self, context: ServerContext) -> None:
        """Keep the context."""
        self._context = context

    def list_models(self) -> dict[str, object]:
        """Return OpenAI's list of models."""
        return {"object": "list", "data": [self._model()]}

    def get_model(self, name: str) -> dict[str, object]:
        """Return one model.

        Raises:
            ModelNotFound: it is not served.
        """
        self._context.check_model(name)
        return self._model()

    def _model(self) -> dict[str, object]:
        info = self._context.engine.model_info
        return {
            "id": info.name,
            "object": "model",
            "created": info.created_unix,
            "owned_by": "ninfer",
            "max_model_len": info.max_context_tokens,
            "vocab_size": info.vocab_size,
            "kv_capacity_tokens": info.kv_capacity_tokens,
        }
