"""Text that every store and wire can carry."""

REPLACEMENT = "�"


def clean(text: str) -> str:
    """Join split surrogate pairs; replace lone surrogates and NUL, which fail in UTF-8 and in SQLite."""
    if text.isascii():
        return text.replace("\0", REPLACEMENT) if "\0" in text else text
    try:
        text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text.replace("\0", REPLACEMENT)
