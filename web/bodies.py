"""What clients send, as the values the rest of Loom works with.

All raise Refused: 415 or 400 for a body or a header that cannot be read, 422 with every flaw for one that can.
"""

import hashlib
import json
import re
from typing import Any, get_args

from flask import request
from werkzeug.datastructures import Headers

from loom_worker.core.errors import Flaw
from loom_worker.core.values.api_keys import USUAL_TOKEN_S, KeyLimits, NewKey
from loom_worker.core.values.channels import Channel
from loom_worker.core.values.decisions import ApprovalVerdict, Decision
from loom_worker.core.values.facts import Correction
from loom_worker.core.values.guardrails import by_stage
from loom_worker.core.values.ids import now_ms
from loom_worker.core.values.json import Json, from_rfc3339
from loom_worker.core.values.runs import NewRun, RunDecision
from loom_worker.core.values.sessions import NewSession, SessionPatch
from loom_worker.core.values.turns import CancelAction, NewTurn, Retry, is_blank
from loom_worker.core.values.webhooks import Webhook
from web import fact_schemas, request_schemas, run_schemas, schedule_schemas
from web.caller import ApiCaller
from web.check import Checker
from web.problems import ProblemDetails, Refused, invalid, malformed
from web.strict_json import parse_object

_LARGEST = {"metadata": 16 * 1024, "kernel": 64 * 1024}
"""Bytes of JSON that a free-form member may have."""
MOST_SKEW_MS = 5 * 60 * 1000
"""How far a client's clock may be ahead."""
_WAIT = re.compile(r'(?:^|[,;])\s*wait\s*=\s*"?([0-9]{1,9})"?\s*(?=[,;]|$)', re.IGNORECASE)
_QUOTED = re.compile(r'"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"')
_PLAIN = re.compile(r"[\x21\x23-\x7e][\x20-\x7e]*")

_NEW_TURN = Checker(request_schemas.NEW_TURN)
_NEW_SESSION = Checker(request_schemas.NEW_SESSION)
_SESSION_PATCH = Checker(request_schemas.SESSION_PATCH)
_WORKSPACE_PATCH = Checker(request_schemas.WORKSPACE_PATCH)
_RECALL = Checker(request_schemas.RECALL)
_CANCEL_TURN = Checker(request_schemas.CANCEL_TURN)
_DECISION = Checker(request_schemas.DECISION)
_NEW_KEY = Checker(request_schemas.NEW_KEY)
_ROTATE_KEY = Checker(request_schemas.ROTATE_KEY)
_NEW_TOKEN = Checker(request_schemas.NEW_TOKEN)
_NEW_PAIRING = Checker(request_schemas.NEW_PAIRING)
_EMPTY = Checker(request_schemas.EMPTY)
_NEW_RUN = Checker(run_schemas.NEW_RUN)
_CANCEL_RUN = Checker(run_schemas.CANCEL_RUN)
_RUN_DECISION = Checker(run_schemas.RUN_DECISION)
_FACT_PATCH = Checker(fact_schemas.FACT_PATCH)
_SCHEDULE_PATCH = Checker(schedule_schemas.SCHEDULE_PATCH)


def json_body() -> Json:
    """The body of the current request.

    Raises:
        Refused: 415 if it is not declared as JSON, 400 if it is none.
        RequestEntityTooLarge: over the limit; seen from its length, before it is read.
    """
    if request.mimetype != "application/json" or request.headers.get("Content-Encoding", "identity") != "identity":
        detail = "send Content-Type: application/json, not compressed"
        raise Refused(ProblemDetails(415, "unsupported-media-type", detail, {}, {"Accept": "application/json"}))
    try:
        return parse_object(request.get_data(cache=False))
    except ValueError as error:
        raise malformed(str(error)) from error


def no_body() -> None:
    """Take a change that says nothing: no body at all, or an empty object."""
    _require(_body_if_any(), _EMPTY)


def _body_if_any() -> Json:
    """The body, or an empty object; the server counts a chunked one, so it has a length here too."""
    return json_body() if request.content_length else {}


def cancel_action() -> CancelAction:
    """How to end the turn of the current request."""
    body = _body_if_any()
    _require(body, _CANCEL_TURN)
    action: CancelAction = body.get("action", "interrupt")
    return action


def decision(body: Json) -> Decision:
    """Check what a person says to a tool call."""
    given = body.get("arguments")
    wrong = (Flaw("/arguments", "must be there with edit, and with nothing else"),)
    is_wrong = body.get("decision") in get_args(ApprovalVerdict) and (given is not None) != (body["decision"] == "edit")
    _require(body, _DECISION, wrong if is_wrong else ())
    return Decision(body["decision"], arguments=given, reason=body.get("reason"))


