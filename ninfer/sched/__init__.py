"""Which request runs next, and which of its tokens. Knows nothing about tensors, text or cache contents."""
