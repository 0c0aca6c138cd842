"""`GET /v1/models`. Knows nothing about other endpoints."""
