"""`POST /v1/completions`. Knows nothing about other endpoints."""
