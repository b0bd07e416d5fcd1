"""What an error response of the Messages API means to Loom: status and body in, our error out. Pure."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from loom_worker.core.errors import LoomError, NoAccess, Overloaded, PromptTooLong, ProviderFailed, StreamBroken
from loom_worker.guard.net.http import retry_after_s as standard_retry_after_s

BUSY_STATUS = frozenset({408, 409, 424, 425, 429})
"""In addition to 500 and above: the same request may succeed later."""
REFUSED_STATUS = frozenset({400, 401, 402, 403, 404, 405, 413, 422})
"""These say more than the kind ``api_error``, with which gateways pass on whatever they got."""
NO_ACCESS_STATUS = frozenset({401, 402, 403, 404})
BUSY_TYPES = frozenset({"overloaded_error", "rate_limit_error", "api_error", "timeout_error"})
STATUS_OF_TYPE = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
}
"""For error events, which come after status 200, and for gateways that answer 500 to everything."""
_KINDS = {
    "overloaded_error": "overloaded modelnotready serviceunavailable unavailable",
    "rate_limit_error": "ratelimit ratelimitexceeded toomanyrequests throttling resourceexhausted servicequotaexceeded",
    "api_error": "api internalserver server modelerror modelstream",
    "timeout_error": "timeout modeltimeout deadlineexceeded",
    "invalid_request_error": "invalidrequest badrequest validation invalidargument failedprecondition contentfilter "
    "contentpolicyviolation unsupportedparams operationnotsupported",
    "authentication_error": "authentication unauthorized unauthenticated invalidapikey",
    "billing_error": "billing insufficientquota budgetexceeded",
    "permission_error": "permission permissiondenied accessdenied forbidden",
    "not_found_error": "notfound modelnotfound deploymentnotfound resourcenotfound",
    "request_too_large": "requesttoolarge",
}
_KIND_OF = {name: kind for kind, names in _KINDS.items() for name in names.split()}
"""Names of Amazon, Google, Azure, OpenAI and gateways, in lower case, without what all errors are called."""
_NAMED = re.compile(r"(?:litellm\.)?([A-Za-z]+(?:Error|Exception))\b")
_FINAL_TEXTS = {
    401: r"(?:invalid|incorrect|missing|expired|unknown) (?:x-)?api.?key|api.?key.{0,40}(?:invalid|not valid|not found|"
    r"expired)|unauthori[sz]ed|not authenticated|authentication (?:failed|error)|no auth credentials|"
    r"token .{0,40}expired",
    402: r"credit balance|(?:insufficient|out of|more) (?:quota|credits?|balance|funds)",
    403: r"permission denied|access denied|not allowed for this key|don't have access",
    404: r"model\b.{0,80}\b(?:not found|does not exist)|(?:unknown|no such) model",
    400: r"content (?:filter|management|policy)|content filtering|does not support tools",
}
"""Texts that say for good what a status of 200 or 500 and no known kind leave open."""
_PASSING = re.compile(r"retry|try again|time[ds]? ?-?out|reload|refresh", re.IGNORECASE)
_BAD_CALL = re.compile(
    r"tool.?call validation failed|did not call a tool|failed to (?:call|parse) a (?:function|tool)", re.I
)
"""Groq's words for calls of its model's that it refuses itself: another try may do better."""
_NO_MEDIA = re.compile(r"support (?:image|file|pdf)", re.IGNORECASE)
"""OpenRouter's words about a model that sees nothing."""
WAIT_STATUS = frozenset({429, 529})
"""These are about the limits of the whole account, however they are worded."""
ADVICE = {
    401: "It does not accept the API key: set ANTHROPIC_API_KEY.",
    402: "There is a problem with the account's billing or credit.",
    403: "The API key (ANTHROPIC_API_KEY) has no permission for this, or not for this model (LOOM_MODEL).",
    404: "It does not know the model {model!r}, or the address is wrong: set LOOM_MODEL or ANTHROPIC_BASE_URL.",
    413: "The request is too large: lower LOOM_MAX_CONTEXT_TOKENS.",
}
IN_FILE = ADVICE | {
    401: "It does not accept the API key: set llm.api_key in the agent's file, or its secret.",
    403: "The API key (llm.api_key in the agent's file) has no permission for this, or not for this model.",
    404: "It does not know the model {model!r}, or the address is wrong: see llm in the agent's file.",
}
"""In place of ADVICE, where an agent's file names the address or the key."""
TOO_LONG = "The request is longer than the model's window: lower LOOM_MAX_CONTEXT_TOKENS."
RATE_LIMIT = "rate-limit"
"""Third argument of an Overloaded that is about the account's limits, not about the provider's health."""
MAX_DETAIL = 200
"""Characters of the provider's own text that are passed on."""
SECRETS = re.compile(r"\b(?:sk-[\w-]{4,200}|Bearer\s{1,5}\S{1,500})")


