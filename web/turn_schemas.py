"""JSON Schemas of a turn and what is in it."""

from typing import get_args

from loom_worker.core.values.turns import Approval, CallStatus, CancelAction, TurnStatus, WaitsFor
from web.request_schemas import CUT
from web.schema_parts import FREE, NUMBER, TEXT, TIME, WHOLE, answer, array, one_of, or_null, ref

USAGE = answer(
    {
        "input_tokens": WHOLE,
        "output_tokens": WHOLE,
        "cache_read_tokens": WHOLE,
        "cache_write_tokens": WHOLE,
        "cost_usd": or_null(NUMBER),
        "llm_calls": WHOLE,
    },
    description="Tokens and cost; the cost is null where a price is not known.",
)

TOOL_CALL = answer(
    {
        "id": TEXT,
        "name": TEXT,
        "arguments": FREE,
        "status": one_of(CallStatus),
        "duration_ms": or_null(WHOLE),
        "content": or_null(TEXT),
        "error_id": {**or_null(TEXT), "description": "The whole error: GET /v1/errors/{error_id}."},
        "ref": {**or_null(TEXT), "description": "The whole result: GET /v1/blobs/{ref}."},
        "approval": {"type": ["string", "null"], "enum": [*get_args(Approval), None]},
        "approve_by": or_null(TIME),
    },
    description="One tool call of a turn; its content is capped.",
)

WAITING = answer(
    {
        "for": one_of(WaitsFor),
        "since": TIME,
        "attempt": {**or_null(WHOLE), "description": "Requests to the model for this reply, or sends of a call."},
        "next_try_at": {**or_null(TIME), "description": "When the model is asked again."},
        "last_error": {**or_null(TEXT), "description": "The model's latest error since its last reply."},
    },
    description="What a turn waits for.",
)

TURN = answer(
    {
        "id": TEXT,
        "object": {"const": "turn"},
        "session_id": TEXT,
        "seq": WHOLE,
        "status": one_of(TurnStatus),
        "reason": or_null(TEXT),
        "position": WHOLE,
        "attempt": WHOLE,
        "input": TEXT,
        "output_text": {**or_null(TEXT), "description": "All that the turn said, as it was streamed."},
        "tool_calls": array(ref("ToolCall")),
        "patterns": array(FREE),
        "usage": ref("Usage"),
        "error": or_null(FREE),
        "waiting": {"anyOf": [ref("Waiting"), {"type": "null"}], "description": "Null once the turn has ended."},
        "timings": answer(
            {"queued_ms": or_null(WHOLE), "run_ms": or_null(WHOLE), "first_token_ms": or_null(WHOLE)},
            description="Milliseconds; null until known.",
        ),
        "trace_id": or_null(TEXT),
        "metadata": FREE,
        "retry_of": or_null(TEXT),
        "cancel": {"type": ["string", "null"], "enum": [*get_args(CancelAction), None]},
        "created_at": TIME,
        "started_at": or_null(TIME),
        "completed_at": or_null(TIME),
    },
    description="One user message and its answer. Final statuses: completed, failed, cancelled, incomplete.",
    also=CUT,
)
