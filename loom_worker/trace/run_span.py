"""The span of a workflow's run, under which the spans of its turns lie. Pure."""

from loom_worker.core.values.json import Json
from loom_worker.core.values.runs import Run
from loom_worker.core.values.spans import SpanStatus, TraceSpan, span_id_of
from loom_worker.trace import names

_STATUS: dict[str, SpanStatus] = {"completed": "OK", "failed": "Error"}


def span_of_run(run: Run) -> TraceSpan | None:
    """From the run's acceptance to its end; None if it has no trace."""
    if run.traceparent is None:
        return None
    attributes: Json = {
        "loom.workflow.name": run.workflow,
        "loom.workflow.type": run.pattern_type,
        "loom.run.id": run.id,
        "loom.run.status": run.status,
        "loom.run.stages": len(run.stages),
        **names.usage(run.usage),
    }
    if run.reason is not None:
        attributes["loom.run.reason"] = run.reason
    start_us = run.trace.accepted_us or run.created_ms * 1000
    return TraceSpan(
        trace_id=run.traceparent.split("-")[1],
        span_id=span_id_of(run.id),
        parent_id=run.traceparent.split("-")[2] if run.trace.has_client_span else None,
        name=names.WORKFLOW_RUN,
        start_us=start_us,
        # A retry that has nothing left to do ends as it is accepted, by a clock that was read before.
        end_us=None if run.completed_ms is None else max(start_us, run.completed_ms * 1000),
        attributes=attributes,
        status=_STATUS.get(run.status, "Unset"),
        status_message=str((run.error or {}).get("message", "")) if run.status == "failed" else "",
    )
