"""Tensor operations: paged attention, KV pool, norms, rotary embedding, linear layers. Knows nothing about models."""
