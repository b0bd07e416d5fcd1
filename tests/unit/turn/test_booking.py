"""What a call used that came to no reply is booked as far as the provider told, once, whoever books it."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from loom_worker.core.errors import LoomError, Overloaded, ProviderFailed, StreamBroken
from loom_worker.core.values.chat import Restarted, TextDelta, Usage
from loom_worker.core.values.sessions import NewSession
from loom_worker.core.values.turns import Turn
from loom_worker.llm.anthropic import Anthropic
from loom_worker.llm.retry import Retrying
from loom_worker.store.ledger import Ledger
from loom_worker.turn.agent_runtime import AgentRuntime
from tests.support.messages_server import Cut, Hang, MessagesServer, Say, failure
from tests.support.messages_wire import answer, sse
from tests.support.models import ONE_CALL, Beat, Killed, says, wants
from tests.support.stage import START_MS, WORKSPACE, Stage
from tests.support.until import until
from tests.unit.turn.test_budgets import limited, used

TOLD = Usage(input_tokens=700, output_tokens=1, cache_read_tokens=70, cache_write_tokens=7, cost_usd=None, llm_calls=1)
SAID = "Half of it"
"""Three tokens on a stage."""
BROKEN = replace(TOLD, output_tokens=3)
MODEL = "claude-haiku-4-5"
WIRE = {"input_tokens": 777, "output_tokens": 2}


def begun(stage: Stage, *beats: Beat, usage: Usage = TOLD) -> list[Beat]:
    """A call of which the provider tells what it has read, and that says a few words; then other beats."""

    def watched(do: Callable[[], object]) -> Beat:
        return do

    start = watched(lambda: stage.model.asked[-1].watch.asked())
    told = watched(lambda: stage.model.asked[-1].watch.told(usage))
    return [start, told, TextDelta(SAID[:4]), TextDelta(SAID[4:]), *beats]


def booked(stage: Stage, turn: Turn) -> list[int]:
    """Tokens by the turn, the session and the ledger."""
    session = stage.sessions.get(WORKSPACE, turn.session_id)
    ledger = Ledger(stage.database).totals(WORKSPACE, group_by="turn")
    names = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
    return [turn.usage.tokens, session.usage.tokens, *(sum(row[name] for name in names) for row in ledger)]


def again(stage: Stage, turn: Turn, worker: str = "w1") -> Turn:
    """Ask once more after the wait for the provider."""
    stage.now_ms += 60_000
    stage.lanes.alert(turn.lane)
    return stage.serve(turn, stage.worker(worker))


def died(stage: Stage, turn: Turn, worker: str) -> None:
    """A worker dies once readers have seen what the model said."""

    def shown() -> str:
        return "".join(str(event.data.get("text", "")) for event in stage.live(turn))

    before = shown()
    stage.model.scenes = [begun(stage, lambda: until(lambda: shown() == before + SAID, 5, "it is shown"), Killed())]
    with pytest.raises(Killed):
        stage.serve(turn, stage.worker(worker))
    stage.alive.discard(worker)
    stage.lapse(turn)


def test_a_cancelled_call_costs_what_the_stream_told_at_its_start(stage: Stage) -> None:
    turn, worker = stage.submit(), stage.worker("w1")
    stage.model.name = MODEL
    stage.model.scenes = [begun(stage, lambda: stage.cancel(turn, "interrupt", worker), TextDelta("!"))]
    turn = stage.serve(turn, worker)
    assert (turn.status, replace(turn.usage, cost_usd=None)) == ("cancelled", BROKEN)
    assert turn.usage.cost_usd is not None
    assert turn.usage.cost_usd > 0
    assert booked(stage, turn) == [BROKEN.tokens] * 3


@pytest.mark.parametrize("level", ["session", "agent", "workspace"])
@pytest.mark.parametrize("error", [StreamBroken("Not complete after 120 s."), Overloaded("busy", None)])
def test_a_call_that_broke_is_booked_once_and_settles_what_was_set_aside(
    stage: Stage, level: str, error: LoomError
) -> None:
    turn = limited(stage, level, {"tokens": 100_000})
    stage.model.scenes = [begun(stage, error), says("Whole.")]
    stage.serve(turn, stage.worker("w1"))
    key = {"session": turn.lane, "agent": "default"}.get(level, WORKSPACE)
    assert used(stage, level, key)["tokens"] == stage.turn(turn).usage.tokens == BROKEN.tokens
    turn = again(stage, turn)
    assert (turn.status, turn.usage.llm_calls) == ("completed", 2)
    assert booked(stage, turn) == [BROKEN.tokens + ONE_CALL.tokens] * 3
    assert used(stage, level, key)["tokens"] == turn.usage.tokens
    assert [event.id for event in stage.live(turn)] == [event.id for event in stage.rebuilt(turn)]


def test_tries_before_a_reply_are_booked_with_it_and_their_model_is_the_one_that_was_asked(stage: Stage) -> None:
    turn = limited(stage, "session", {"tokens": 100_000})
    scene = begun(stage, Restarted("cut"), *begun(stage, *wants(("note", {}))))
    stage.model.scenes = [scene, says("Done.")]
    turn = stage.serve(turn, stage.worker("w1"))
    assert (turn.status, turn.usage.tokens) == ("completed", BROKEN.tokens + 2 * ONE_CALL.tokens)
    assert [row["key"] for row in Ledger(stage.database).totals(WORKSPACE, group_by="model")] == ["played", "played-1"]
    assert [step.payload["usage"]["input_tokens"] for step in stage.journal(turn) if step.kind == "reply"] == [10, 10]


def test_a_turn_that_fails_for_good_has_what_it_used(stage: Stage) -> None:
    turn = limited(stage, "session", {"tokens": 100_000})
    stage.model.scenes = [begun(stage, ProviderFailed("The key is not valid."))]
    turn = stage.serve(turn, stage.worker("w1"))
    assert (turn.status, booked(stage, turn)) == ("failed", [BROKEN.tokens] * 3)
    assert used(stage, "session", turn.lane)["tokens"] == BROKEN.tokens


@pytest.mark.parametrize("deaths", [1, 2])
def test_calls_of_workers_that_died_are_booked_once_by_the_one_that_goes_on(stage: Stage, deaths: int) -> None:
    stage.agent = replace(stage.agent, budget={"tokens": 100_000})
    turn = stage.submit(max_attempts=9)
    for n in range(deaths):
        died(stage, turn, f"dies {n}")
    stage.model.scenes = [says("Whole.")]
    turn = stage.serve(turn, stage.worker("lives"))
    assert (turn.status, turn.output_text, turn.usage.llm_calls) == ("completed", "Whole.", deaths + 1)
    assert booked(stage, turn) == [deaths * BROKEN.tokens + ONE_CALL.tokens] * 3
    assert used(stage, "agent", "default")["tokens"] == turn.usage.tokens


def test_what_a_dead_worker_s_call_used_is_known_to_no_reader(stage: Stage) -> None:
    turn = stage.submit()
    died(stage, turn, "w1")
    assert next(event.data for event in stage.live(turn) if event.type == "output_text.delta").keys() == {"text"}
    stage.model.scenes = [says("Whole.")]
    turn = stage.serve(turn, stage.worker("w2"))
    assert [event.id for event in stage.live(turn)] == [event.id for event in stage.rebuilt(turn)]


def test_a_turn_that_kills_its_workers_is_given_up_and_booked_nevertheless(stage: Stage) -> None:
    turn = stage.submit(max_attempts=2)
    died(stage, turn, "w1")
    stage.book.alone_status = -9
    stage.serve(turn, stage.worker("w2"))
    turn = stage.serve(turn, stage.worker("w3"))
    assert (turn.reason, booked(stage, turn)) == ("dead", [BROKEN.tokens] * 3)


def test_a_session_that_is_deleted_meanwhile_leaves_what_was_used_in_the_ledger(stage: Stage) -> None:
    turn = stage.submit()
    stage.model.scenes = [begun(stage, StreamBroken("cut"))]
    stage.serve(turn, stage.worker("w1"))
    stage.sessions.delete(WORKSPACE, turn.session_id)
    [row] = Ledger(stage.database).totals(WORKSPACE, group_by="turn")
    assert (row["input_tokens"], row["output_tokens"]) == (BROKEN.input_tokens, BROKEN.output_tokens)


class Served(Stage):
    """A stage whose model stands behind a real server, with retries."""

    server: MessagesServer
    timeout_s = 30.0

    def runtime(self) -> AgentRuntime:
        adapter = Anthropic(model=MODEL, base_url=self.server.url, call_timeout_s=self.timeout_s)
        runtime = super().runtime()
        model = Retrying(adapter, pause=lambda *_: None, chance=lambda: 0.0, clock=lambda: 0.0)
        return replace(runtime, model=model)


@pytest.mark.parametrize("broken", ["cut", "late", "error"])
def test_what_a_real_stream_told_before_it_broke_is_booked_under_the_name_that_was_asked(
    stage: Stage, broken: str
) -> None:
    served = Served(stage.settings, stage.database, stage.redis)
    served.timeout_s = 1.5 if broken == "late" else 30.0
    body = sse(answer("one two", usage=WIRE, model="/models/served.gguf"))
    after = body.index(b"event: content_block_stop")
    with MessagesServer() as served.server:
        bad = {
            "cut": Cut(body, after),
            "late": Hang(served.server.stopping, body, after),
            "error": Cut(body[:after] + sse([{"type": "error", "error": {"type": "overloaded_error"}}]), 10**6, True),
        }
        served.server.then(bad[broken], failure(500, "api_error"), Say("Whole.", usage=WIRE, model="alias"))
        turn = served.serve(served.submit(), served.worker("w1"))
    assert (turn.status, turn.usage.input_tokens, turn.usage.llm_calls) == ("completed", 2 * 777, 2)
    [row] = Ledger(stage.database).totals(WORKSPACE, group_by="model")
    assert (row["key"], row["input_tokens"]) == (MODEL, 2 * 777)
    assert row["cost_usd"] > 2 * 777 / 1_000_000
