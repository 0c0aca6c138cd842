"""Sizes as people write them."""

import pytest

from ninfer.api import ConfigError
from ninfer.simulate.capacity import parse_blocks


def blocks(text):
    return parse_blocks(text, block_tokens=512, bytes_per_token=20_480, flag="--host")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("2000", 2000),
        ("2,000", 2000),
        ("2_000 blocks", 2000),
        ("2k", 2000),
        ("1 block", 1),
        ("480k tokens", 937),
        ("512tok", 1),
        ("8GiB", 8 * 2**30 // (512 * 20_480)),
        ("1GiB", 102),
    ],
)
def test_blocks_tokens_and_bytes(text, wanted):
    assert blocks(text) == wanted


@pytest.mark.parametrize("text", ["", "many", "-3", "8 giraffes", "1e"])
def test_what_is_no_size_is_an_error_that_shows_all_three_ways(text):
    with pytest.raises(ConfigError, match=r"--host .*blocks.*tokens.*bytes"):
        blocks(text)


@pytest.mark.parametrize("text", ["0", "511 tokens", "1MiB"])
def test_less_than_a_block_is_an_error(text):
    with pytest.raises(ConfigError, match="less than one block"):
        blocks(text)
