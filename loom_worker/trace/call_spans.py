"""The spans of what a turn called: models, tools with their processes, people, judges. Pure."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from loom_worker.core.values.agents import provider_and_model
from loom_worker.core.values.calls import Call
from loom_worker.core.values.chat import Usage
from loom_worker.core.values.cutting import dump
from loom_worker.core.values.json import Json
from loom_worker.core.values.judges import Verdict
from loom_worker.core.values.spans import SpanEvent, SpanStatus, TraceSpan, span_id_of
from loom_worker.core.values.traces import CallTimes, Interval, Try
from loom_worker.core.values.turns import Step
from loom_worker.trace import names

CONTENT_CHARS = 4_000
"""Characters of each text, where contents of messages are shown: a span has at most 10 kB."""


@dataclass(frozen=True, slots=True)
class SpanFrame:
    """What all spans of one turn have in common."""

    turn_id: str
    trace_id: str
    shows_content: bool = False
    """False: of what users, models and tools wrote, nothing is shown."""

    def id(self, *part: str) -> str:
        """The id of a part of the turn."""
        return span_id_of(self.turn_id, *part)

    def span(
        self,
        part: tuple[str, ...],
        name: str,
        at: Interval,
        attributes: Json,
        *,
        parent: tuple[str, ...] = (),
        error: str | None = None,
    ) -> TraceSpan:
        """A part of the turn that is over.

        Args:
            part: what its id is made of.
            attributes: those that are None are left out.
            parent: what the id of its parent is made of.
            error: why it failed; None: it did not.
        """
        status: SpanStatus = "OK" if error is None else "Error"
        known = {key: value for key, value in attributes.items() if value is not None}
        return TraceSpan(
            trace_id=self.trace_id,
            span_id=self.id(*part),
            parent_id=self.id(*parent),
            name=name,
            start_us=at.began_us,
            end_us=max(at.began_us, at.ended_us),  # a clock may step back
            attributes=known,
            status=status,
            status_message=error or "",
        )

    def content(self, name: str, text: str | None) -> Json:
        """An attribute that holds what somebody wrote, where that is shown."""
        return {name: text[:CONTENT_CHARS]} if self.shows_content and text else {}

    def message(self, name: str, role: str, text: str | None) -> Json:
        """The same for a message, in the JSON of OpenTelemetry's conventions."""
        if not self.shows_content or not text:
            return {}
        parts = [{"type": "text", "content": text[:CONTENT_CHARS]}]
        return {name: json.dumps([{"role": role, "parts": parts}], ensure_ascii=False)}


def of_model(
    frame: SpanFrame, steps: Sequence[Step], failed_call: Json | None, runs: frozenset[int]
) -> Iterator[TraceSpan]:
    """Contexts that were built and requests to the model, failed ones included.

    Args:
        failed_call: the request that led to no step and ended the turn (``TurnTrace.failed_call``).
        runs: fences of the runs that have a span.
    """
    replies = 0
    for step in steps:
        if step.kind not in ("reply", "waited"):
            continue
        times = CallTimes.of(step.payload.get("times"))
        is_reply = step.kind == "reply"
        if times is not None:
            yield from _call(frame, times, (str(replies), str(step.n)), step.payload if is_reply else None, runs)
        replies += is_reply
    times = CallTimes.of(failed_call)
    if times is not None:
        yield from _call(frame, times, (str(replies), "last"), None, runs)


def _call(
    frame: SpanFrame, times: CallTimes, place: tuple[str, str], reply: Json | None, runs: frozenset[int]
) -> Iterator[TraceSpan]:
    """One reply's context and tries.

    Args:
        place: the number of the reply, and what makes the ids of tries that led to none unlike all others.
        reply: the payload of the step that it led to; None: it led to none.
    """
    number, unlike = place
    parent = ("run", str(times.fence)) if times.fence in runs else ()
    if times.built is not None:
        built = {"loom.context.tokens": times.tokens}
        yield frame.span(("context", number, unlike), names.CONTEXT_BUILD, times.built, built, parent=parent)
    last = len(times.tries) - 1
    for n, one in enumerate(times.tries):
        # Stored errors name it so: ``last_request``.
        is_final = n == last and (reply is not None or unlike == "last")
        part = ("llm", number) if is_final else ("llm", number, f"{unlike}.{n}")
        said = reply if n == last else None
        yield _request(frame, times, one, part, said=said, parent=parent)


