"""`GET /health` and `GET /metrics`. Knows nothing about other endpoints."""
