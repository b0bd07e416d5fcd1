"""Where words begin and end, also in scripts that are written without spaces between them."""

import re

_UNSPACED = (
    "\u3041-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
UNSPACED = re.compile(f"[{_UNSPACED}]")
"""A character of Chinese, Japanese or Korean."""
RUN = re.compile(f"[{_UNSPACED}]+|[^{_UNSPACED}]+")
"""As many of those, or of others, as stand together."""
WORD = re.compile(r"[^\W_]+")
LUMP = re.compile(r"[^\W_]+(?:[^\w\s]{1,2}[^\W_]+|_+[^\W_]+)*")
"""Words without a space between them: don't, road-trip, a/b, me@example.com, ERR_12."""
