"""Every metric that processes count: names, labels, what they mean. ``GET /metrics`` adds gauges (web/metrics.py).

A family is counted where something happens, with one line: ``metrics.LEASES_LOST.count()``. What a turn took is
observed once, when it has ended (turn/ending.py). ``runtime/metrics_flusher.py`` adds what a process has counted to
the database; docs/metrics.md is the page for operators.
"""

from loom_worker.core.metric_recorder import Counter, Family, Histogram, Label

_WAIT_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
_RUN_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 60.0, 120.0, 300.0, 600.0, 3600.0)
_CALL_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 60.0, 120.0)
_COMMIT_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_SCORES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)

_ENDS = Label("status", ("completed", "incomplete", "failed", "cancelled"))
_MODEL, _TOOL, _JUDGE = Label("model"), Label("tool"), Label("judge")
_PURPOSE = Label("purpose", ("turn", "judge", "summary", "rerank", "guard", "embedding"))
_QUEUES = ("turn", "judge", "tool", "workflow", "webhook", "summary", "trace", "control")
_LARGE_RESULT_EVENTS = (
    *("kept", "memory_hits", "memory_misses", "evicted", "damaged_in_memory", "damaged", "bombs"),
    *("lost", "disk_full", "unwritable", "store_full", "expired", "strays"),
)

TURNS = Counter(
    "loom_turns_total",
    "Turns that have ended, by how and why. Exact, also where workers are killed.",
    (_ENDS, Label("reason")),
    starts=(("completed", "none"), ("incomplete", "limits"), ("failed", "provider"), ("failed", "dead")),
)
"""Counted by the audit's row, written in the transaction that ends a turn (store/audit.py), not by this process."""
RUNS = Counter(
    "loom_workflow_runs_total",
    "Runs of workflows that have ended, by how and why. Exact, also where workers are killed.",
    (_ENDS, Label("reason")),
    starts=(("completed", "none"), ("failed", "invalid-output")),
)
"""Counted as ends of turns are."""
SCHEDULE_TIMES = Counter(
    "loom_schedule_times_total",
    "Due times of schedules, by what they belong to and what came of them: begun, skipped as the last run had not "
    "ended, refused, or missed.",
    (Label("kind", ("workflow", "agent")), Label("outcome", ("begun", "skipped", "refused", "missed"))),
)
CONTENT_CHANGES = Counter(
    "loom_content_changes_total",
    "Edits of the files of agents, tools and workflows that took effect, or were refused; each counted once, by the "
    "process that was the first to notice.",
    (Label("kind", ("agent", "tool", "workflow")), Label("outcome", ("updated", "refused"))),
)
TURN_QUEUE_WAIT = Histogram(
    "loom_turn_queue_wait_seconds",
    "From the acceptance of a turn to its first start by a worker.",
    bounds=_WAIT_S,
)
TURN_FIRST_TOKEN = Histogram(
    "loom_turn_first_token_seconds",
    "From the acceptance of a turn to the first text of its answer.",
    bounds=_RUN_S,
)
TURN_RUN = Histogram(
    "loom_turn_run_seconds",
    "Time a turn was run by workers: neither queued nor waiting for tools, judges, people or a busy provider.",
    (_ENDS,),
    bounds=_RUN_S,
)
TURN_DURATION = Histogram(
    "loom_turn_duration_seconds",
    "From the acceptance of a turn to its end.",
    (_ENDS,),
    bounds=_RUN_S,
)
TURN_DEATHS = Counter(
    "loom_turn_deaths_total",
    "Turns that were taken over from a worker that died or hung while it ran them. Exact.",
)
"""Counted in the transaction that takes a turn over."""

LLM_REQUESTS = Histogram(
    "loom_llm_request_seconds",
    "Requests to a model's provider, each try alone, from sending to the end of the reply.",
    (
        _MODEL,
        Label(
            "outcome",
            ("ok", "rate_limited", "overloaded", "broken", "too_long", "refused", "given_up"),
        ),
    ),
    bounds=_CALL_S,
)
LLM_FIRST_TOKEN = Histogram(
    "loom_llm_first_token_seconds",
    "From sending a request to the provider to the first text of its reply.",
    (_MODEL,),
    bounds=_CALL_S,
)
LLM_TOKENS = Counter(
    "loom_llm_tokens_total",
    "Tokens in the ledger, by model, kind and what the model was called for. Exact.",
    (_MODEL, Label("kind", ("input", "output", "cache_read", "cache_write")), _PURPOSE),
)
"""These and the next three are read from the ledger (store/metric_values.py), not counted by this process."""
LLM_COST = Counter(
    "loom_llm_cost_usd_total",
    "Cost in the ledger in US dollars, by model and what the model was called for. Exact, where prices are known.",
    (_MODEL, _PURPOSE),
)
LLM_CALLS = Counter(
    "loom_llm_calls_total",
    "Calls of models in the ledger, by model and what the model was called for. Exact.",
    (_MODEL, _PURPOSE),
)
LLM_UNPRICED_CALLS = Counter(
    "loom_llm_unpriced_calls_total",
    "Those of the calls whose cost is not known, because the model has no price.",
    (_MODEL, _PURPOSE),
)

