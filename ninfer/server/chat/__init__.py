"""`POST /v1/chat/completions`. Knows nothing about other endpoints."""
