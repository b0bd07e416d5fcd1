"""The loop, on a stage of real parts: limits, budgets and what is sent to the model."""

from dataclasses import replace

from loom_worker.core.errors import ProviderFailed
from loom_worker.core.settings import LimitSettings
from loom_worker.core.text import fence
from loom_worker.core.values.channels import Channel
from loom_worker.core.values.sessions import NewSession
from loom_worker.core.values.spans import span_id_of
from loom_worker.store.agent_errors import AgentErrors
from loom_worker.turn.agent_runtime import PromptContext
from loom_worker.turn.context import RULES
from tests.support.models import says, wants
from tests.support.stage import WORKSPACE, Stage, StageKnowledge

ONE = ("add", {"a": 1, "b": 1})


def limit(stage: Stage, **limits: int) -> None:
    stage.settings = replace(stage.settings, limits=LimitSettings(**limits))


def test_a_provider_that_refuses_fails_the_turn_with_its_words(stage: Stage) -> None:
    turn = stage.answered(
        [lambda: stage.model.asked[-1].watch.asked("played"), ProviderFailed("The key is not valid.")]
    )
    assert (turn.status, turn.reason) == ("failed", "provider")
    assert turn.error is not None
    kept = AgentErrors(stage.database).get(WORKSPACE, turn.error["error_id"])
    assert turn.error == {"type": "provider", "message": "The key is not valid.", "error_id": kept.id}
    assert (kept.session_id, kept.turn_id, kept.tool_name) == (turn.session_id, turn.id, "")
    assert kept.span_id == span_id_of(turn.id, "llm", "0")
    assert kept.raw_error["message"] == "The key is not valid."
    assert stage.model.name in kept.raw_error["detail"]
    assert [chat.text for chat in stage.said()] == ["How many?"]
    assert stage.live(turn) == stage.rebuilt(turn)


def test_a_message_larger_than_the_window_fails_the_turn_and_asks_nobody(stage: Stage) -> None:
    turn = stage.serve(stage.submit("x" * 1_000_000), stage.worker("w1"))
    assert (turn.status, turn.reason, stage.model.asked) == ("failed", "context", [])
    assert "LOOM_MAX_CONTEXT_TOKENS" in str(turn.error)


def test_the_lane_goes_on_after_a_turn_that_failed(stage: Stage) -> None:
    stage.model.scenes = [[ProviderFailed("No.")], says("Yes.")]
    one, two, worker = stage.submit("one"), stage.submit("two"), stage.worker("w1")
    stage.serve(one, worker)
    assert stage.serve(two, worker).output_text == "Yes."


def test_calls_beyond_the_limits_are_not_run_and_the_model_hears_why(stage: Stage) -> None:
    limit(stage, max_calls_per_reply=1)
    turn, worker = stage.served(wants(ONE, ONE), says("Done."))
    stage.answer_calls(turn, worker)
    stage.serve(turn, worker)
    contents = [outcome.content for outcome in stage.model.asked[1].messages[-1].outcomes]
    assert contents == [fence(turn.id, text) for text in ("2", "Not run: at most 1 tool calls in one reply.")]
    assert stage.ran == ["add"]


def test_the_last_allowed_call_of_the_model_keeps_its_tools_listed_but_must_be_text(stage: Stage) -> None:
    stage.agent = replace(stage.agent, max_llm_calls=2)
    stage.answered(wants(("note", {})), says("Noted."))
    assert [request.may_call_tools for request in stage.model.asked] == [True, False]
    assert stage.model.asked[0].tools == stage.model.asked[1].tools != ()


def test_a_model_that_never_answers_ends_the_turn_incomplete(stage: Stage) -> None:
    stage.agent = replace(stage.agent, max_llm_calls=3)
    stage.model.scenes = [wants(("note", {}), first_id=n) for n in (1, 2, 3, 4)]
    turn = stage.serve(stage.submit(), stage.worker("w1"))
    assert (turn.status, turn.reason, turn.usage.llm_calls) == ("incomplete", "limits", 4)


def test_an_agent_may_call_its_own_tools_alone(stage: Stage) -> None:
    stage.agent = replace(stage.agent, tools=("note",))
    stage.answered(wants(ONE), says("I may not."))
    assert [tool.name for tool in stage.model.asked[0].tools] == ["note"]
    assert "not allowed" in stage.model.asked[1].messages[-1].outcomes[0].content


def test_the_system_text_stays_as_first_sent_whatever_becomes_of_the_agent(stage: Stage) -> None:
    stage.model.scenes = [says("One."), says("Two.")]
    worker = stage.worker("w1")
    stage.serve(stage.submit(), worker)
    stage.agent = replace(stage.agent, system_prompt="You are someone else.")
    stage.serve(stage.submit(), worker)
    assert (
        stage.model.asked[0].system
        == stage.model.asked[1].system
        == f"You help.\n\n{RULES}\n\nThe database you work on:\norders(id, total)"
    )


def test_the_pattern_beside_a_message_is_sent_again_as_it_was_first_sent(stage: Stage) -> None:
    stage.answered(says("One."), says("Two."))
    later = stage.worker("w2", knowledge=StageKnowledge(PromptContext("Today is Sunday.")))
    stage.serve(stage.submit(), later)
    contexts = [message.context for message in stage.model.asked[1].messages if message.role == "user"]
    assert contexts == ["Today is Saturday.", "Today is Sunday."]


def test_the_user_of_a_session_is_known_to_the_model(stage: Stage) -> None:
    stage.sessions.create(WORKSPACE, NewSession(id="s1", user="Ada", kernel={"goals": ["sell"]}), now_ms=1)
    stage.answered(says("Hello Ada."))
    assert stage.model.asked[0].memory.endswith("User: Ada\nGoals:\n- sell")
    assert "Ada" not in stage.model.asked[0].system


def test_the_time_of_all_owners_counts_but_not_the_waiting(stage: Stage) -> None:
    turn, worker = stage.served(wants(ONE), says("2"))
    stage.now_ms += 3_600_000
    stage.answer_calls(turn, worker)
    turn = stage.serve(turn, worker)
    assert turn.status == "completed"
    assert 0 <= turn.run_ms < 60_000


def test_an_answer_is_given_as_its_channel_shows_it(stage: Stage) -> None:
    sms = Channel("sms", "plain", 60)
    turn = stage.answered(
        says("**Yes**, the shop is open today.\n\nSee [the hours](https://shop.example)."), channel=sms
    )
    assert turn.output_parts == ("Yes, the shop is open today.", "See the hours (https://shop.example).")
    assert (turn.output_text or "").startswith("**Yes**")
    assert stage.live(turn) == stage.rebuilt(turn)
