"""A turn as a task of the protocol. Pure; takes turns as JSON, as the final event of a stream holds them."""

from loom_worker.core.values.json import Json

ANSWER = "answer"
"""The id of the artifact that holds what the agent says."""
OURS = "loom"
"""The member of a task's metadata in which Loom says more than the protocol has words for."""
MESSAGE_MEMBER = "a2a"
"""The member of a turn's metadata in which the message is described that it began with."""
SUBMITTED = "TASK_STATE_SUBMITTED"
WORKING = "TASK_STATE_WORKING"
INPUT_REQUIRED = "TASK_STATE_INPUT_REQUIRED"
COMPLETED = "TASK_STATE_COMPLETED"
FAILED = "TASK_STATE_FAILED"
CANCELED = "TASK_STATE_CANCELED"
ENDS = {"completed": COMPLETED, "failed": FAILED, "incomplete": FAILED, "cancelled": CANCELED}
"""States of a task whose turn has ended, by the turn's status."""


def state_of(turn: Json) -> str:
    """The state of the task; a person is asked only as long as a call waits for one."""
    if turn["status"] == "queued":
        return SUBMITTED
    return ENDS.get(turn["status"]) or (INPUT_REQUIRED if waiting_calls(turn) else WORKING)


def waiting_calls(turn: Json) -> list[Json]:
    """The tool calls that wait for a person."""
    return [call for call in turn["tool_calls"] if is_waiting(call)]


def is_waiting(call: Json) -> bool:
    """True for a tool call that waits for a person."""
    return call["approval"] == "waiting" and call["status"] in ("pending", "running")


def task_of(turn: Json, *, history_length: int | None = None) -> Json:
    """The task.

    Args:
        history_length: the most messages of its history; None: all of them.
    """
    history = [_question(turn)][: 1 if history_length is None else history_length]
    text = turn["output_text"]
    return {
        "id": turn["id"],
        "contextId": turn["session_id"],
        "status": status_of(turn),
        **({"artifacts": [artifact(text)]} if text else {}),
        **({"history": history} if history else {}),
        "metadata": metadata_of(turn),
    }


def status_of(turn: Json) -> Json:
    """The status, with a message where there is something to say."""
    moment = turn["completed_at"] or turn["started_at"] or turn["created_at"]
    status = {"state": state_of(turn), "timestamp": moment}
    if calls := waiting_calls(turn):
        return {**status, "message": question_about(turn["id"], turn["session_id"], calls)}
    if status["state"] == FAILED:
        why = (turn["error"] or {}).get("message") or f"The turn ended as {turn['status']} ({turn['reason']})."
        return {**status, "message": _from_agent(turn["id"], turn["session_id"], "status", [{"text": str(why)}])}
    return status


def metadata_of(turn: Json) -> Json:
    """The turn's metadata, and what Loom adds to it."""
    own = {name: value for name, value in turn["metadata"].items() if name != MESSAGE_MEMBER}
    return {**own, OURS: {"status": turn["status"], "reason": turn["reason"], "usage": turn["usage"]}}


def artifact(text: str) -> Json:
    """What the agent says, or a piece of it."""
    return {"artifactId": ANSWER, "name": ANSWER, "parts": [{"text": text}]}


def question_about(task_id: str, context_id: str, calls: list[Json]) -> Json:
    """The message that asks a person whether tool calls may run: in words, and as data for programs."""
    asked = [{"tool_call_id": call["id"], "name": call["name"], "arguments": call["arguments"]} for call in calls]
    names = ", ".join(call["name"] for call in calls)
    text = (
        f"May the agent call {names}? Answer in this task with the text approve or deny, or with a data part "
        '{"decision": "approve" or "deny", "tool_call_id": …}.'
    )
    return _from_agent(task_id, context_id, calls[0]["id"], [{"text": text}, {"data": {"tool_calls": asked}}])


def _question(turn: Json) -> Json:
    known = turn["metadata"].get(MESSAGE_MEMBER)
    message_id = known.get("message_id") if isinstance(known, dict) else None
    return {
        "messageId": message_id or f"{turn['id']}.input",
        "contextId": turn["session_id"],
        "taskId": turn["id"],
        "role": "ROLE_USER",
        "parts": [{"text": turn["input"]}],
    }


def _from_agent(task_id: str, context_id: str, name: str, parts: list[Json]) -> Json:
    return {
        "messageId": f"{task_id}.{name}",
        "contextId": context_id,
        "taskId": task_id,
        "role": "ROLE_AGENT",
        "parts": parts,
    }
