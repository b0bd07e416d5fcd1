"""One of everything that somebody can own, made through the real store, with the ids by which it can be asked for."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from io import BytesIO

from sqlalchemy import insert

from loom_worker.core.values.api_keys import ALL_SCOPES, KeyHolder, NewKey
from loom_worker.core.values.calls import Call
from loom_worker.core.values.channels import Pairing
from loom_worker.core.values.facts import FactFilter, LearnedFacts, StatedFact
from loom_worker.core.values.ids import new_id
from loom_worker.core.values.json import Json
from loom_worker.core.values.runs import NewRun, Run
from loom_worker.core.values.sessions import NewSession
from loom_worker.core.values.tenants import WorkspaceUser
from loom_worker.core.values.tools import Caller
from loom_worker.core.values.turns import NewTurn
from loom_worker.core.values.webhooks import Webhook
from loom_worker.store.agent_errors import NewAgentError
from loom_worker.store.engines.engine import WHOLE
from loom_worker.store.fact_changes import learn
from loom_worker.store.sessions import of_lane
from loom_worker.store.tables import memory_snapshots
from tests.support.agent_messages import dead
from tests.support.callers import CALLER
from tests.support.runs import workflow
from tests.support.web_stage import WebStage

GATED: Json = {
    "type": "pipeline",
    "initial_prompt": "{{input}}",
    "stages": [{"agent_id": "default", "prompt_template": "{{previous}}", "approval": {}}],
}
"""A workflow whose only stage a person looks at."""


@dataclass(frozen=True)
class Belongings:
    """What one holder of a key owns."""

    holder: KeyHolder
    secret: str
    """Of a key of the holder that may do everything."""
    marker: str
    """Stands in everything that is listed of these things."""
    caller: Caller
    """On whose behalf a tool runs in the session."""
    ids: Mapping[str, str]
    """By the name that the parameters of the API's paths have for them."""


def belongings(stage: WebStage, holder: KeyHolder, marker: str) -> Belongings:
    """A session with turns, messages, a call that waits for a person, a run, a message to an agent and so on; a key."""
    service, worker, tenant = stage.service, stage.worker, holder.tenant
    session_id = f"s-{marker}"
    lane = service.create_session(tenant, NewSession(id=session_id, title=marker)).lane
    hook = Webhook(f"https://{marker}.example/")
    ended, _ = service.submit(tenant, session_id, NewTurn(f"{marker} asks", webhook=hook), agent=None)
    worker.finish(ended.id, f"{marker} is told")
    waiting, _ = service.submit(tenant, session_id, NewTurn(f"{marker} pays"), agent=None)
    call = Call(f"toolu_{marker}", "pay", {"amount": 7}, 0, 1, approval="waiting", approve_by_ms=1)
    worker.ask_person(waiting.id, call)
    caller = replace(CALLER, lane=lane, session_id=session_id, workspace=holder.workspace, turn_id=waiting.id)
    stored = service.references.keep(f'[{{"of": "{marker}"}}]', "application/json", caller, tool="look", count=len)
    assert stored is not None
    failed = NewAgentError(lane, waiting.id, "look", marker, {"message": f"{marker} failed"})
    whole = replace(holder, scopes=ALL_SCOPES)
    _, secret = service.keys.create(whole, NewKey("asks", ("admin",)))
    key, _ = service.keys.create(whole, NewKey(marker, ("read",)))
    lane_of_user = lane
    if holder.user is None:
        lane_of_user = service.create_session(tenant, NewSession(id=f"u-{marker}", user=f"user-{marker}")).lane
    user = holder.user or f"user-{marker}"
    pairing = Pairing(
        new_id("pair_"), holder.workspace, f"chat-{holder.user}", marker, user, created_ms=1_795_253_400_000
    )
    return Belongings(
        holder,
        secret,
        marker,
        caller,
        {
            "session_id": session_id,
            "message_id": service.messages.page(tenant, session_id, limit=1, after=None).items[0].id,
            "turn_id": waiting.id,
            "name": "gated",
            "run_id": _run(stage, holder, marker).id,
            "stage_id": "stages.0.approval",
            "call_id": call.id,
            "error_id": service.agent_errors.store(failed, now_ms=1_795_253_400_000),
            "ref": stored.reference.id,
            "delivery_id": service.outbox.page(tenant, limit=1, after=None).items[0].id,
            "agent_message_id": dead(stage.database, waiting, f"{marker} tells"),
            "snapshot_id": _snapshot(stage, lane, session_id, marker),
            "key_id": key.id,
            "pairing_id": service.pairings.add(pairing, by=holder.actor).id,
            "workspace": holder.workspace,
            "user": user,
            "file_id": service.files.add(tenant, BytesIO(marker.encode()), f"{marker}.txt").id,
            "fact_id": _fact(stage, lane_of_user, WorkspaceUser(holder.workspace, user), marker),
        },
    )


def _fact(stage: WebStage, lane: str, who: WorkspaceUser, marker: str) -> str:
    """A fact that a session of the user says."""
    said = StatedFact("user", "likes", marker, "msg_1", n=1, said_ms=1_795_253_400_000)
    with stage.database.write(lock=WHOLE) as tx:
        learn(tx, of_lane(tx, lane), LearnedFacts("user", (said,)), now_ms=1_795_253_400_000)
    return stage.service.facts.page(who, FactFilter(), limit=1, after=None).items[0].id


def _run(stage: WebStage, holder: KeyHolder, marker: str) -> Run:
    """A run that waits for a person."""
    runs, tenant = stage.service.runs, holder.tenant
    stage.workflows["gated"] = workflow(GATED, "gated", needed={"input": 1})
    run, _ = runs.start(tenant, "gated", NewRun({"input": f"{marker} asks"}, metadata={"of": marker}))
    stage.worker.finish(str(run.stages[0].turn_id), f"{marker} is told")
    runs.turn_ended(run.id)
    return runs.run(tenant, run.id)


def _snapshot(stage: WebStage, lane: str, session_id: str, marker: str) -> str:
    row = {"id": new_id("snap_"), "lane": lane, "session_id": session_id, "snapshot_type": "l2", "content": marker}
    with stage.database.write(lock=WHOLE) as tx:
        tx.execute(insert(memory_snapshots), row | {"token_count": 9, "from_n": 0, "to_n": 0, "created_ms": 0})
    return str(row["id"])
