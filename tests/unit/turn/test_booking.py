"""Calls that came to no reply are booked as far as the provider told what they used, once, whoever books them."""

from dataclasses import replace

import pytest

from loom_worker.core.errors import Interrupted, ProviderFailed, StreamBroken
from loom_worker.core.values.chat import ChatMessage, Request, Restarted, TextDelta, Usage
from loom_worker.core.values.turns import Turn
from loom_worker.llm.anthropic import Anthropic
from loom_worker.llm.prices import cost_usd
from loom_worker.llm.retry import Retrying
from loom_worker.store.ledger import Ledger
from loom_worker.turn.waits import NOTED_AFTER_MS
from tests.support.messages_server import Cut, Hang, MessagesServer, Say, failure
from tests.support.messages_wire import answer, sse
from tests.support.models import ONE_CALL, Beat, Killed, says, wants
from tests.support.stage import WORKSPACE, Stage
from tests.support.until import until
from tests.unit.turn.test_budgets import limited, used

TOLD = Usage(input_tokens=700, output_tokens=1, cache_read_tokens=70, cache_write_tokens=7, cost_usd=None, llm_calls=1)
# A last letter that could begin the mark of a fence is held back from readers: a vowel cannot.
SAID, BROKEN = "Half of me", replace(TOLD, output_tokens=3)
ASKED = Request("", (ChatMessage("user", "Begin."),))
BUDGET, WIRE = {"tokens": 100_000}, {"input_tokens": 777, "output_tokens": 2}


def begun(stage: Stage, *beats: Beat) -> list[Beat]:
    watch = lambda: stage.model.asked[-1].watch  # noqa: E731
    return [lambda: watch().asked(stage.model.name), lambda: watch().told(TOLD), TextDelta(SAID), *beats]


def booked(stage: Stage, turn: Turn) -> set[int]:
    """Tokens by the turn, the session and the ledger."""
    [row] = Ledger(stage.database).totals(WORKSPACE, group_by="turn")
    ledger = sum(row[f"{name}_tokens"] for name in ("input", "output", "cache_read", "cache_write"))
    return {turn.usage.tokens, stage.sessions.get(WORKSPACE, turn.session_id).usage.tokens, ledger}


def test_a_cancelled_call_costs_what_the_stream_told_at_its_start(stage: Stage) -> None:
    turn, worker = stage.submit(), stage.worker("w1")
    stage.model.name = "claude-haiku-4-5"
    stage.model.scenes = [begun(stage, lambda: stage.cancel(turn, "interrupt", worker), TextDelta("!"))]
    turn = stage.serve(turn, worker)
    assert (turn.status, booked(stage, turn)) == ("cancelled", {BROKEN.tokens})
    assert turn.usage == replace(BROKEN, cost_usd=cost_usd("claude-haiku-4-5", BROKEN))


def test_a_call_that_broke_is_booked_once_and_settles_what_was_set_aside(stage: Stage) -> None:
    turn, worker = limited(stage, "session", BUDGET), stage.worker("w1")
    stage.model.scenes = [begun(stage, StreamBroken("Not complete after 120 s.")), says("Whole.")]
    turn = stage.serve(turn, worker)
    assert used(stage, "session", turn.lane)["tokens"] == turn.usage.tokens == BROKEN.tokens
    stage.now_ms += 60_000
    stage.lanes.alert(turn.lane)
    turn = stage.serve(turn, worker)
    assert (turn.output_text, turn.usage.llm_calls) == ("Whole.", 2)
    assert booked(stage, turn) == {BROKEN.tokens + ONE_CALL.tokens}
    assert used(stage, "session", turn.lane)["tokens"] == turn.usage.tokens


def test_tries_before_a_reply_and_before_a_refusal_are_booked(stage: Stage) -> None:
    replied = begun(stage, Restarted("cut"), *begun(stage, *wants(("note", {}))))
    stage.model.scenes = [replied, begun(stage, ProviderFailed("The key is not valid."))]
    turn = stage.serve(limited(stage, "session", BUDGET), stage.worker("w1"))
    assert (turn.status, booked(stage, turn)) == ("failed", {2 * BROKEN.tokens + ONE_CALL.tokens})
    assert [row["key"] for row in Ledger(stage.database).totals(WORKSPACE, group_by="model")] == ["played"]


@pytest.mark.parametrize(("deaths", "most"), [(1, 3), (2, 9), (1, 2)])
def test_calls_of_workers_that_died_are_booked_once_by_who_goes_on(stage: Stage, deaths: int, most: int) -> None:
    stage.agent = replace(stage.agent, budget=BUDGET)
    turn = stage.submit(max_attempts=most)
    for n in range(1, deaths + 1):
        shown = lambda n=n: "".join(event.data.get("text", "") for event in stage.live(turn)).count(SAID) == n  # noqa: E731
        stage.model.scenes = [begun(stage, lambda shown=shown: until(shown, 5, "readers see it"), Killed())]
        with pytest.raises(Killed):
            stage.serve(turn, stage.worker(f"dies {n}"))
        stage.lapse(turn)
    stage.model.scenes, stage.book.alone_status = [says("Whole.")], -9
    stage.serve(turn, stage.worker("lives"))  # or has its last attempt killed in a process of its own
    turn = stage.turn(turn) if most > 2 else stage.serve(turn, stage.worker("buries"))
    assert turn.reason == (None if most > 2 else "dead")
    assert booked(stage, turn) == {deaths * BROKEN.tokens + (ONE_CALL.tokens if most > 2 else 0)}
    assert used(stage, "agent", "default")["tokens"] == turn.usage.tokens


