"""The adapter against an agent that the protocol's own SDK serves."""

from collections.abc import Iterator

import pytest

from loom_worker.core.errors import Interrupted, ProviderFailed
from loom_worker.core.values.chat import ChatMessage, Reply, ReplyEvent, Request, TextDelta
from loom_worker.llm.a2a import A2aAgent
from loom_worker.llm.a2a_http import RemoteAddress
from tests.support.a2a_server import Parrot, parrot
from tests.support.until import until

pytestmark = pytest.mark.integration
SERVED = [(True, "1.0"), (False, "1.0"), (True, "0.3"), (False, "0.3")]
"""Whether the agent streams, and which version it speaks."""


@pytest.fixture(params=SERVED, ids=lambda served: f"{'streaming' if served[0] else 'polled'}-{served[1]}")
def served(request: pytest.FixtureRequest) -> Iterator[tuple[str, Parrot]]:
    streaming, version = request.param
    with parrot(streaming=streaming, version=version) as found:
        yield found


def agent(url: str) -> A2aAgent:
    return A2aAgent("parrot", RemoteAddress(url, allow_private=True, timeout_s=20.0))


def said(text: str, *before: ChatMessage, key: str = "turn_1.0") -> Request:
    return Request("You are Loom.", (*before, ChatMessage("user", text, context="A pattern.")), key=key)


def reply_of(events: list[ReplyEvent]) -> Reply:
    *pieces, reply = events
    assert isinstance(reply, Reply)
    assert "".join(piece.text for piece in pieces if isinstance(piece, TextDelta)) == reply.text
    return reply


def test_the_user_s_message_alone_is_sent_and_the_answer_is_its_text(served: tuple[str, Parrot]) -> None:
    url, remote = served
    reply = reply_of(list(agent(url).reply(said("hello"))))
    assert (reply.text, reply.stop_reason, reply.model) == ("You said: hello", "end_turn", "a2a/parrot")
    assert [(message_id, text) for message_id, _, text in remote.heard] == [("turn_1.0", "hello")]


def test_the_next_turn_goes_on_in_the_same_context(served: tuple[str, Parrot]) -> None:
    url, remote = served
    first = reply_of(list(agent(url).reply(said("one"))))
    before = ChatMessage("assistant", first.text, opaque=first.opaque)
    reply_of(list(agent(url).reply(said("two", before, key="turn_2.0"))))
    [(_, context, _), (_, same, _)] = remote.heard
    assert context == same != ""


def test_a_question_is_the_reply_and_the_next_message_answers_it(served: tuple[str, Parrot]) -> None:
    url, remote = served
    question = reply_of(list(agent(url).reply(said("ask me"))))
    assert question.text == "Which colour?"
    before = ChatMessage("assistant", question.text, opaque=question.opaque)
    assert reply_of(list(agent(url).reply(said("blue", before, key="turn_2.0")))).text == "You said: blue"
    task_id = question.opaque[0]["task_id"]
    assert task_id
    assert len({context for _, context, _ in remote.heard}) == 1


def test_a_task_that_fails_is_a_refusal_with_its_reason(served: tuple[str, Parrot]) -> None:
    with pytest.raises(ProviderFailed, match="failed: I cannot"):
        list(agent(served[0]).reply(said("fail")))


def test_a_message_in_place_of_a_task_is_the_reply(served: tuple[str, Parrot]) -> None:
    assert reply_of(list(agent(served[0]).reply(said("only a message")))).text == "No task, a message."


def test_what_nobody_wants_any_more_is_cancelled_there() -> None:
    wanted = [True]
    with parrot() as (url, remote):
        request = Request("", (ChatMessage("user", "hang"),), is_given_up=lambda: not wanted[0], key="turn_1.0")
        events = agent(url).reply(request)
        assert next(events) == TextDelta("I begin")
        wanted.clear()
        wanted.append(False)
        with pytest.raises(Interrupted):
            list(events)
        until(remote.cancelled.is_set, 10, "the task is cancelled")


def test_a_turn_that_goes_on_elsewhere_does_not_cancel_its_task() -> None:
    with parrot() as (url, remote):
        request = Request("", (ChatMessage("user", "hang"),), key="turn_1.0")
        events = agent(url).reply(request)
        assert next(events) == TextDelta("I begin")
        events.close()  # type: ignore[attr-defined]  # it is a generator
        assert not remote.cancelled.is_set()
