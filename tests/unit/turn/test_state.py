"""A turn being worked on: what is new is told apart from what is saved."""

from loom_worker.core.values.budgets import usd
from loom_worker.core.values.calls import Call
from loom_worker.core.values.chat import Reply, ToolUse, Usage
from loom_worker.core.values.sessions import Choice
from loom_worker.core.values.turns import Claim, Step, Turn
from loom_worker.turn.state import TurnState
from loom_worker.turn.transcript import tool_uses

TURN = Turn("turn_1", "lane", "s1", "w", "default", 1, "in_progress", "How many?", 0)
REPLY = Reply(
    "Hm", "tool_use", Usage(output_tokens=3, cost_usd=usd(0.5), llm_calls=1), "m", (ToolUse("t", "add", {"a": 1}),)
)
CALL = Call("t", "add", {"a": 1}, 0, 1)


def begun(*steps: Step) -> TurnState:
    return TurnState.begin(Claim(TURN, steps, rom=None, kernel={}, choice=Choice(), user=None))


def test_only_what_is_new_is_to_be_saved() -> None:
    work = begun(Step(0, "matched", {"context": "Today."})).replied(REPLY, (CALL,), first_token_ms=7, estimated=100)
    assert ([step.n for step in work.unsaved_steps], work.unsaved_calls, work.has_got_on) == ([1], (CALL,), False)
    saved = work.saved()
    assert (saved.unsaved_steps, saved.unsaved_calls, saved.has_unsaved_spending, saved.has_got_on) == (
        (),
        (),
        False,
        True,
    )


def test_a_reply_survives_the_journal() -> None:
    step = begun().replied(REPLY, (CALL,), first_token_ms=None, estimated=100).replies[0]
    assert tool_uses(step) == REPLY.tool_uses
    assert Usage.from_json(step.payload["usage"]) == REPLY.usage


def test_the_first_token_is_the_first_of_the_turn() -> None:
    work = (
        begun()
        .replied(REPLY, (), first_token_ms=None, estimated=100)
        .replied(REPLY, (), first_token_ms=9, estimated=100)
    )
    assert work.replied(REPLY, (), first_token_ms=99, estimated=100).first_token_ms == 9


def test_costs_add_up_and_an_unknown_one_stays_unknown() -> None:
    work = (
        begun()
        .replied(REPLY, (), first_token_ms=None, estimated=100)
        .replied(REPLY, (), first_token_ms=None, estimated=100)
    )
    assert (work.usage.cost_usd, work.usage.llm_calls) == (1.0, 2)
    unknown = Reply("", "end_turn", Usage(cost_usd=None, llm_calls=1), "m")
    assert work.replied(unknown, (), first_token_ms=None, estimated=100).usage.cost_usd is None


def test_nothing_told_is_no_step() -> None:
    assert begun().with_events(None).steps == ()
