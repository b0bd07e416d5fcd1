"""Whether a refusal says that the prompt is too long, and by how much; pure. Every server has words of its own."""

import re
from dataclasses import dataclass

N = r"([\d,]{1,15})"
SAYS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"(?:prompt|input|request) (?:is |was )?too long",
        r"input length and .{1,20} exceed context limit",
        r"maximum (?:context|model|input) length",
        r"context (?:length|size|window)[^.]{0,40}exceed",
        r"exceed(?:s|ed|ing)? (?:the |its |max(?:imum)? )*(?:available |model'?s? )*context (?:length|size|window)",
        r"exceeds? the maximum number of (?:input )?tokens",
        r"context (?:length|size) (?:is|of) only",
        r"exceed_context_size|context_length_exceeded|contextwindowexceeded",
    )
)
"""Of Anthropic, Bedrock, OpenAI, Gemini, vLLM, llama.cpp, LM Studio and Ollama, as bug reports quote them."""
SUMS = re.compile(rf"{N} \+ {N} > {N}")
"""Input, output, window: ``199759 + 8192 > 200000``."""
COMPARED = re.compile(rf"{N} tokens > {N}")
TOKENS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"\({N} in (?:the|your) (?:messages|prompt)",
        rf"(?:resulted in|request has|passed|contains at least) {N} (?:input )?tokens",
        rf"\((?:length )?{N}(?: tokens)?\) (?:is |exceeds)",
        rf"requested(?: tokens \(| ){N}",
        rf"token count \({N}\)",
    )
)
LIMITS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"(?:maximum (?:context|model|input) length|context length|context window)(?: is| of)(?: only)? {N}",
        rf"context size \({N}",
        rf"tokens allowed \({N}\)",
    )
)
OUTPUT = re.compile(
    rf"(?:[,;] |requested |too large: ){N}(?: (?:in|for) the completion| output tokens|\. This model)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Excess:
    """What a provider counted; None where it did not say."""

    tokens: int | None = None
    """Input tokens of the request."""
    limit: int | None = None
    """Input tokens that would have been taken beside the output that was asked for."""


def excess(message: str) -> Excess | None:
    """Read an error's text; None if it speaks of something else, or of an output that leaves room for no prompt."""
    if not any(says.search(message) for says in SAYS):
        return None
    found = _figures(message)
    return None if found.limit is not None and found.limit <= 0 else found


def _figures(message: str) -> Excess:
    if summed := SUMS.search(message):
        tokens, output, window = map(_number, summed.groups())
        return Excess(tokens, window - output)
    if compared := COMPARED.search(message):
        return Excess(*map(_number, compared.groups()))
    limit = _first(LIMITS, message)
    output_tokens = _first((OUTPUT,), message) or 0
    return Excess(_first(TOKENS, message), None if limit is None else limit - output_tokens)


def _first(patterns: tuple[re.Pattern[str], ...], message: str) -> int | None:
    found = next((match for pattern in patterns if (match := pattern.search(message))), None)
    return None if found is None else _number(found[1])


def _number(digits: str) -> int:
    return int(digits.replace(",", "") or 0)