def new_session(body: Json) -> NewSession:
    """Check a session that a client wants."""
    _require(body, _NEW_SESSION)
    return NewSession(**{name: value for name, value in body.items() if value is not None})


def session_patch(body: Json) -> SessionPatch:
    """Check a change of a session; null clears."""
    _require(body, _SESSION_PATCH)
    cleared: Any = frozenset(name for name, value in body.items() if value is None)
    tools = body.get("tools")
    return SessionPatch(**{**body, "tools": None if tools is None else tuple(tools)}, clear=cleared)


def workspace_patch(body: Json) -> Json:
    """Check a change of a workspace's rules, and bring it into the form that is stored; null clears."""
    _require(body, _WORKSPACE_PATCH)
    changes = dict(body)
    if changes.get("guardrails") is not None:
        changes["guardrails"] = by_stage(changes["guardrails"])
    if isinstance(days := changes.get("retention"), int | float):
        changes["retention"] = {"days": int(days)}
    return changes


def message_ids(body: Json) -> tuple[str, ...]:
    """Check which messages a client wants to recall; each once, in the order they were named."""
    _require(body, _RECALL)
    return tuple(dict.fromkeys(body["message_ids"]))


def new_key(body: Json) -> NewKey:
    """Check an API key that a client wants."""
    given = body.get("expires_at")
    expires_ms = from_rfc3339(given) if isinstance(given, str) else None
    wrong = (Flaw("/expires_at", "must be a time such as 2027-01-31T12:00:00Z"),)
    _require(body, _NEW_KEY, wrong if isinstance(given, str) and expires_ms is None else ())
    scopes = tuple(body.get("scopes", ("chat",)))
    limits = KeyLimits(**{name: _whole(body.get(name)) for name in KeyLimits.__slots__})
    return NewKey(body["name"], scopes, user=body.get("user"), expires_ms=expires_ms, limits=limits)


def new_pairing(body: Json) -> Json:
    """Check who a client says that somebody of a channel is: ``channel``, ``identity`` and ``user``."""
    _require(body, _NEW_PAIRING)
    return body


def rotation_grace_s() -> int:
    """How long the key that the current request replaces works on."""
    return _seconds(_ROTATE_KEY, "grace_s", 0)


def token_ttl_s() -> int:
    """How long the token that the current request asks for is to last."""
    return _seconds(_NEW_TOKEN, "ttl_s", USUAL_TOKEN_S)


def _seconds(checker: Checker, name: str, usual: int) -> int:
    body = _body_if_any()
    _require(body, checker)
    return int(body.get(name, usual))


def new_turn(body: Json, session_id: str, caller: ApiCaller) -> NewTurn:
    """Check a turn that a client submits; ``agent`` stays in the body, for it belongs to the session."""
    key = idempotency_key(request.headers)
    # The id stands in the path, but a turn makes its session: the rule is that of a new one.
    flaws = [Flaw("/session_id", f"in the path: {each.detail}") for each in _NEW_SESSION.flaws({"id": session_id})]
    # The schema lets characters pass that are no blanks, and yet nobody sees.
    if isinstance(body.get("input"), str) and is_blank(body["input"]):
        flaws.append(Flaw("/input", "must not be blank"))
    given = body.get("said_at")
    said_ms = from_rfc3339(given) if isinstance(given, str) else None
    if isinstance(given, str) and (said_ms is None or not 0 <= said_ms <= now_ms() + MOST_SKEW_MS):
        flaws.append(
            Flaw("/said_at", "must be a time since 1970 that has passed, with its zone, such as 2023-05-07T13:56:00Z")
        )
    _require(body, _NEW_TURN, tuple(flaws))
    return NewTurn(
        input=body["input"],
        webhook=_webhook(body.get("webhook")),
        deadline_s=body.get("deadline_s"),
        max_attempts=_whole(body.get("max_attempts")),
        budget=body.get("budget"),
        metadata=body.get("metadata", {}),
        double_texting=body.get("double_texting", "enqueue"),
        user=body.get("user"),
        channel=_channel(body.get("channel")),
        said_ms=said_ms,
        **_of_request(caller, key, session_id, body),
    )


def retry(turn_id: str, caller: ApiCaller) -> Retry:
    """Check a request to run a turn again."""
    key = idempotency_key(request.headers)
    no_body()
    return Retry(**_of_request(caller, key, f"/v1/turns/{turn_id}/retry", {}))