@dataclass(frozen=True, slots=True)
class ErrorResponse:
    """An error as the provider sent it."""

    status: int
    """200 for an error event in the stream, which is judged by its kind."""
    kind: str = ""
    """The error's ``type``, such as ``overloaded_error``; empty if unknown."""
    message: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


def read_error(status: int, body: object, headers: Mapping[str, str] | None = None) -> ErrorResponse:
    """An error in any of the forms that providers, gateways and self-hosted servers give it.

    Args:
        status: of the response; where that is 200, an error's own code is taken.
        body: its JSON, or its text.
    """
    found = _innermost(body)
    aws = (headers or {}).get("x-amzn-errortype", "").partition(":")[0]  # com.amazon.coral#ThrottlingException:http://…
    if not isinstance(found, dict):
        text = found if isinstance(found, str) else ""
        return ErrorResponse(status, _kind((aws, text if len(text) < 40 else ""), text), text, headers or {})
    code = str(found.get("code") or "")
    if status < 300 and code.isdecimal() and 400 <= int(code[:4]) < 600:
        status = int(code)
    raw = found.get("metadata")  # a gateway's; what its provider said stands in it
    told = [found.get("message") or found.get("msg"), raw.get("raw") if isinstance(raw, dict) else None]
    message = " ".join(str(each) for each in told if each)
    names = (found.get("type"), "" if code.isdecimal() else code, found.get("status"), found.get("__type"), aws)
    return ErrorResponse(status, _kind(names, message), message, headers or {})


def _innermost(body: object) -> object:
    """The object or text that says what is wrong, out of those around it."""
    if isinstance(body, list):
        return _innermost(body[0]) if body else ""
    if not isinstance(body, dict):
        return body
    around = ("error",) if body.keys() & {"message", "msg"} else ("error", "errors", "detail")
    inner = next((body[name] for name in around if isinstance(body.get(name), list | dict | str) and body[name]), None)
    return body if inner is None else _innermost(inner)


def _kind(names: Iterable[object], message: str) -> str:
    """The API's name of an error by the first of these that is known, or by the one at the head of its message."""
    head, given = _NAMED.match(message), [str(name) for name in names if name]
    plain = [name.rpartition("#")[2].lower() for name in (*given, *([head[1]] if head else ()))]
    known = [kind for name in plain if (kind := _KIND_OF.get(re.sub("[^a-z]|error|exception", "", name)))]
    # api_error says least: gateways give it to whatever they pass on.
    return next((kind for kind in known if kind != "api_error"), known[0] if known else given[0] if given else "")


def is_rate_limit(error: Overloaded) -> bool:
    """True if the account has used up its limit for now: the provider itself is well."""
    return RATE_LIMIT in error.args[2:]


