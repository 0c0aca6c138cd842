"""Model families: configuration, weight loading and the forward pass. Knows nothing about requests or scheduling."""
