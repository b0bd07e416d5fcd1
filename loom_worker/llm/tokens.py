"""How many of the provider's tokens a text will be: never fewer than we say, so that a budget is a hard limit.

Counted with cl100k, which is public, times the most that a family's own tokenizer was measured to need for the same
text. The ranks come from a file in the package: nothing is downloaded and nothing written.
"""

import base64
import gzip
import hashlib
import math
import re
import threading
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from loom_worker.llm.clean import clean

if TYPE_CHECKING:
    import tiktoken

RANKS_FILE = "cl100k_base.tiktoken.gz"
RANKS_SHA256 = "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"
"""Of the unzipped file."""
SPLIT = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)
"""cl100k's own pattern, in the regex dialect of tiktoken."""
FACTORS: tuple[tuple[str, float], ...] = (
    (r"scripted", 1.0),
    (r"claude-(?:[1-3]\b|instant|(?:opus|sonnet|haiku)-4(?:-[0-6])?(?:[-@](?:\d{8}|latest))?$)", 1.28),
    (r"claude-", 1.89),
    (r"", 1.28),
)
"""Model-name prefix to the highest ratio of its tokens to cl100k's; the first that matches holds.

Measured: Claude 3-4.6 1.06-1.28 (typical 1.13), Claude 4.7 and later 1.35-1.89 (typical 1.41). Other models were not
measured: they get the lower of the two, which covers the tokenizers of the current open models for prose and code.
"""
REQUEST_TOKENS, MESSAGE_TOKENS, CALL_TOKENS, TOOLS_TOKENS = 25, 5, 45, 410
"""What the provider adds, in cl100k's tokens: the least that covers every recorded request (Claude 3.5-4.6)."""
EXACT_BYTES = 200_000
"""Longer texts are estimated: counting 10 MB takes 0.7 s (measured)."""
SAMPLES = 40
SAMPLE_CHARS = 4_000

_loading = threading.Lock()


def count(text: str, model: str) -> int:
    """Return at least as many tokens as the model's own tokenizer makes of a text.

    The frame around it is overhead_tokens' matter. The first call in a process loads the ranks (some 0.2 s).
    """
    return math.ceil(cl100k_tokens(text) * factor(model))


def overhead_tokens(model: str, *, messages: int, calls: int, has_tools: bool) -> int:
    """Return what the provider adds to a request's texts, names and schemas, at most.

    Args:
        messages: of the conversation.
        calls: tool calls in it, each with its result; ids and frames cost.
        has_tools: the provider writes a text of its own about tools in general.
    """
    plain = REQUEST_TOKENS + MESSAGE_TOKENS * messages + CALL_TOKENS * calls + TOOLS_TOKENS * has_tools
    return math.ceil(plain * factor(model))


@cache
def factor(model: str) -> float:
    """The highest ratio of the model's tokens to cl100k's."""
    return next(ratio for prefix, ratio in FACTORS if re.match(prefix, model))


def cl100k_tokens(text: str) -> int:
    """Count cl100k tokens; beyond 200 kB an estimate that errs upwards. Special tokens are ordinary text here."""
    text = clean(text)
    if len(text) <= EXACT_BYTES and len(text.encode()) <= EXACT_BYTES:
        return _exact(text)
    return _estimate(text)


def _exact(text: str) -> int:
    return len(_encoding().encode_ordinary(text))


def _estimate(text: str) -> int:
    """Take the whole for as dense as the densest of 40 evenly spaced samples; at most its bytes, which is a bound."""
    step = max(1, (len(text) - SAMPLE_CHARS) // (SAMPLES - 1))
    starts = range(0, len(text) - SAMPLE_CHARS + 1, step)
    densest = max(_exact(text[start : start + SAMPLE_CHARS]) for start in starts)
    return min(math.ceil(densest * len(text) / SAMPLE_CHARS), len(text.encode()))


def _encoding() -> "tiktoken.Encoding":
    with _loading:
        return _load()


@cache
def _load() -> "tiktoken.Encoding":
    import tiktoken

    zipped = files(__package__).joinpath(RANKS_FILE).read_bytes()
    return tiktoken.Encoding("cl100k_base", pat_str=SPLIT, mergeable_ranks=read_ranks(zipped), special_tokens={})


def read_ranks(zipped: bytes) -> dict[bytes, int]:
    """Read cl100k's ranks, each token's bytes to its rank, from the gzipped file that was published.

    Raises:
        RuntimeError: it is another file, with which every budget would be wrong.
    """
    raw = gzip.decompress(zipped)
    if hashlib.sha256(raw).hexdigest() != RANKS_SHA256:
        raise RuntimeError(f"{RANKS_FILE} is damaged; install Loom again")
    lines = (line.split() for line in raw.splitlines())
    return {base64.b64decode(token): int(rank) for token, rank in lines}
