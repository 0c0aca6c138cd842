"""The OpenAI-compatible HTTP server. Knows nothing about tensors, caches or scheduling."""
