"""How many of the provider's tokens a text will be: never more than we say, so that a budget is a hard limit.

OpenAI's models are counted with their own tokenizers, which are public; others with cl100k, times the highest ratio
that a family's own tokenizer was measured to need for the same text. The ranks come from files in the package: nothing
is downloaded or written.
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

from loom_worker.core.text import storable
from loom_worker.core.values.chat import Frame
from loom_worker.llm.prices import plain_name

if TYPE_CHECKING:
    import tiktoken

CL100K, O200K = "cl100k_base", "o200k_base"
RANKS_SHA256 = {
    CL100K: "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    O200K: "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
}
"""Digests of the unzipped files, as tiktoken pins them."""
_ENDING = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
SPLIT = {
    CL100K: r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    O200K: r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    + _ENDING
    + r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    + _ENDING
    + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}
"""The tokenizers' own patterns, in the regex dialect of tiktoken."""
OWN_TOKENIZER: tuple[tuple[str, str], ...] = (
    (r"(?:openai|azure)/(?:ft:)?(?:gpt-3\.5|gpt-4(?!o|\.)|text-embedding)", CL100K),
    (r"(?:openai|azure)/(?:ft:)?(?:chatgpt|codex|computer-use|o\d)", O200K),
    (r"(?:\w+/)+(?:ft:)?gpt-(?:oss|4o|4\.1|[5-9])|openai\.gpt-oss", O200K),
)
"""Model-name prefix to the tokenizer that is the model's own."""
FACTORS: tuple[tuple[str, float], ...] = (
    (r"scripted", 1.0),
    (r"(?:mistral|openrouter/mistralai)/|mistral\.", 1.4),
    (r"claude-(?:[1-3]\b|instant|(?:opus|sonnet|haiku)-4(?:-[0-6])?(?:[-@](?:\d{8}|latest))?$)", 1.28),
    (r"claude-", 1.89),
    (r"", 1.28),
)
"""Model-name prefix to the highest ratio of its tokens to cl100k's; the first match applies.

Measured: Claude 3-4.6 1.06-1.28 (typical 1.13), Claude 4.7 and later 1.35-1.89 (typical 1.41), Mistral 1.03-1.37, and
DeepSeek, Llama, Qwen and GLM 1.0-1.05. All others get 1.28, which covers the tokenizers of open models for prose and
code, and whose excess the provider's own counts correct.
"""
SCRIPTS: tuple[tuple[str, float], ...] = (
    (r"[\u0530-\u058f\u0700-\u08ff\u0980-\u10ff\u1200-\u1cff]", 0.5),
    (r"[\u1e00-\u1eff]", 1.0),
    (r"[\u0370-\u04ff]", 0.05),
)
"""Characters to the cl100k tokens that each counts in addition: scripts that cl100k knows better than the provider.

The one tokenizer that Anthropic published (Claude 2) needs 1.96 times cl100k's tokens for a sentence in Thai, 1.39 for
one in Vietnamese and 1.31 for one in Greek; scripts that were not tried count as Thai. Other Latin, Russian, Arabic,
Hebrew, Hindi, Chinese, Japanese and Korean sentences, code and data stay below the factor (`python -m bench.tokens`).
"""
TYPICAL: tuple[tuple[str, float], ...] = (
    (FACTORS[2][0], 1.13),
    (r"claude-", 1.41),
    (FACTORS[1][0], 1.1),
    (r"(?i).*(?:deepseek|llama|qwen|glm)", 1.03),
)
"""The usual ratios, of the same measurements; for other models none is known."""
TOOL_TEXTS: tuple[tuple[str, int], ...] = (
    (r"claude-3-opus", 530),
    (r"claude-3-sonnet", 159),
    (r"claude-3(?:-5)?-haiku", 264),
    (r"claude-3-5-sonnet-20240620", 294),
    (r"claude-(?:3|opus-4(?:-[01]\b|[-@]\d{8}|$)|sonnet-4(?:-0\b|[-@]\d{8}|$))", 346),
    (r"claude-(?:opus|sonnet|haiku)-4-[56]", 500),
    (r"claude-", 470),
    (r"", 150),
)
"""Model-name prefix to the provider's tokens of its own text about tools; the first match applies.

Up to Claude 4.1 from Anthropic's documentation, which recordings confirm; from 4.5 on from recordings (497 to 514,
later models 465 to 485). Other models were not measured.
"""
FORGETS_THINKING = r"claude-(?:3|(?:sonnet|haiku)-4(?:-[0-5])?(?:[-@]\d{8})?$|opus-4(?:-[01])?(?:[-@]\d{8})?$)"
"""Models whose provider leaves out the thinking of turns that have ended: by its documentation, and recordings."""
EXACT_BYTES = 200_000
"""Longer texts are estimated: counting 10 MB takes 0.7 s (measured)."""
SAMPLES = 40
SAMPLE_CHARS = 4_000

