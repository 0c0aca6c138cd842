"""Implementations that are wrong on purpose, one per requirement: they prove that each test can fail."""
