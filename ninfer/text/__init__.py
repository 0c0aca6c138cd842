"""Text in and out of token ids: tokenizers, detokenizing, stop strings, chat templates. Knows nothing about tensors."""