def last_request(steps: Sequence[Step], failed_call: Json | None) -> tuple[str, ...]:
    """What the id of a turn's last request to its model is made of, if it led to no reply; empty if there is none."""
    replies = sum(step.kind == "reply" for step in steps)
    if failed_call is not None:
        return ("llm", str(replies)) if failed_call["tries"] else ()
    last = next((step for step in reversed(steps) if step.kind in ("reply", "waited")), None)
    times = CallTimes.of(last.payload.get("times")) if last is not None and last.kind == "waited" else None
    return ("llm", str(replies), f"{last.n}.{len(times.tries) - 1}") if last and times and times.tries else ()


def _request(
    frame: SpanFrame, times: CallTimes, one: Try, part: tuple[str, ...], *, said: Json | None, parent: tuple[str, ...]
) -> TraceSpan:
    provider, model = provider_and_model(one.model)[0] or times.provider, one.model or times.model
    attributes: Json = {
        names.OPERATION: "chat",
        names.PROVIDER: names.provider(provider),
        names.REQUEST_MODEL: model,
        names.MODEL: model,
        names.STREAMS: True,
        names.ERROR_TYPE: one.error_type,
    }
    if said is not None:
        attributes |= {names.RESPONSE_MODEL: said["model"], names.FINISH_REASONS: [said["stop_reason"]]}
        attributes |= names.usage(Usage.from_json(said["usage"])) | frame.message(
            names.OUTPUT_MESSAGES, "assistant", said["text"]
        )
        if times.first_text_us is not None:
            attributes[names.FIRST_CHUNK_S] = max(0, times.first_text_us - one.at.began_us) / 1e6
    error = one.error or one.error_type if one.error_type else None
    made = frame.span(part, names.LLM_COMPLETION, one.at, attributes, parent=parent, error=error)
    is_given_up = said is None and error is None
    return replace(made, kind="client", status="Unset" if is_given_up else made.status)


def of_tools(frame: SpanFrame, calls: Sequence[Call], replied_us: dict[int, int]) -> Iterator[TraceSpan]:
    """Calls of tools, what of them ran in a process of its own, and the waits for people who decided on them.

    Args:
        replied_us: when the reply of a step had come, by the number of the step.
    """
    for call in calls:
        if call.approval is not None and call.reply_n in replied_us:
            yield _approval(frame, call, replied_us[call.reply_n])
        began_ms = call.finished_ms if call.started_ms is None else call.started_ms
        if began_ms is None:
            continue
        yield _executed(frame, call, began_ms)
        yield from _parts(frame, call)


def _parts(frame: SpanFrame, call: Call) -> Iterator[TraceSpan]:
    """What a call went through: a process of its own, a look into the error store, and the storing of its failure."""
    trace, part = call.trace or {}, ("tool", call.id)
    ran, read = trace.get("process") or {}, trace.get("error_read") or {}
    if (at := Interval.of(ran.get("at"))) is not None:
        yield frame.span((*part, "process"), names.TOOL_PROCESS, at, {"process.pid": ran.get("pid")}, parent=part)
    if (at := Interval.of(read.get("at"))) is not None:
        failed = None if call.status == "completed" else call.status
        attributes = {"loom.error_id": read.get("error_id"), names.ERROR_TYPE: failed}
        yield frame.span((*part, names.ERROR_GET), names.ERROR_GET, at, attributes, parent=part, error=failed)
    if (at := Interval.of(trace.get("error_stored"))) is not None and call.error_id is not None:
        yield error_stored(frame, at, call.error_id, call.name, parent=part)


