"""Data that crosses between scheduling, execution and the server. Knows nothing about tensors, text or HTTP."""
