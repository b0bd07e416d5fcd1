"""What agents are made to do together, and what the model says for it."""

from pathlib import Path

from loom_worker.agents import load
from loom_worker.core.values.json import Json
from loom_worker.llm.anthropic_stream import Assembly
from tests.chaos.agent_plan import FRONT, MAY_CALL, SAYS, agent_files, plan_agents
from tests.chaos.marks import child_mark
from tests.chaos.model_script import reply_for, script_of
from tests.chaos.world import AGENT, FULL_MEMORY

REF = f"ref_{'a' * 32}"


def asked(question: str, *said: Json) -> list[tuple[str, Json]]:
    """The calls in the answer to a question, each with its arguments."""
    messages = [{"role": "user", "content": question}, *said]
    body: Json = {"model": "claude-test", "max_tokens": 4_000, "tools": [{"name": "delegate"}], "messages": messages}
    assembly = Assembly("claude-test")
    for event in reply_for(script_of(question), 1, body).events:
        assembly.feed(event)
    return [(use.name, use.arguments) for use in assembly.reply().tool_uses]


def test_what_is_one_level_down_is_told_to_each_agent_under_a_mark_of_its_own() -> None:
    told = asked("T00001 tools=delegate@ann,ask_agent@ben:2 >words=3 >>tools=note")
    first, second = child_mark("T00001-1-0"), child_mark("T00001-1-1")
    assert first != second
    assert told == [
        ("delegate", {"agent": "ann", "task": f"{first} words=3 >tools=note"}),
        ("ask_agent", {"agent": "ben", "message": f"{second} words=3 >tools=note", "reply_timeout_s": 2.0}),
    ]
    assert script_of(f"{first} words=3 >tools=note").mark == first


def test_messages_are_sent_and_waited_for() -> None:
    assert asked("T00001 tools=send_agent@ann:control,receive_messages:4,receive_messages") == [
        ("send_agent", {"agent": "ann", "message": "News T00001-1-0.", "kind": "control"}),
        ("receive_messages", {"wait_s": 4.0}),
        ("receive_messages", {}),
    ]


def test_the_references_of_a_turn_are_passed_on_if_the_question_says_so() -> None:
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": f"It is {REF}."}
    said: list[Json] = [{"role": "assistant", "content": "One."}, {"role": "user", "content": [result]}]
    ((_, told),) = asked("T00001 tools=send_agent@ann passes", *said)
    assert told["message"] == f"News T00001-1-0. {REF}"
    ((_, told),) = asked("T00001 tools=send_agent@ann", *said)
    assert told["message"] == "News T00001-1-0."


def test_there_are_turns_of_every_kind_and_some_that_are_cancelled_later() -> None:
    jobs = [job for dealt in plan_agents(200, sessions=9, seed=1).values() for job in dealt]
    assert {job.says for job in jobs} == SAYS.keys()
    assert {job.agent for job in jobs} == {FRONT}
    cancelled = [job for job in jobs if job.cancel_action]
    assert 10 < len(cancelled) < 60
    assert all((job.cancel_after_s > 0) == bool(job.cancel_action) for job in jobs)


def test_loom_reads_whom_the_agents_may_call(tmp_path: Path) -> None:
    for name, more in agent_files().items():
        text = AGENT.replace("NAME", name).replace("SYSTEM", "Help.").replace(", custom: [user_tools.py]", "")
        (tmp_path / f"{name}.yaml").write_text(text.replace("pause, die", "") + FULL_MEMORY + more)
    read = load.load(tmp_path).agents
    assert {name: tuple(read[name].may_call) for name in MAY_CALL} == MAY_CALL
