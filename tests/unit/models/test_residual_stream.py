"""The rows that layers add to."""

import torch

from ninfer.kernels.rms_norm import RmsNorm
from ninfer.models.residual_stream import ResidualStream


def test_what_is_added_counts_at_the_next_norm_and_afterwards():
    norm = RmsNorm(torch.ones(4), 1e-6)
    x = torch.arange(8.0).view(2, 4)
    first, second = torch.full((2, 4), 2.0), torch.full((2, 4), 0.5, dtype=torch.bfloat16)
    stream = ResidualStream(x.clone())
    stream.add(first)
    torch.testing.assert_close(stream.normalised(norm), norm(x + 2))
    torch.testing.assert_close(stream.normalised(norm), norm(x + 2))
    stream.add(second)
    stream.add(first)
    torch.testing.assert_close(stream.rows(), x + 4.5)
    torch.testing.assert_close(stream.normalised(norm), norm(x + 4.5))
