"""A run with judged turns on budgets, made as Loom makes it, with the harness' judges."""

from dataclasses import replace
from typing import Any

from loom_worker.core.values.budgets import Settlement, usd
from loom_worker.core.values.chat import Usage
from loom_worker.core.values.json import Json
from loom_worker.core.values.judges import Panel, PanelMember, Verdict
from loom_worker.core.values.sessions import NewSession
from loom_worker.core.values.turns import Ending, Turn
from loom_worker.judge import llm
from loom_worker.judge.llm import Case
from loom_worker.llm.anthropic_request import request_body
from loom_worker.llm.anthropic_stream import Assembly
from loom_worker.store.journal import Journal
from loom_worker.store.sessions import Sessions
from loom_worker.store.verdicts import JudgedAnswer, Verdicts
from loom_worker.turn.judging import concluded, planned
from loom_worker.turn.state import TurnState
from tests.chaos import panels
from tests.chaos.model_script import script_of, verdict_for
from tests.chaos.panels import look_of
from tests.chaos.records import ModelCall, Read
from tests.chaos.unit.made import NOW_MS, WORKSPACE, Run, progress

JUDGE_MODEL = "claude-judge"
PANEL = Panel(
    (
        PanelMember("first", "llm", "Rubric of first: it says something."),
        PanelMember("second", "llm", "Rubric of second: it says it again."),
        PanelMember("words", "contains", "says:"),
    )
)
SESSION = "judged"
AGENT_BUDGETS: dict[str, Json] = {panels.JUDGED: {"tokens": 1_000_000, "day": {"usd": 500}}}
GIVEN_ANEW, PASSED = "T00011", "T00012"


def judged_run(run: Run) -> Run:
    """One turn that was given anew, one that passed at once, in a session with a budget; both were read."""
    run.agent_budgets = AGENT_BUDGETS
    new = NewSession(id=SESSION, agent=panels.JUDGED, budget={"tokens": 100_000})
    Sessions(run.database).create(WORKSPACE, new, now_ms=NOW_MS)
    for text, budget in ((f"{GIVEN_ANEW} judged=fail,pass", None), (f"{PASSED} words=3", {"tokens": 9_000})):
        turn = judged_turn(run, text, budget=budget)
        run.read.append(Read(turn.id, turn.output_text or ""))
    return run


def judged_turn(run: Run, text: str, *, budget: Json | None = None) -> Turn:
    """A turn from its acceptance to its end, judged as its directives say."""
    work = run.asked(begun(run, text, budget=budget))
    while work.open_calls:
        work = run.asked(run.ran_tools(work))
    work = judged(run, work)
    while work.is_correcting:
        work = judged(run, run.asked(work))
    return run.ended(work, Ending("completed", output_text=work.said))


def begun(run: Run, text: str, *, budget: Json | None = None) -> TurnState:
    """A turn of the judged session that is claimed."""
    claim = run.accepted(text, session=SESSION, budget=budget)
    return TurnState.begin(claim).matched("Context.", "", ())


def judged(run: Run, work: TurnState) -> TurnState:
    """The latest answer is judged."""
    return heard(run, sent(run, work))


def heard(run: Run, work: TurnState) -> TurnState:
    """All judges that were asked have looked."""
    answer, owner = work.replies[-1], answer_of(run, work)
    for verdict in work.verdicts_on(answer.n):
        Verdicts(run.database).close(owner.caller, *looked(run, work, owner, verdict))
    work = again(run, work)
    found = concluded(work, answer, PANEL, may_correct=True)
    shown = [verdict.as_json(PANEL.threshold) for verdict in work.verdicts_on(answer.n)]
    return work.concluded(answer, found.judgement, verdicts=shown, correction=found.correction)


def again(run: Run, work: TurnState) -> TurnState:
    """The turn is taken up as the database has it."""
    return TurnState.begin(run.claimed(work.turn.lane))


def sent(run: Run, work: TurnState) -> TurnState:
    """Judges are asked, and the turn is parked."""
    work = work.asked_judges(planned(PANEL, work.replies[-1], now_ms=NOW_MS))
    trace = work.claim.trace_until(NOW_MS * 1000, "parked").as_json()
    columns = {**progress(work), "held_by": None, "parked_until_ms": NOW_MS, "trace": trace}
    Journal(run.database).save(work.claim, work.unsaved, columns)
    return work.saved()


def answer_of(run: Run, work: TurnState) -> JudgedAnswer:
    """The answer that is to be judged."""
    found = Verdicts(run.database).answer(work.turn.id, work.replies[-1].n)
    assert found is not None
    return found


def looked(run: Run, work: TurnState, owner: JudgedAnswer, verdict: Verdict) -> tuple[Verdict, Settlement | None]:
    """A verdict is claimed, and its judge has looked."""
    rows, at = Verdicts(run.database), (work.turn.id, verdict.reply_n, verdict.position, verdict.sends)
    claimed = rows.claim(*at, worker="w1", now_ms=NOW_MS)
    assert claimed is not None
    if claimed.type != "llm":
        return replace(claimed, status="scored", score=1.0, finished_ms=_moment_ms(run)), None
    held = run.reserved(work.claim)
    call = judge_call(run, owner, claimed.name)
    usage = Usage(input_tokens=call.tokens - 20, output_tokens=20, cost_usd=usd(0.1), llm_calls=1)
    done = replace(claimed, status="scored", score=float(call.said), usage=usage, model=JUDGE_MODEL)
    settlement = Settlement(run.payer(work.claim), usage.amount(), held)
    return replace(done, finished_ms=_moment_ms(run)), settlement


def judge_call(run: Run, owner: JudgedAnswer, name: str, **fields: Any) -> ModelCall:
    """A judge's request, answered whole, as the model server logs it."""
    member = PANEL.member(name)
    assert member is not None
    case = Case(owner.caller.turn_id, owner.question, owner.answer, owner.results)
    asked = llm.request(case, member.criteria, budget_tokens=9_000, count=len, is_given_up=lambda: False)
    body, number = request_body(asked, JUDGE_MODEL), len(run.calls) + 1
    look = look_of(body)
    reply = verdict_for(look, script_of(look.question).judged, number, body)
    assembly = Assembly(JUDGE_MODEL)
    for event in reply.events:
        assembly.feed(event)
    assert assembly.reply().usage.tokens == reply.tokens
    call = ModelCall(number, look.mark, body, run.now_s(), run.now_s(), 200, "", True, None, said=reply.text)
    run.calls.append(replace(call, tokens=reply.tokens, **fields))
    return run.calls[-1]


def _moment_ms(run: Run) -> int:
    return int(run.now_s() * 1000)