def _executed(frame: SpanFrame, call: Call, began_ms: int) -> TraceSpan:
    failed = None if call.status in ("completed", "running") else call.status
    was_taken = call.started_ms is not None and call.sent_ms is not None
    attributes: Json = {
        names.OPERATION: "execute_tool",
        names.TOOL_NAME: call.name,
        names.TOOL_CALL_ID: call.id,
        names.TOOL_TYPE: "function",
        names.ERROR_TYPE: failed,
        "loom.worker": names.worker(call.worker),
        "loom.tool.sends": call.sends,
        "loom.tool.queue_ms": (call.started_ms or 0) - (call.sent_ms or 0) if was_taken else None,
        "loom.error_id": call.error_id,
        "loom.ref": call.ref,
        **frame.content(names.TOOL_ARGUMENTS, dump(call.arguments) if frame.shows_content else None),
        **frame.content(names.TOOL_RESULT, call.content),
    }
    at = Interval(began_ms * 1000, (call.finished_ms or began_ms) * 1000)
    made = frame.span(("tool", call.id), names.TOOL_EXECUTE, at, attributes, error=failed)
    return made if call.finished_ms is not None else going_on(made)


def _approval(frame: SpanFrame, call: Call, replied_us: int) -> TraceSpan:
    was_sent = call.approval in ("approved", "edited") and call.sent_ms is not None
    decided_ms = call.sent_ms if was_sent else call.finished_ms
    at = Interval(replied_us, (decided_ms or 0) * 1000)
    attributes = {names.TOOL_NAME: call.name, names.TOOL_CALL_ID: call.id, "loom.approval": call.approval}
    made = frame.span(("approval", call.id), names.APPROVAL_WAIT, at, attributes)
    return made if decided_ms is not None else going_on(made)


def error_stored(
    frame: SpanFrame, at: Interval, error_id: str, tool: str | None, *, parent: tuple[str, ...] = ()
) -> TraceSpan:
    """That an error was stored."""
    told = {"loom.error_id": error_id, **({names.TOOL_NAME: tool} if tool else {})}
    event = SpanEvent(names.ERROR_STORED, at.ended_us, told)
    made = frame.span((*parent, "error_store.store"), names.ERROR_STORE, at, told, parent=parent)
    return replace(made, events=(event,))


def of_judges(frame: SpanFrame, verdicts: Sequence[Verdict]) -> Iterator[TraceSpan]:
    """What judges did, and what the models among them were asked."""
    for verdict in verdicts:
        if verdict.started_ms is None:
            continue
        part = ("judge", str(verdict.reply_n), str(verdict.position))
        at = Interval(verdict.started_ms * 1000, (verdict.finished_ms or verdict.started_ms) * 1000)
        error = verdict.status if verdict.status in ("dead", "cancelled") else None
        attributes: Json = {
            names.EVALUATION: verdict.name,
            names.SCORE: verdict.score,
            "loom.judge.type": verdict.type,
            "loom.judge.queue_ms": verdict.started_ms - verdict.sent_ms,
            "loom.worker": names.worker(verdict.worker),
            names.ERROR_TYPE: error,
        }
        made = frame.span(part, names.JUDGE_SCORE, at, attributes, error=error)
        yield made if verdict.finished_ms is not None else going_on(made)
        if verdict.usage.llm_calls:
            yield asked_model(frame, part, at, verdict.model, verdict.usage)


def asked_model(frame: SpanFrame, part: tuple[str, ...], at: Interval, model: str | None, used: Usage) -> TraceSpan:
    """What a model did for a part of a turn other than its answer; all its tries together."""
    attributes: Json = {
        names.OPERATION: "chat",
        names.REQUEST_MODEL: model,
        names.MODEL: model,
        "loom.llm_calls": used.llm_calls,
        **names.usage(used),
    }
    return replace(frame.span((*part, "llm"), names.LLM_COMPLETION, at, attributes, parent=part), kind="client")


def going_on(span: TraceSpan) -> TraceSpan:
    """The span of something that has not ended."""
    return replace(span, end_us=None, status="Unset")
