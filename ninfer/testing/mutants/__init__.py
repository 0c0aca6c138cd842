"""Implementations that are wrong on purpose: each breaks one requirement and no other, to prove that its test can fail."""
