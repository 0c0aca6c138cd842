"""Which contexts are stored where, and how they get there. Knows nothing about tensors or HTTP."""
