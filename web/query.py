"""Query parameters: those that the operation does not declare are refused, the others are read.

All that read one raise Refused, 400, for what it may not be.
"""

import re
from collections.abc import Iterable

from flask import Request, request

from loom_worker.core.text import closest
from web.api_operation import ApiOperation
from web.operations import OPERATIONS, TOKEN_CALLS, TOKEN_PARAMETER
from web.parameters import PARAMETERS
from web.problems import malformed

DEFAULT_LIMIT = 50
MAX_LIMIT = 500
_WHOLE = re.compile(r"[0-9]{1,15}")
_LONGEST_NAME = 64
"""Characters of an unknown name that the answer repeats."""
_PATH_PARAMETER = re.compile(r"<(?:path:)?(\w+)>")


_OPERATIONS = {(operation.method, operation.path): operation for operation in OPERATIONS}
_DECLARED = {
    (operation.method, operation.path): tuple(
        str(PARAMETERS[key].get("name", key)) for key in operation.parameters if PARAMETERS[key]["in"] == "query"
    )
    for operation in OPERATIONS
}


def operation_of(request: Request) -> ApiOperation | None:
    """The description of the operation that a request means; None if no route matches it."""
    if request.url_rule is None:
        return None
    method = "GET" if request.method == "HEAD" else request.method
    return _OPERATIONS.get((method, _PATH_PARAMETER.sub(r"{\1}", request.url_rule.rule)))


def require_declared_parameters(request: Request) -> None:
    """Check that the operation's OpenAPI description has them all; a path that is not served is left to the router.

    A misspelt filter must not list everything.
    """
    operation = operation_of(request)
    if operation is None or not request.query_string:
        return
    known = _DECLARED[operation.method, operation.path]
    taken = (*known, TOKEN_PARAMETER) if operation.call in TOKEN_CALLS else known
    unknown = next((name[:_LONGEST_NAME] for name in request.args if name not in taken), None)
    if unknown is None:
        return
    hint = "this operation takes none"
    if known:
        nearest = closest(unknown.lower(), known, least=0.0)
        hint = f"did you mean {nearest!r}? Known are {', '.join(known)}"
    raise malformed(f"unknown query parameter {unknown!r}; {hint}")


def page_wanted(usual: int = DEFAULT_LIMIT) -> tuple[int, str | None]:
    """``?limit`` (1-500, larger counts as 500) and ``?after`` of the current request.

    Args:
        usual: the limit where none is given.
    """
    limit = whole_argument("limit", usual)
    if limit < 1:
        raise malformed("limit must be a whole number from 1 to 500")
    return min(limit, MAX_LIMIT), text_argument("after", longest=512)


def whole_argument(name: str, default: int) -> int:
    """A query parameter that must be a whole number >= 0."""
    raw = request.args.get(name)
    return default if raw is None else whole_number(raw, name)


def whole_number(raw: str, name: str) -> int:
    """Digits alone, at most 15; ``int`` would take signs, spaces and underscores too."""
    if not _WHOLE.fullmatch(raw):
        raise malformed(f"{name} must be a whole number, 0 or more")
    return int(raw)


def text_argument(name: str, *, longest: int = 128) -> str | None:
    """A query parameter without control characters; None if absent or empty."""
    raw = request.args.get(name) or None
    if raw is not None and (len(raw) > longest or not raw.isprintable()):
        raise malformed(f"{name} must be at most {longest} printable characters")
    return raw


def choice_argument(name: str, choices: Iterable[str]) -> str | None:
    """A query parameter that must be one of some words; None if absent."""
    raw = text_argument(name)
    known = tuple(choices)
    if raw is not None and raw not in known:
        raise malformed(f"{name} must be one of {', '.join(known)}")
    return raw