def translated(
    response: ErrorResponse, *, model: str, now_s: float, secret: str | None, advice: Mapping[int, str] = ADVICE
) -> LoomError:
    """Return Overloaded for what may succeed later, PromptTooLong, NoAccess or ProviderFailed for what will not.

    Args:
        model: the model that was asked.
        now_s: seconds since 1970, for a Retry-After that is a date.
        secret: the API key in use, which must not show in the text.
        advice: what to do about an error, by its status.
    """
    kind, status, detail = response.kind, response.status, safe_detail(response.message, secret)
    is_wait = status in WAIT_STATUS or kind == "rate_limit_error"
    too_long = None if is_wait else excess(f"{kind}: {response.message}") or (Excess() if status == 413 else None)
    if too_long:  # some self-hosted servers answer 500 to it
        text = f"{TOO_LONG} {detail}".rstrip()
        return PromptTooLong(text, too_long.tokens, too_long.limit)
    if _BAD_CALL.search(response.message) and status in (200, 400):
        return StreamBroken(f"The model made a call that its server refuses. {detail}")
    final = _final(response)
    if final is None and (kind in BUSY_TYPES or status in BUSY_STATUS or status >= 500):
        wait_s = retry_after_s(response.headers, now_s=now_s)
        wait_s = _told_wait_s(response) if wait_s is None else wait_s
        is_share = kind == "rate_limit_error" or (status == 429 and kind not in BUSY_TYPES)
        text = " ".join(filter(None, (f"The model's provider is busy ({kind or status}).", detail)))
        return Overloaded(text, wait_s, RATE_LIMIT) if is_share else Overloaded(text, wait_s)
    if final is None and status < 300:
        return StreamBroken(f"The model's provider ended the reply with an error. {detail}".rstrip())
    status = final or status
    parts = (
        f"The model's provider refuses the request ({status}).",
        advice.get(status, "").format(model=model),
        detail,
    )
    failure = NoAccess if status in NO_ACCESS_STATUS else ProviderFailed
    return failure(" ".join(part for part in parts if part))


def _final(response: ErrorResponse) -> int | None:
    """The status of a refusal for good; None if the same request may succeed later, or nobody can tell."""
    status, kind = response.status, response.kind
    known = STATUS_OF_TYPE.get(kind)
    if status in BUSY_STATUS:
        return known if known in (401, 402, 403) else None
    if 300 <= status < 500:
        is_busy = kind in BUSY_TYPES and (kind != "api_error" or status not in REFUSED_STATUS)
        return None if is_busy else (known or status) if status == 400 else status
    if (
        known
        or kind in BUSY_TYPES - {"api_error"}
        or status in (502, 503, 504, 529)
        or _PASSING.search(response.message)
    ):
        return known
    return _final_by_text(response.message)


def _final_by_text(message: str) -> int | None:
    found = (code for code, text in _FINAL_TEXTS.items() if re.search(text, message, re.IGNORECASE))
    return next(found, None)


def is_refusal(response: ErrorResponse) -> bool | None:
    """True if the server refuses this request alone; None if it may be so, for its words alone can tell.

    False for what says something of keys, credit, models, or what may be said.
    """
    if response.status == 404 and _NO_MEDIA.search(response.message):
        return None
    is_other = _final_by_text(response.message) is not None or _BAD_CALL.search(response.message)
    if is_other or response.status not in (200, 400, 422, 500) or _final(response) not in (None, 400, 422):
        return False
    return True if response.status in (400, 422) else None


def safe_detail(message: str, secret: str | None) -> str:
    """One line of the provider's own text, at most 200 characters, without anything that looks like a key."""
    line = " ".join(message.split())
    line = SECRETS.sub("***", line.replace(secret, "***") if secret else line)
    return f"It says: {line[:MAX_DETAIL]}" if line else ""


def retry_after_s(headers: Mapping[str, str], *, now_s: float) -> float | None:
    """Seconds from ``retry-after-ms`` or ``Retry-After`` (seconds or an HTTP date); None if absent or nonsense."""
    in_ms, header = headers.get("retry-after-ms"), headers.get("retry-after", "").strip()
    try:
        seconds = float(header) if in_ms is None else float(in_ms) / 1000
    except ValueError:
        return standard_retry_after_s(header, now_s=now_s) if in_ms is None else None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


_AGAIN_IN = re.compile(r"(?:try again|retry) in ((?:[\d.]+(?:ms|[smhd])){1,5})", re.IGNORECASE)
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3_600, "d": 86_400}


def _told_wait_s(response: ErrorResponse) -> float | None:
    """Seconds until a limit is open again, from its text, or from the headers of OpenAI and Groq (``6m0s``, ``7.66s``).

    Of the two limits that these tell, of requests and of tokens, the one counts of which nothing remains.
    """
    found = _AGAIN_IN.search(response.message)
    waits = [_duration_s(found[1])] if found else []
    for kind in ("requests", "tokens"):
        if not found and response.headers.get(f"x-ratelimit-remaining-{kind}") == "0":
            waits.append(_duration_s(response.headers.get(f"x-ratelimit-reset-{kind}", "")))
    return max(filter(None, waits), default=None)


