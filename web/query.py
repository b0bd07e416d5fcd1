"""A query parameter that the operation does not declare is refused: a misspelt filter must not list everything."""

import difflib
import re

from flask import Request

from web.operations import OPERATIONS, PARAMETERS
from web.problems import malformed

_LONGEST_NAME = 64
"""Characters of an unknown name that the answer repeats."""
_PATH_PARAMETER = re.compile(r"<(?:path:)?(\w+)>")


def _names(parameters: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(str(PARAMETERS[key].get("name", key)) for key in parameters if PARAMETERS[key]["in"] == "query")


_DECLARED = {(each.method, each.path): _names(each.parameters) for each in OPERATIONS}


def require_declared_parameters(request: Request) -> None:
    """Let pass what the operation's OpenAPI description knows; a path that is not served is left to the router.

    Raises:
        Refused: 400 for a parameter that is not declared; the text names the nearest one that is.
    """
    if request.url_rule is None or not request.query_string:
        return
    method = "GET" if request.method == "HEAD" else request.method
    known = _DECLARED.get((method, _PATH_PARAMETER.sub(r"{\1}", request.url_rule.rule)))
    if known is None:
        return
    for name in request.args:
        if name not in known:
            raise malformed(f"unknown query parameter {name[:_LONGEST_NAME]!r}; {_hint(name, known)}")


def _hint(name: str, known: tuple[str, ...]) -> str:
    if not known:
        return "this operation takes none"
    nearest = difflib.get_close_matches(name[:_LONGEST_NAME].lower(), known, n=1, cutoff=0.0)
    return f"did you mean {nearest[0]!r}? Known are {', '.join(known)}"
