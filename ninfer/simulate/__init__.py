"""Replays traces through the real context store, planner and policies, with costs instead of tensors."""