def _duration_s(text: str) -> float:
    return sum(
        float(number) * _SECONDS[unit] for number, unit in re.findall(r"(\d+(?:\.\d+)?)(ms|[smhd])", text.lower())
    )


_NUMBER = r"([\d,]{1,15})"
_TOO_LONG = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"(?:prompt|input|request) (?:is |was )?too long",
        r"(?:longer|greater) than the [^.]{0,30}context length|max_model_len|maximum prompt length",
        r"input length[^.]{0,40} exceed|inputs` tokens \+|range of input length",
        r"reduce the length of the (?:messages|prompt)",
        r"input length and .{1,20} exceed context limit",
        r"maximum (?:context|model|input) length",
        r"context (?:length|size|window)[^.]{0,40}exceed",
        r"exceed(?:s|ed|ing)? (?:the |its |max(?:imum)? )*(?:available |model'?s? )*context (?:length|size|window)",
        r"exceeds? the maximum number of (?:input )?tokens",
        r"context (?:length|size) (?:is|of) only",
        r"too many input tokens|input tokens exceed",
        r"exceed_context_size|context_length_exceeded|contextwindowexceeded",
    )
)
"""Texts of Anthropic, Bedrock, OpenAI, Gemini, vLLM, llama.cpp, LM Studio and Ollama, as bug reports quote them."""
_OF_ANOTHER = re.compile(r"\w*:? ?(?:max_tokens|tools[.\[]|stop_sequences|metadata)\b[^,]")
"""Another field is too long than the messages."""
_SUM = re.compile(rf"{_NUMBER} \+ {_NUMBER} > {_NUMBER}")
"""Input, output, window: ``199759 + 8192 > 200000``."""
_COMPARED = re.compile(rf"{_NUMBER} tokens > {_NUMBER}")
_TOKENS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"\({_NUMBER} in (?:the|your) (?:messages|prompt)",
        rf"(?:resulted in|request has|passed|contains at least) {_NUMBER} (?:input )?tokens",
        rf"\((?:length )?{_NUMBER}(?: tokens)?\) (?:is |exceeds)",
        rf"requested(?: tokens \(| ){_NUMBER}",
        rf"token count(?: \(|: ){_NUMBER}",
        rf"request contains {_NUMBER} tokens",
    )
)
_LIMITS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"(?:maximum (?:context|model|input) length|context length|context window)(?: is| of)(?: only)? {_NUMBER}",
        rf"context size \({_NUMBER}",
        rf"(?:context|allowed) length \({_NUMBER}|maximum prompt length is {_NUMBER}|max_model_len {_NUMBER}",
        rf"tokens allowed \({_NUMBER}\)|max input tokens: {_NUMBER}",
    )
)
_OUTPUT = re.compile(
    rf"(?:[,;] |requested |too large: ){_NUMBER}(?: (?:in|for) the completion| output tokens|\. This model)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Excess:
    """By how much a prompt is too long, as the provider counted; None where it did not say."""

    tokens: int | None = None
    """Input tokens of the request."""
    limit: int | None = None
    """Input tokens that it would have accepted along with the output that was asked for."""


def excess(message: str) -> Excess | None:
    """Read an error's text; None if it is about something else, or about an output that leaves room for no prompt."""
    if _OF_ANOTHER.match(message) or not any(pattern.search(message) for pattern in _TOO_LONG):
        return None
    if summed := _SUM.search(message):
        tokens, output, window = map(_number, summed.groups())
        found = Excess(tokens, window - output)
    elif compared := _COMPARED.search(message):
        found = Excess(*map(_number, compared.groups()))
    else:
        limit = _first(_LIMITS, message)
        output_tokens = _first((_OUTPUT,), message) or 0
        found = Excess(_first(_TOKENS, message), None if limit is None else limit - output_tokens)
    return None if found.limit is not None and found.limit <= 0 else found


def _first(patterns: tuple[re.Pattern[str], ...], message: str) -> int | None:
    found = next((match for pattern in patterns if (match := pattern.search(message))), None)
    return None if found is None else _number(found[found.lastindex or 1])


def _number(digits: str) -> int:
    return int(digits.replace(",", "") or 0)
