"""Repair of strings that are no valid Unicode. Knows nothing about tokens."""


def well_formed(text: str) -> str:
    """Replace lone surrogates, which JSON can spell but UTF-8 cannot, by U+FFFD; pairs are joined.

    Args:
        text: any string.

    Returns:
        `text` itself if it can be encoded as UTF-8, else a repaired copy.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
