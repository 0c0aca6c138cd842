"""Executes plans on tensors: forward passes, sampling, copies between device and host, sizes of memory."""
