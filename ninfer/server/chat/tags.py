"""Finding tags in text that arrives in pieces. Knows nothing about what tags mean."""


def split_at_tag(text: str, tag: str) -> tuple[str, str, bool]:
    """Split text at the first `tag`.

    Args:
        text: what has arrived so far and was not dealt with.
        tag: what is searched.

    Returns:
        Text before the tag, text after it, and True; or, without a tag, text that certainly is not part of one, a
        rest that may become one, and False.
    """
    before, found, after = text.partition(tag)
    if found:
        return before, after, True
    for length in range(min(len(tag) - 1, len(text)), 0, -1):
        if tag.startswith(text[-length:]):
            return text[:-length], text[-length:], False
    return text, "", False


def split_trailing_space(text: str, space: str | None = None) -> tuple[str, str]:
    """Split text before the white space at its end.

    Args:
        text: what is split.
        space: the characters that count; None is all white space.
    """
    kept = text.rstrip(space)
    return kept, text[len(kept) :]
