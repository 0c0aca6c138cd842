"""`GET /health`, `GET /admin/plugins` and `GET /metrics`. Knows nothing about other endpoints."""
