"""Where a long prompt gets resume points of its own. Pure: numbers in, numbers out.

Two ladders that double. From the start: an edit at position e finds a rung at e / 2 or later. From the end: an edit d
tokens before the end finds one at most 2 d before it, so at most half of what has to be computed was there before. The
rungs from the start stay where they are while a conversation grows, so later turns use them too; those from the end
belong to one prompt and are superseded with it.
"""


def rungs_from_start(num_tokens: int, first_tokens: int) -> list[int]:
    """Return the positions below a prompt's length that every prompt on this path has as rungs.

    Args:
        num_tokens: prompt length.
        first_tokens: the first rung; a multiple of the page size, so that no rung needs a copy of a page.
    """
    rungs = []
    position = first_tokens
    while position < num_tokens:
        rungs.append(position)
        position *= 2
    return rungs


def rungs_from_end(num_tokens: int, first_tokens: int) -> list[int]:
    """Return the rungs of one prompt in its second half, at multiples of `first_tokens`, deepest first."""
    rungs = []
    distance = first_tokens
    while 2 * distance < num_tokens:
        position = (num_tokens - distance) // first_tokens * first_tokens
        if 2 * position >= num_tokens:
            rungs.append(position)
        distance *= 2
    return rungs