@pytest.mark.heavy
@pytest.mark.parametrize("broken", ["cut", "late", "error"])
def test_what_a_real_stream_told_is_booked_under_the_name_that_was_asked(stage: Stage, broken: str) -> None:
    body = sse(answer("one two", usage=WIRE, model="/models/served.gguf"))
    after = body.index(b"event: content_block_stop")
    with MessagesServer() as server:
        server.then(Say("The SDK is imported."))
        list(Anthropic(model="claude-haiku-4-5", base_url=server.url, call_timeout_s=60).reply(ASKED))
        timeout_s = 2.0 if broken == "late" else 60
        adapter = Anthropic(model="claude-haiku-4-5", base_url=server.url, call_timeout_s=timeout_s)
        stage.model = Retrying(adapter, pause=lambda *_: None, chance=lambda: 0.0, clock=lambda: 0.0)  # type: ignore[assignment]
        bad = {
            "cut": Cut(body, after),
            "late": Hang(server.stopping, body, after),
            "error": Cut(body[:after] + sse([{"type": "error", "error": {"type": "overloaded_error"}}]), 10**6, True),
        }
        server.then(bad[broken], failure(500, "api_error"), Say("Whole.", usage=WIRE, model="alias"))
        turn = stage.serve(stage.submit(), stage.worker("w1"))
    assert (turn.output_text, turn.usage.input_tokens, turn.usage.llm_calls) == ("Whole.", 2 * 777, 2)
    [row] = Ledger(stage.database).totals(WORKSPACE, group_by="model")
    assert (row["key"], row["input_tokens"]) == ("claude-haiku-4-5", 2 * 777)


@pytest.mark.parametrize("look", ["silent", "received", "failed"])
def test_a_try_that_said_nothing_yet_is_booked_after_its_worker_died_and_readers_lose_no_text(
    stage: Stage, look: str
) -> None:
    watch = lambda: stage.model.asked[-1].watch  # noqa: E731

    def looks() -> None:
        stage.now_ms += NOTED_AFTER_MS
        watch().failed(StreamBroken("cut"), 1.0) if look == "failed" else getattr(watch(), look)()

    def noted() -> None:
        until(lambda: stage.live(turn)[-1].type == "output_text.delta", 5, "the try is told")

    turn = stage.submit()
    thinks: list[Beat] = [lambda: watch().asked(stage.model.name), lambda: watch().told(TOLD), looks]
    stage.model.scenes = [[*thinks, noted, Killed()]]
    with pytest.raises(Killed):
        stage.serve(turn, stage.worker("dies"))
    stage.lapse(turn)
    stage.model.scenes = [[*thinks, StreamBroken("cut")], [*thinks, *says("Whole.")]]
    turn = stage.serve(turn, stage.worker("lives"))
    stage.now_ms += 60_000
    stage.lanes.alert(turn.lane)
    turn = stage.serve(turn, stage.worker("ends"))
    assert (turn.output_text, booked(stage, turn)) == ("Whole.", {2 * TOLD.tokens + ONE_CALL.tokens})
    live, rebuilt = stage.live(turn), stage.rebuilt(turn)
    assert [each.type for each in live].count("turn.retrying") == 1  # for the death; nothing else took back any text
    assert len(live) == len(rebuilt)
    assert "".join(each.data.get("text", "") for each in rebuilt) == "Whole."


@pytest.mark.parametrize(("status", "tokens"), [(429, False), (None, False), (0, True)])
def test_a_cancel_costs_an_estimate_only_while_a_request_is_under_way(
    stage: Stage, status: int | None, tokens: bool
) -> None:
    turn, worker = stage.submit("How many? " * 200), stage.worker("w1")

    def stop(*_: object) -> None:
        stage.cancel(turn, "interrupt", worker)
        raise Interrupted("Nobody wants it.")

    with MessagesServer() as server:
        url = server.url if status else "http://127.0.0.1:9"
        server.then(failure(429, "rate_limit_error"))
        adapter = Anthropic(model="claude-haiku-4-5", base_url=url, call_timeout_s=2.0)
        if status != 0:
            stage.model = Retrying(adapter, pause=stop, chance=lambda: 0.0, clock=lambda: 0.0)  # type: ignore[assignment]
        stage.model.scenes = [[lambda: stage.model.asked[-1].watch.asked("played"), stop]]
        turn = stage.serve(turn, worker)
    assert (turn.status, turn.usage.tokens > 0, turn.usage.llm_calls) == ("cancelled", tokens, int(tokens))
