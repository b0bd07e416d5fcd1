"""The statements that every turn runs on its way, prepared: accepted, claimed, its memory read, ended, looked at.

All else that is asked of the database stands beside the function that asks it. These stand together, for together they
are what a turn costs; ``tests/unit/store/test_turn_statements.py`` holds that each of them finds its rows by an index.
"""

from functools import cache

from sqlalchemy import (
    BigInteger,
    BindParameter,
    Float,
    Integer,
    String,
    Text,
    and_,
    bindparam,
    case,
    func,
    insert,
    select,
    update,
)

from loom_worker.store import rows
from loom_worker.store.prepared import PreparedStatement
from loom_worker.store.schema import (
    calls,
    kept,
    messages,
    pattern_uses,
    sessions,
    steps,
    turn_columns,
    turns,
    unfinished,
    usage,
    use_deltas,
)
from loom_worker.store.tables import (
    JSON_OR_NULL,
    agent_labels,
    audit_inbox,
    depth_deltas,
    memory,
    trace_outbox,
    workflow_runs,
    workspace_depths,
    workspaces,
)
from loom_worker.store.tenants import OURS, of_session

_OUR_LANE: BindParameter[str] = bindparam("our_lane", type_=String)
_OUR_ID: BindParameter[str] = bindparam("our_id", type_=String)
_ours = select(workspaces.c.rules).where(workspaces.c.name == bindparam("our_workspace"))
OUR_RULES = _ours.scalar_subquery().label("rules")
"""A column: the rules of a workspace."""

# A turn is accepted: one snapshot, in which its text is looked at, then one transaction.

BY_IDEMPOTENCY_KEY = PreparedStatement(
    select(*turn_columns(), kept().label("is_kept")).where(
        turns.c.workspace == bindparam("our_workspace"), turns.c.idempotency_key == bindparam("key")
    )
)
_agent = select(sessions.c.agent).where(OURS, sessions.c.id == _OUR_ID).scalar_subquery()
_budget = select(sessions.c.budget).where(OURS, sessions.c.id == _OUR_ID).scalar_subquery()
_kept_version = select(sessions.c.agent_version).where(OURS, sessions.c.id == _OUR_ID).scalar_subquery()
_production = select(agent_labels.c.version).where(
    agent_labels.c.workspace == bindparam("our_workspace"),
    agent_labels.c.agent == func.coalesce(func.nullif(_agent, ""), bindparam("named", type_=String)),
    agent_labels.c.label == "production",
)
ASKED = PreparedStatement(
    select(
        _agent.label("agent"),
        _budget.label("budget"),
        func.coalesce(_kept_version, _production.scalar_subquery()).label("version"),
        OUR_RULES,
    )
)
"""Who will answer, and by what rules."""
SESSION = PreparedStatement(select(sessions).where(OURS, sessions.c.id == _OUR_ID))
_depth, _changed = (
    select(func.sum(each.c.turns)).where(each.c.workspace == bindparam("our_workspace")).scalar_subquery()
    for each in (workspace_depths, depth_deltas)
)
WORKSPACE = PreparedStatement(select((func.coalesce(_depth, 0) + func.coalesce(_changed, 0)).label("depth"), OUR_RULES))
"""How many unfinished turns the workspace has, and its rules; a session's row has its own count."""
COUNT_ON = PreparedStatement(
    update(sessions)
    .where(sessions.c.lane == _OUR_LANE)
    .values(next_seq=sessions.c.next_seq + 1, updated_ms=bindparam("now_ms"))
)
INSERT_TURN = PreparedStatement(insert(turns), columns=turns.c.keys())

# It is claimed: one transaction.

_HAS_FENCE = (turns.c.id == _OUR_ID, turns.c.fence == bindparam("our_fence"), unfinished())
IS_OURS = (*_HAS_FENCE, turns.c.claimed_us == bindparam("our_claimed_us", type_=BigInteger))
"""True of a turn that is unfinished and has the fence of a claim, and its moment. A claim reaches the disk with the
next durable transaction; a server that crashes before that gives its number to another claim."""
SESSION_COLUMNS = (
    "status",
    "rom",
    "learned_version",
    "kernel",
    "user",
    "usage",
    "budget",
    "token_correction",
    "memory_seen",
    *rows.CHOSEN,
)
"""What a run needs of the session, read along with the turn."""
RULES = select(workspaces.c.rules).where(workspaces.c.name == turns.c.workspace).scalar_subquery().label("rules")
"""A column for statements on turns: the rules of the turn's workspace."""
RUN_BUDGET = (
    select(workflow_runs.c.budget).where(workflow_runs.c.id == turns.c.run_id).scalar_subquery().label("run_budget")
)
"""A column: the budget of the workflow's run that the turn is a stage of."""
WITH_SESSION = (
    select(turns, *(sessions.c[name].label(f"session_{name}") for name in SESSION_COLUMNS), RULES, RUN_BUDGET)
    .join(sessions, sessions.c.lane == turns.c.lane)
    .limit(1)
)
HEAD = PreparedStatement(WITH_SESSION.where(turns.c.lane == _OUR_LANE, unfinished()).order_by(turns.c.seq))
OURS_WITH_SESSION = PreparedStatement(WITH_SESSION.where(*_HAS_FENCE))
_CLAIMED = (
    *("status", "fence", "held_by", "deaths", "started_ms", "parked_until_ms", "claimed_us", "trace"),
    "learned_version",
)
CLAIM = PreparedStatement(
    update(turns).where(turns.c.id == _OUR_ID).values({name: bindparam(name) for name in _CLAIMED})
)
STEPS = PreparedStatement(select(steps).where(steps.c.turn_id == _OUR_ID).order_by(steps.c.n))
CALLS = PreparedStatement(select(calls).where(calls.c.turn_id == _OUR_ID).order_by(calls.c.position))

