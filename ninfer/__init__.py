"""ninfer: an inference engine whose contexts, once prefilled, are never prefilled again."""

__version__ = "0.1.0"
