"""`POST /tokenize` and `POST /detokenize`. Knows nothing about other endpoints."""
