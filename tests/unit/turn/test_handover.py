"""Turns whose owners die, stop, sleep or wait: what goes on, what is charged, and what readers are shown."""

from dataclasses import replace

import pytest

from loom_worker.core.errors import Overloaded, ProviderFailed, StreamBroken, Unavailable
from loom_worker.core.stopping import Stopping
from loom_worker.core.values.chat import Restarted, TextDelta
from loom_worker.core.values.turns import Claim
from loom_worker.core.values.webhooks import Webhook
from loom_worker.lanes.lanes import Lease
from loom_worker.lanes.lease_renewer import HeldLease, LeaseRenewer
from loom_worker.store.claims import Claims
from loom_worker.turn.agent_runtime import PromptContext
from loom_worker.turn.entrypoints import serve_claim
from tests.support.models import Beat, Killed, says, wants
from tests.support.stage import WORKSPACE, Book, Stage, StageKnowledge

SUMS = (("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4}))


def visible_text(stage: Stage, turn_id: str) -> str:
    """What a reader takes for the answer who obeys turn.retrying and output_text.commentary."""
    text = ""
    for event in stage.live(stage.turns.get(WORKSPACE, turn_id)):
        is_dropped = event.type in ("turn.retrying", "output_text.commentary")
        text = "" if is_dropped else text + str(event.data.get("text", ""))
    return text


def test_a_journaled_reply_is_not_asked_for_again_after_a_death(stage: Stage) -> None:
    stage.model.scenes = [wants(("note", {}), text="Looking."), [TextDelta("Hal"), Killed()], says("Whole.")]
    turn = stage.submit()
    with pytest.raises(Killed):
        stage.serve(turn, stage.worker("w1"))
    assert stage.held_by(turn) == "w1"
    stage.lapse(turn)
    turn = stage.serve(turn, stage.worker("w2"))
    assert (turn.output_text, turn.usage.llm_calls, stage.ran) == ("Whole.", 2, ["note"])
    assert visible_text(stage, turn.id) == turn.output_text
    assert "turn.retrying" in stage.told(turn)


def test_after_a_death_readers_are_told_to_drop_what_they_saw_and_get_what_holds(stage: Stage) -> None:
    stage.model.scenes = [wants(("note", {}), text="Looking."), [TextDelta("Hal"), Killed()], says("Whole.", pieces=1)]
    turn = stage.submit()
    stage.die(turn)
    turn = stage.serve(turn, stage.worker("w2"))
    live = stage.live(turn)
    since = stage.told(turn).index("turn.retrying")
    told = [event.data["text"] for event in live[since:] if event.type == "output_text.delta"]
    assert told == ["Looking.", "\n\n", "Whole."]
    assert [event.id for event in live] == list(range(1, len(live) + 1))
    assert [event.id for event in stage.rebuilt(turn)] == [event.id for event in live]
    assert stage.rebuilt(turn)[since:] == live[since:]


def test_a_turn_whose_owners_all_die_fails_as_dead_and_the_lane_goes_on(stage: Stage) -> None:
    stage.model.scenes = [[Killed()], [Killed()], says("Next.")]
    turn, after = stage.submit("Poison", max_attempts=2), stage.submit("Fine")
    stage.die(turn)
    stage.book.alone_status = -9
    stage.serve(turn, stage.worker("w2"))
    turn = stage.serve(turn, stage.worker("w3"))
    assert (turn.status, turn.reason) == ("failed", "dead")
    assert stage.said()[0].text == "Poison"
    assert stage.book.woken.count(turn.lane) == 2
    stage.model.scenes = [says("Next.")]
    assert stage.serve(after, stage.worker("w4")).output_text == "Next."


def test_the_last_attempt_runs_alone_with_the_claim_that_was_made_for_it(stage: Stage) -> None:
    stage.model.scenes = [[Killed()]]
    turn = stage.submit(max_attempts=2)
    stage.die(turn)
    stage.serve(turn, stage.worker("w2"))
    [(lane, token, turn_id, fence)] = stage.book.alone
    assert (lane, turn_id, fence, token.startswith("w2-")) == (turn.lane, turn.id, 2, True)
    assert stage.book.woken == []
    assert len(stage.model.asked) == 1


def test_a_process_of_a_last_attempt_does_not_start_another(stage: Stage) -> None:
    stage.model.scenes = [[Killed()], says("At last.")]
    turn = stage.submit(max_attempts=2)
    stage.die(turn)
    turn = stage.serve(turn, stage.worker("w2", is_isolated=True))
    assert (turn.output_text, stage.book.alone) == ("At last.", [])
    assert stage.lane_state(turn) == "running"  # as its parent left it


def test_the_parent_gives_the_lane_back_once_the_last_attempt_has_ended(stage: Stage) -> None:
    stage.model.scenes = [[Killed()], says("At last.")]
    turn, after = stage.submit(max_attempts=2), stage.submit("And then?")
    stage.die(turn)
    parent = stage.worker("w2")
    child = stage.worker("w3", is_isolated=True)

    class Isolating(Book):
        def run_isolated(self, lane: str, token: str, turn_id: str, fence: int) -> int:
            claim = child.claims.resume(turn_id, fence=fence)
            assert claim is not None
            serve_claim(claim, HeldLease(Lease(lane, token, claim.turn.seq), renewed_s=0.0), child)
            parent.renewer.renew()
            return 0

    turn = stage.serve(turn, replace(parent, dispatcher=Isolating(woken=stage.book.woken)))
    assert (turn.output_text, stage.lane_state(turn), stage.book.woken) == ("At last.", "kicked", [turn.lane])
    assert stage.turn(after).status == "queued"


def test_progress_takes_the_deaths_back(stage: Stage) -> None:
    stage.model.scenes = [[Killed()], wants(*SUMS[:1]), says("3")]
    turn, worker = stage.submit(), stage.worker("w2")
    stage.die(turn)
    stage.serve(turn, worker)
    assert stage.turn(turn).deaths == 0
    stage.answer_calls(turn, worker)
    turn = stage.serve(turn, worker)
    assert stage.live(turn)[-1].data == turn.as_json()


def test_the_final_event_counts_attempts_as_the_store_does(stage: Stage) -> None:
    stage.model.scenes = [[Killed()], wants(("note", {})), says("Noted.")]
    turn = stage.submit()
    stage.die(turn)
    turn = stage.serve(turn, stage.worker("w2"))
    assert stage.live(turn)[-1].data == turn.as_json()


def test_a_stale_worker_writes_nothing_at_the_end(stage: Stage) -> None:
    turn = stage.submit(webhook=Webhook("https://example.org/hook"))

    def overtake() -> None:
        assert isinstance(stage.claims.claim(turn.lane, worker="w2", now_ms=stage.now_ms), Claim)

    stage.model.scenes = [[overtake, *says("Too late.")]]
    turn = stage.serve(turn, stage.worker("w1"))
    assert (turn.status, turn.output_text, turn.usage.llm_calls) == ("in_progress", None, 0)
    assert (stage.said(), stage.journal(turn), stage.book.delivered) == ([], (), [])
    assert "turn.completed" not in stage.told(turn)
    assert stage.held_by(turn) == "w2"


def test_a_worker_that_slept_until_another_ended_its_turn_asks_nobody(stage: Stage) -> None:
    turn = stage.submit()

    class Sleeping(StageKnowledge):
        def prompt_context(self, *_: object) -> PromptContext:
            stage.lapse(turn)
            assert stage.serve(turn, stage.worker("w2")).output_text == "Whole."
            return PromptContext("")

    stage.model.scenes = [says("Whole."), says("Its own answer is in its past.")]
    turn = stage.serve(turn, stage.worker("w1", knowledge=Sleeping()))
    assert (turn.output_text, turn.usage.llm_calls, len(stage.model.asked)) == ("Whole.", 1, 1)


def test_a_stale_worker_journals_no_step_and_sends_no_call(stage: Stage) -> None:
    turn = stage.submit()
    stage.model.scenes = [
        [lambda: stage.claims.claim(turn.lane, worker="w2", now_ms=stage.now_ms), *wants(*SUMS)],
    ]
    turn = stage.serve(turn, stage.worker("w1"))
    assert (stage.journal(turn), turn.calls, stage.book.fanned) == ((), (), [])


def test_a_lease_lost_in_the_middle_of_a_stream_hands_the_turn_over_uncharged(stage: Stage) -> None:
    turn, one = stage.submit(), stage.worker("w1")

    def lose() -> None:
        stage.lapse(turn)
        assert stage.lanes.take(turn.lane, "w2-token") is not None
        one.renewer.renew()

    stage.model.scenes = [[TextDelta("Hal"), lose, TextDelta("f an answer"), *says("never")], says("Whole.", pieces=1)]
    stage.serve(turn, one)
    assert (stage.held_by(turn), stage.turn(turn).deaths, stage.model.closed) == (None, 0, 1)
    assert "f an answer" not in str(stage.live(turn))
    stage.lapse(turn)
    turn = stage.serve(turn, stage.worker("w2"))
    assert (turn.output_text, turn.attempt) == ("Whole.", 1)
    assert visible_text(stage, turn.id) == "Whole."


class Doubting(LeaseRenewer):
    """A lease renewer whose last lease can be brought into doubt."""

    last: HeldLease

    def hold(self, lease: Lease) -> HeldLease:
        self.last = super().hold(lease)
        return self.last

    def doubt(self) -> None:
        self.last.renewed_s = self.last.confirmed_s = float("-inf")


def doubting(stage: Stage) -> Doubting:
    return Doubting(stage.redis, stage.lanes, "w1", stage.settings.lanes)


def test_a_reply_that_comes_while_redis_cannot_be_asked_is_used(stage: Stage) -> None:
    renewer = doubting(stage)
    turn = stage.answered(
        [TextDelta("Wh"), renewer.doubt, TextDelta("ole"), *says("Whole.")[-1:]], by=stage.worker("w1", renewer=renewer)
    )
    assert (turn.output_text, len(stage.model.asked)) == ("Whole.", 1)


def test_a_turn_whose_lease_is_in_doubt_stops_its_stream_once_the_database_says_that_it_is_anothers(
    stage: Stage,
) -> None:
    turn, renewer = stage.submit(), doubting(stage)

    def taken_over() -> None:
        renewer.doubt()
        stage.claims.claim(turn.lane, worker="w2", now_ms=stage.now_ms)

    stage.model.scenes = [[TextDelta("Hal"), taken_over, TextDelta("f"), *says("never")]]
    stage.serve(turn, stage.worker("w1", renewer=renewer))
    assert "never" not in str(stage.live(turn))
    assert (stage.model.closed, stage.held_by(turn), stage.journal(turn)) == (1, "w2", ())


def test_a_whole_reply_is_journaled_for_the_successor_though_redis_gave_the_lease_away(stage: Stage) -> None:
    turn, one = stage.submit(), stage.worker("w1")

    def lose() -> None:
        stage.lapse(turn)
        assert stage.lanes.take(turn.lane, "w2-token") is not None
        one.renewer.renew()

    stage.model.scenes = [[TextDelta("Whole."), lose, *says("Whole.")[-1:]]]
    stage.serve(turn, one)
    assert [step.kind for step in stage.journal(turn)] == ["matched", "reply", "events"]
    stage.lapse(turn)
    turn = stage.serve(turn, stage.worker("w2"))
    assert (turn.output_text, len(stage.model.asked)) == ("Whole.", 1)


def test_a_worker_that_stops_leaves_its_turn_uncharged_and_rings(stage: Stage) -> None:
    stopping = Stopping(drain_s=0)
    turn = stage.answered(
        [TextDelta("Hal"), stopping.ask, TextDelta("!")],
        says("Whole.", pieces=1),
        by=stage.worker("w1", stopping=stopping),
    )
    assert (turn.deaths, stage.held_by(turn), stage.book.woken) == (0, None, [turn.lane])
    turn = stage.serve(turn, stage.worker("w2"))
    assert visible_text(stage, turn.id) == "Whole."


def test_a_stopping_worker_may_finish_the_reply_that_runs_but_begins_no_other(stage: Stage) -> None:
    stopping = Stopping(drain_s=60)
    turn = stage.answered(
        [stopping.ask, *wants(("note", {}), text="Looking.")], says("Noted."), by=stage.worker("w1", stopping=stopping)
    )
    assert (turn.status, stage.held_by(turn), len(stage.model.asked)) == ("in_progress", None, 1)
    assert stage.serve(turn, stage.worker("w2")).usage.llm_calls == 2


def test_a_reply_that_was_paid_for_is_kept_when_the_worker_stops(stage: Stage) -> None:
    stopping = Stopping(drain_s=60)
    turn = stage.answered([stopping.ask, *says("Paid for.")], by=stage.worker("w1", stopping=stopping))
    turn = stage.serve(turn, stage.worker("w2"))
    assert (turn.output_text, turn.usage.llm_calls) == ("Paid for.", 1)


def test_a_busy_provider_parks_the_turn_for_as_long_as_it_wants(stage: Stage) -> None:
    turn = stage.answered([Overloaded("Too many requests.", 7.0)], says("Now."))
    assert (turn.status, turn.deaths, stage.lane_state(turn)) == ("in_progress", 0, "parked")
    left_s = float(stage.redis.zscore("loom:leases", turn.lane) or 0) / 1000 - stage.redis.time()[0]
    assert 5 < left_s <= 8
    stage.lapse(turn)
    turn = stage.serve(turn, stage.worker("w1"))
    assert (turn.status, turn.attempt) == ("completed", 1)
    assert stage.live(turn) == stage.rebuilt(turn)


def test_text_that_streamed_before_the_provider_broke_is_taken_back(stage: Stage) -> None:
    broken: list[Beat] = [TextDelta("Half an"), StreamBroken("The connection was cut.")]
    turn = stage.answered(broken, says("Whole.", pieces=1))
    stage.lapse(turn)
    turn = stage.serve(turn, stage.worker("w1"))
    assert visible_text(stage, turn.id) == "Whole."


def test_the_last_reply_is_the_answer_and_what_came_before_calls_is_commentary(
    stage: Stage,
) -> None:
    turn = stage.answered(
        wants(("note", {}), text="Let me look."),
        wants(("note", {})),
        wants(("note", {}), text="Once more."),
        says("There are 42."),
    )
    assert turn.output_text == visible_text(stage, turn.id) == "There are 42."
    every = "".join(event.data["text"] for event in stage.live(turn) if event.type == "output_text.delta")
    assert every == "Let me look.\n\nOnce more.\n\nThere are 42."
    assert stage.live(turn) == stage.rebuilt(turn)
    kept = [chat.text for chat in stage.said() if chat.role == "assistant"]
    assert kept == ["Let me look.", "", "Once more.", "There are 42."]
    columns = "SELECT output_text, answer_id IS NOT NULL FROM turns"
    with stage.database.read() as tx:  # the answer itself is kept once, as a message
        assert tx.exec_driver_sql(columns).one() == (None, True)


def test_an_answer_that_the_model_paused_in_is_whole(stage: Stage) -> None:
    turn = stage.answered(wants(("note", {}), text="One."), says("One,", stop="pause_turn"), says("two."))
    assert turn.output_text == visible_text(stage, turn.id) == "One,\n\ntwo."
    assert stage.live(turn) == stage.rebuilt(turn)


def test_an_answer_that_begins_as_what_was_said_before_it_is_rebuilt_whole(stage: Stage) -> None:
    turn = stage.answered(wants(("note", {}), text="There are 3."), says("There are 3.\n\nNo more."))
    assert turn.output_text == "There are 3.\n\nNo more."
    assert stage.live(turn) == stage.rebuilt(turn)


def test_a_reply_of_blanks_alone_makes_nothing_commentary(stage: Stage) -> None:
    turn = stage.answered(wants(("note", {}), text="Three so far."), wants(("note", {}), text="\n\n"), says(" "))
    assert (turn.status, turn.output_text) == ("incomplete", "Three so far.")
    assert visible_text(stage, turn.id) == turn.output_text
    assert stage.live(turn) == stage.rebuilt(turn)


@pytest.mark.parametrize(
    ("scene", "status", "text"),
    [
        ([TextDelta("Half an ans"), ProviderFailed("401")], "failed", "Looking."),
        ([ProviderFailed("401")], "failed", "Looking."),
        (says("Half an", stop="max_tokens"), "incomplete", "Half an"),
        (says(""), "incomplete", "Looking."),
    ],
    ids=["broken off", "refused", "cut", "silent"],
)
def test_what_was_said_before_a_turn_ended_without_an_answer_is_stored_as_it_was_streamed(
    stage: Stage, scene: list[Beat], status: str, text: str
) -> None:
    turn = stage.answered(wants(("note", {}), text="Looking."), scene)
    assert (turn.status, turn.output_text) == (status, text)
    assert visible_text(stage, turn.id) == text


def test_a_stream_that_begins_anew_takes_its_text_back_and_repeats_what_holds(stage: Stage) -> None:
    again = [TextDelta("Half"), Restarted("cut"), *says("Whole.", pieces=1)]
    turn = stage.answered(wants(("note", {}), text="Looking. "), again)
    assert visible_text(stage, turn.id) == turn.output_text == "Whole."


def test_a_provider_that_stays_busy_fails_the_turn_and_says_why(stage: Stage) -> None:
    turn, worker = stage.submit(), stage.worker("w1")
    while not turn.is_finished:
        stage.model.scenes = [[Overloaded("Too many requests.", None)]]
        stage.lapse(turn)
        turn = stage.serve(turn, worker)
    assert (turn.status, turn.reason, len(stage.model.asked)) == ("failed", "provider", 6)
    assert "Too many requests." in str(turn.error)
    assert stage.live(turn) == stage.rebuilt(turn)


class FailingClaims(Claims):
    """Claims a turn, then finds the database gone at the release."""

    def release(self, claim: Claim, *, run_ms: int) -> None:
        raise Unavailable("The database did not answer.")


def test_a_release_that_the_database_refuses_still_gives_the_lane_back(stage: Stage) -> None:
    stopping = Stopping(drain_s=0)
    stopping.ask()
    turn = stage.serve(stage.submit(), stage.worker("w1", stopping=stopping, claims=FailingClaims(stage.database)))
    assert (stage.lane_state(turn), stage.book.woken) == ("kicked", [turn.lane])


def test_a_bug_in_a_turn_charges_an_attempt_and_waits_before_the_next(stage: Stage) -> None:
    turn = stage.answered([ZeroDivisionError("a bug")], says("Better."))
    assert (stage.held_by(turn), stage.lane_state(turn), stage.book.woken) == ("w1", "kicked", [])
    turn = stage.serve(turn, stage.worker("w1"))
    assert (turn.output_text, turn.attempt) == ("Better.", 2)
