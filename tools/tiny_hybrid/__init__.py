"""How `tiny-hybrid` is made: the text it reads, its tokenizer, its model, its training and its measurements."""