def new_run(body: Json, workflow: str, caller: ApiCaller) -> NewRun:
    """Check a run that a client asks for."""
    key = idempotency_key(request.headers)
    variables, given = body.get("variables"), body.get("input")
    is_twice = isinstance(variables, dict) and "input" in variables and given is not None
    _require(body, _NEW_RUN, (Flaw("/input", "is given twice: here, and in /variables/input"),) if is_twice else ())
    named = {**body.get("variables", {}), **({} if given is None else {"input": given})}
    return NewRun(
        variables={name: _spelled(value) for name, value in named.items()},
        webhook=_webhook(body.get("webhook")),
        budget=body.get("budget"),
        deadline_s=body.get("deadline_s"),
        metadata=body.get("metadata", {}),
        user=body.get("user"),
        **_of_request(caller, key, f"/v1/workflows/{workflow}/runs", body),
    )


def retry_run(run_id: str, caller: ApiCaller) -> NewRun:
    """Check a request to go on from where a run failed."""
    key = idempotency_key(request.headers)
    no_body()
    return NewRun(**_of_request(caller, key, f"/v1/runs/{run_id}/retry", {}))


def cancel_run() -> None:
    """Check the request to cancel a run."""
    _require(_body_if_any(), _CANCEL_RUN)


def run_decision(body: Json) -> tuple[RunDecision, str | None]:
    """Check what a person says to a stage's output: the decision, and why."""
    is_empty = body.get("decision") == "revise" and not body.get("reason")
    _require(body, _RUN_DECISION, (Flaw("/reason", "must say what is to be changed"),) if is_empty else ())
    return body["decision"], body.get("reason")


def schedule_patch(body: Json) -> bool | None:
    """Check what an operator says of a schedule; None: its file counts."""
    _require(body, _SCHEDULE_PATCH)
    enabled: bool | None = body["enabled"]
    return enabled


def fact_correction(body: Json) -> Correction:
    """Check what a person says of a fact."""
    until = body.get("until")
    until_ms = from_rfc3339(until) if isinstance(until, str) else None
    is_no_time = isinstance(until, str) and until_ms is None
    _require(body, _FACT_PATCH, (Flaw("/until", "must be a time of RFC 3339"),) if is_no_time else ())
    return Correction(body.get("relation"), body.get("object"), body.get("confidence"), until_ms)


def _of_request(caller: ApiCaller, key: str | None, scope: str, body: Json) -> dict[str, Any]:
    return {
        "idempotency_key": key,
        "fingerprint": None if key is None else fingerprint(caller.workspace, scope, body),
        "traceparent": caller.traceparent,
        "trace": caller.trace,
        "request_id": caller.request_id,
        "key_id": caller.holder.key_id,
    }


def _spelled(value: str | float | bool) -> str:
    """A variable's value as it stands in a prompt: numbers and truth values as JSON spells them."""
    return value if isinstance(value, str) else json.dumps(value)


def fingerprint(workspace: str, scope: str, body: Json) -> str:
    """SHA-256 of what was asked; the order of keys and the spaces between them do not count.

    Args:
        scope: the session of a submitted turn, else the path: no id of a session has a slash.
    """
    canonical = json.dumps([workspace, scope, body], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()


def idempotency_key(headers: Headers) -> str | None:
    """The ``Idempotency-Key``, quoted or not (a structured string, or the bare word that many clients send)."""
    raw = headers.get("Idempotency-Key")
    if raw is None:
        return None
    raw = raw.strip()
    quoted = _QUOTED.fullmatch(raw)
    key = re.sub(r"\\(.)", r"\1", quoted[1]) if quoted else raw
    if not 1 <= len(key) <= 255 or not (quoted or _PLAIN.fullmatch(raw)):
        raise malformed("Idempotency-Key must be 1 to 255 printable ASCII characters, quoted or not")
    return key


def preferred_wait_s(headers: Headers) -> int | None:
    """``wait`` of the ``Prefer`` header (RFC 7240), in seconds; None if absent or unreadable: it is but a request."""
    found = _WAIT.search(headers.get("Prefer", ""))
    return None if found is None else int(found[1])


def _require(body: Json, checker: Checker, further: tuple[Flaw, ...] = ()) -> None:
    too_large = (
        Flaw(f"/{name}", f"must have at most {largest} bytes as JSON")
        for name, largest in _LARGEST.items()
        if body.get(name) and len(json.dumps(body[name], ensure_ascii=False).encode("utf-8")) > largest
    )
    flaws = dict.fromkeys((*further, *checker.flaws(body), *too_large))
    if flaws:
        raise invalid(tuple(flaws))


def _whole(given: float | None) -> int | None:
    """JSON Schema takes 3.0 for an integer too."""
    return None if given is None else int(given)


def _channel(given: Json | None) -> Channel | None:
    if given is None:
        return None
    return Channel(given["name"], given.get("format", "markdown"), _whole(given.get("max_chars")))


def _webhook(given: str | Json | None) -> Webhook | None:
    if given is None:
        return None
    if isinstance(given, str):
        return Webhook(given)
    return Webhook(given["url"], given.get("secret"))