TOOL_CALLS = Counter(
    "loom_tool_calls_total",
    "Tool calls of ended turns, by tool and how they ended; all but completed are errors of some kind.",
    (_TOOL, Label("status", ("completed", "failed", "timeout", "denied", "cancelled", "unknown"))),
)
TOOL_DURATION = Histogram(
    "loom_tool_call_seconds",
    "Tool calls of ended turns, from the moment a worker takes a call to its stored result.",
    (_TOOL,),
    bounds=_CALL_S,
)

JUDGE_SCORES = Histogram(
    "loom_judge_score",
    "Scores (0-1) that judges gave to answers of ended turns.",
    (_JUDGE,),
    bounds=_SCORES,
)
JUDGE_VERDICTS = Counter(
    "loom_judge_verdicts_total",
    "Verdicts on answers of ended turns, by judge: scored; undecided: it cannot tell; dead: no score; cancelled.",
    (_JUDGE, Label("status", ("scored", "undecided", "dead", "cancelled"))),
)
PATTERN_HITS = Counter(
    "loom_pattern_hits_total",
    "Patterns used by ended turns, matched to the message or loaded by the model.",
    (Label("pattern"), Label("how", ("matched", "loaded"))),
)
PATTERN_LOOKUPS = Counter(
    "loom_pattern_lookups_total",
    "Ended turns for which patterns were looked up, by whether any matched.",
    (Label("result", ("hit", "miss")),),
)
PATTERN_RELOADS = Counter(
    "loom_pattern_reloads_total",
    "Reloads of the pattern library by all processes; failed: with new errors.",
    (Label("result", ("ok", "failed")),),
)

BREAKERS_OPENED = Counter(
    "loom_breaker_opened_total",
    "How often a process opened its circuit breaker, again after a failed probe included.",
    (Label("name"),),
)
BREAKER_REFUSALS = Counter(
    "loom_breaker_refusals_total",
    "Calls that were refused without being made, because a circuit breaker was open.",
    (Label("name"),),
)
COMPRESSIONS = Counter(
    "loom_memory_compressions_total",
    "Steps that compressed a session's memory, by what was made and whether a model or the heuristic wrote it.",
    (Label("kind", ("compressed", "snapshot", "summarized")), Label("by", ("model", "heuristic"))),
)
_DROPPED = Label("reason", ("unreadable", "secret", "unsaid", "too_many"))
FACTS_DROPPED = Counter("loom_facts_dropped_total", "Facts that a model gave and that were not kept.", (_DROPPED,))
WEBHOOK_ATTEMPTS = Counter(
    "loom_webhook_attempts_total",
    "Attempts at webhook deliveries: delivered; pending, when another one follows; dead, when none does; or disabled.",
    (Label("result", ("delivered", "pending", "dead", "disabled")),),
)
WEBHOOK_DURATION = Histogram(
    "loom_webhook_attempt_seconds",
    "Attempts at webhook deliveries, from connecting to the receiver's response.",
    bounds=_CALL_S,
)
SWEEP_FINDINGS = Counter(
    "loom_sweep_findings_total",
    "What sweeps put right: late lanes, lanes that Redis lost, due deliveries, and sessions due for compression.",
    (Label("found", ("late", "lost", "due", "full")),),
)
LEASES_LOST = Counter(
    "loom_leases_lost_total",
    "Leases of lanes that a worker lost to another one while it held them.",
)
DROPPED_MESSAGES = Counter(
    "loom_dropped_messages_total",
    "Malformed messages that workers dropped; control: messages between Celery processes.",
    (Label("queue"),),
    starts=tuple((queue,) for queue in _QUEUES),
)
LARGE_RESULT_EVENTS = Counter(
    "loom_large_result_events_total",
    "What happened to large results of tools.",
    (Label("event", _LARGE_RESULT_EVENTS),),
)
SPANS_EXPORTED = Counter(
    "loom_spans_exported_total",
    "Spans that the receiver of traces has accepted.",
)
SPANS_DROPPED = Counter(
    "loom_spans_dropped_total",
    "Spans that were given up and reach no receiver, by reason.",
    (Label("reason", ("unreachable", "unavailable", "refused", "rejected", "backlog", "internal")),),
)
COMMITS = Histogram(
    "loom_store_commit_seconds",
    "Commits of transactions that write; full: each waits until the disk has it.",
    (Label("sync", ("full", "normal")),),
    bounds=_COMMIT_S,
)
WRITE_WAITS = Histogram(
    "loom_store_write_wait_seconds",
    "How long a transaction that writes waited: for its turn (SQLite), or for a connection (PostgreSQL).",
    bounds=_COMMIT_S,
)

FAMILIES: dict[str, Family] = {each.name: each for each in tuple(globals().values()) if isinstance(each, Family)}
"""All of them, by name."""