# Its memory is read: one snapshot, in which it is still ours.

STILL_OURS = PreparedStatement(select(turns.c.cancel).where(*IS_OURS))
MEMORY = PreparedStatement(select(memory).where(memory.c.lane == _OUR_LANE))
_l1 = select(messages).where(messages.c.lane == _OUR_LANE, messages.c.n >= bindparam("first_n"))
_l1 = _l1.limit(bindparam("most", type_=Integer))
LATEST, OLDEST = PreparedStatement(_l1.order_by(messages.c.n.desc())), PreparedStatement(_l1.order_by(messages.c.n))
"""Messages from a number on."""

# It goes on, or ends: one transaction each.


@cache
def fenced_update(names: tuple[str, ...]) -> PreparedStatement:
    """Change these columns of a turn that is still ours."""
    return PreparedStatement(update(turns).where(*IS_OURS).values({name: bindparam(name) for name in names}))


@cache
def final_update(names: tuple[str, ...]) -> PreparedStatement:
    """The same, if the client's cancel request and its webhook are the known ones."""
    is_known = (
        turns.c.cancel.is_not_distinct_from(bindparam("known_cancel", type_=String)),
        turns.c.webhook_url.is_not_distinct_from(bindparam("known_url", type_=Text)),
        turns.c.webhook_form.is_not_distinct_from(bindparam("known_form", type_=Text)),
    )
    return PreparedStatement(update(turns).where(*IS_OURS, *is_known).values({name: bindparam(name) for name in names}))


INSERT_STEPS = PreparedStatement(insert(steps), columns=steps.c.keys())
INSERT_MESSAGES = PreparedStatement(insert(messages), columns=[name for name in messages.c.keys() if name != "n"])  # noqa: SIM118 - no dict
USED = PreparedStatement(select(sessions.c.usage).where(sessions.c.lane == _OUR_LANE))
_sent_rom = bindparam("sent_rom", type_=Text)
_IS_FIRST_ROM = and_(
    sessions.c.rom.is_(None),
    _sent_rom.is_not(None),
    sessions.c.backend.is_not_distinct_from(bindparam("sent_backend", type_=Text)),
    sessions.c.agent_version.is_not_distinct_from(bindparam("kept_version", type_=String)),
)
CHARGE_SESSION = PreparedStatement(
    update(sessions)
    .where(sessions.c.lane == _OUR_LANE)
    .values(
        usage=bindparam("usage"),
        updated_ms=bindparam("now_ms"),
        rom=case((_IS_FIRST_ROM, _sent_rom), else_=sessions.c.rom),
        agent_version=case((_IS_FIRST_ROM, bindparam("version", type_=String)), else_=sessions.c.agent_version),
        learned_version=case(
            (_IS_FIRST_ROM, bindparam("learned_version", type_=Integer)), else_=sessions.c.learned_version
        ),
        learned_part=case(
            (_IS_FIRST_ROM, bindparam("learned_part", type_=JSON_OR_NULL)), else_=sessions.c.learned_part
        ),
        token_correction=func.coalesce(bindparam("correction", type_=Float), sessions.c.token_correction),
        memory_seen=func.coalesce(bindparam("seen", type_=Integer), sessions.c.memory_seen),
    )
)
_USER = select(sessions.c.user).where(sessions.c.lane == _OUR_LANE).scalar_subquery()
_OUR_TURN: BindParameter[str] = bindparam("our_turn", type_=String)
_KEY = select(turns.c.key_id).where(turns.c.id == _OUR_TURN).scalar_subquery()
_latest = select(turns.c.run_id).where(turns.c.lane == _OUR_LANE).order_by(turns.c.seq.desc()).limit(1)
_RUN = case(
    (_OUR_TURN == "", _latest.scalar_subquery()),
    else_=select(turns.c.run_id).where(turns.c.id == _OUR_TURN).scalar_subquery(),
)
_WORKFLOW = select(workflow_runs.c.workflow).where(workflow_runs.c.id == _RUN).scalar_subquery()
BOOKED = (
    *("workspace", "session_id", "turn_id", "agent", "model", "kind", "tool_calls", "cost_nano", "at_ms"),
    *("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "llm_calls"),
)
"""What an entry of the ledger is made of, beside the user of the session, and the key and the run of the turn."""
_known = {"user": _USER, "key_id": _KEY, "run_id": _RUN, "workflow": _WORKFLOW}
ENTER = PreparedStatement(insert(usage).values(**_known, **{name: bindparam(name) for name in BOOKED}))
COUNT_USES = PreparedStatement(insert(use_deltas), columns=pattern_uses.c.keys())
NOTE = PreparedStatement(insert(audit_inbox), columns=[name for name in audit_inbox.c.keys() if name != "n"])  # noqa: SIM118 - no dict
ENQUEUE_TRACE = PreparedStatement(insert(trace_outbox), columns=("turn_id", "span_n", "added_ms"))
SET_TRACE = PreparedStatement(update(turns).where(turns.c.id == _OUR_ID).values(trace=bindparam("known")))

# It is looked at: one snapshot.

FIRST = PreparedStatement(
    select(turns.c.started_ms).where(turns.c.lane == _OUR_LANE, unfinished()).order_by(turns.c.seq).limit(1)
)
"""When the first unfinished turn of a lane began; None: it has not."""
TURN = PreparedStatement(select(*turn_columns()).where(turns.c.id == _OUR_ID, of_session(turns.c.lane)))
AHEAD = PreparedStatement(
    select(func.count().label("turns")).where(
        turns.c.lane == _OUR_LANE, turns.c.seq < bindparam("our_seq"), unfinished()
    )
)