_loading = threading.Lock()


def count(text: str, model: str) -> int:
    """Return at least as many tokens as the model's own tokenizer makes of a text.

    The provider's frame around it is not included. The first call in a process loads the ranks (about 0.2 s).
    """
    own, ratio = _own_tokenizer(model), factor(model)
    if own is not None:
        return _tokens(text, own)
    extra = 0.0
    if ratio != 1 and not text.isascii():
        extra = sum(len(re.findall(characters, text)) * tokens for characters, tokens in SCRIPTS)
    return math.ceil((cl100k_tokens(text) + extra) * ratio)


@cache
def _own_tokenizer(model: str) -> str | None:
    return next((name for prefix, name in OWN_TOKENIZER if re.match(prefix, model)), None)


def _family(model: str) -> str:
    """The maker's own name of a Claude model, whoever serves it; other names as they are."""
    name = re.sub(r".*/(?=claude-)", "", plain_name(model))
    return name.replace(".", "-") if name.startswith("claude-") else name


@cache
def factor(model: str) -> float:
    """The highest ratio of the model's tokens to those that they are counted by."""
    if _own_tokenizer(model) is not None:
        return 1.0
    return next(ratio for prefix, ratio in FACTORS if re.match(prefix, _family(model)))


@cache
def typical(model: str) -> float:
    """The model's usual tokens over those that ``count`` gives, 0-1; 1 where nothing was measured."""
    if _own_tokenizer(model) is not None:
        return 1.0
    usual = next((ratio for prefix, ratio in TYPICAL if re.match(prefix, _family(model))), factor(model))
    return usual / factor(model)


@cache
def frame(model: str) -> Frame:
    """What the model's provider usually adds to the texts of a request."""
    name = _family(model)
    tools = next(tokens for prefix, tokens in TOOL_TEXTS if re.match(prefix, name))
    return Frame(tools, keeps_thinking=re.match(FORGETS_THINKING, name) is None)


def cl100k_tokens(text: str) -> int:
    """Count cl100k tokens; beyond 200 kB an estimate that errs upwards. Special tokens count as ordinary text."""
    return _tokens(text, CL100K)


def _tokens(text: str, tokenizer: str) -> int:
    text = storable(text)
    with _loading:
        encoding = _encoding(tokenizer)
    if len(text) <= EXACT_BYTES and len(text.encode()) <= EXACT_BYTES:
        return len(encoding.encode_ordinary(text))
    # The whole is taken to be as dense as the densest of 40 evenly spaced samples; its bytes are an upper bound.
    step = max(1, (len(text) - SAMPLE_CHARS) // (SAMPLES - 1))
    starts = range(0, len(text) - SAMPLE_CHARS + 1, step)
    densest = max(len(encoding.encode_ordinary(text[start : start + SAMPLE_CHARS])) for start in starts)
    return min(math.ceil(densest * len(text) / SAMPLE_CHARS), len(text.encode()))


@cache
def _encoding(name: str) -> "tiktoken.Encoding":
    import tiktoken

    ranks = read_ranks(files(__package__).joinpath(f"{name}.tiktoken.gz").read_bytes(), name)
    return tiktoken.Encoding(name, pat_str=SPLIT[name], mergeable_ranks=ranks, special_tokens={})


def read_ranks(zipped: bytes, name: str = CL100K) -> dict[bytes, int]:
    """Read a tokenizer's ranks, each token's bytes to its rank, from the published file, gzipped.

    Raises:
        RuntimeError: it is another file, and every budget would be wrong.
    """
    raw = gzip.decompress(zipped)
    if hashlib.sha256(raw).hexdigest() != RANKS_SHA256[name]:
        raise RuntimeError(f"{name}.tiktoken.gz is damaged; install Loom again")
    lines = (line.split() for line in raw.splitlines())
    return {base64.b64decode(token): int(rank) for token, rank in lines}
