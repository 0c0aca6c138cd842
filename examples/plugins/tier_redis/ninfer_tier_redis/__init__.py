"""Storage tier for ninfer on a Redis-compatible server. Knows nothing about pages or models."""
