"""A lane against a model of a few lines: whatever happens in whatever order, no turn is stranded."""

from typing import Any

import fakeredis
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from loom_worker.core.settings import LaneSettings
from loom_worker.lanes import keys
from loom_worker.lanes.lanes import Lanes, Lease

LANE = "a1"
WAIT_S = 3600.0


class LaneMachine(RuleBasedStateMachine):
    """``unfinished`` is the database; wake-ups may be lost, owners may die, Redis may forget everything."""

    @initialize()
    def begin(self) -> None:
        self.redis: Any = fakeredis.FakeRedis(decode_responses=True)
        self.lanes = Lanes(self.redis, LaneSettings())
        self.unfinished: list[int] = []
        self.last_seq = self.tokens = 0
        self.lease: Lease | None = None
        self.dead: list[Lease] = []
        self.bell = self.alerted = False
        self.slot = ""

    def teardown(self) -> None:
        """In the end nobody is there but the sweep and one worker that answers its wake-ups."""
        if self.lease is not None:
            self.die()
        self.redis.delete(keys.FREE_SLOTS)
        for _ in range(len(self.unfinished) + 2):
            self.time_passes()
            if self.lanes.expired(limit=10) == [LANE]:
                self.take()
                self.complete()
        assert self.unfinished == []
        assert self._lasting() <= {keys.PULSE}
        self.redis.close()

    @rule()
    def submit(self) -> None:
        self.last_seq += 1
        self.unfinished.append(self.last_seq)
        self.bell |= self.lanes.submit(LANE, [(self.last_seq, f"turn{self.last_seq}")])

    @rule()
    def announce_again(self) -> None:
        self.bell |= self.lanes.submit(LANE, [(seq, f"turn{seq}") for seq in self.unfinished])

    @rule()
    def take(self) -> None:
        self.bell = False
        lease = self.lanes.take(LANE, self._new_token())
        assert lease is None or self.lease is None, "two owners"
        self.lease = lease or self.lease

    @precondition(lambda self: self.lease is not None)
    @rule()
    def complete(self) -> None:
        lease = self._let_go()
        seq = self.unfinished.pop(0) if self.unfinished else lease.last_seq
        self.bell |= self.lanes.complete(lease, seq)

    @precondition(lambda self: self.lease is not None)
    @rule(others_wait=st.booleans(), goes_on=st.booleans())
    def advance(self, others_wait: bool, goes_on: bool) -> None:
        lease = self._let_go()
        if others_wait:
            self.redis.rpush(keys.WAKEUPS, "of another lane")
        seq = self.unfinished.pop(0) if self.unfinished else lease.last_seq
        slot = self._new_token() if goes_on else ""
        self.lease, must_wake = self.lanes.advance(lease, seq, slot=slot, wait_s=WAIT_S)
        self.redis.delete(keys.WAKEUPS)
        assert not (must_wake and self.lease)
        assert not (others_wait and self.lease)
        assert goes_on or not self.lease
        self.bell |= must_wake
        self.slot = slot if goes_on and not self.lease else self.slot

    @precondition(lambda self: self.lease is None)
    @rule()
    def wait_for_a_lane(self) -> None:
        self.slot = self._new_token()
        assert self.lanes.next(self.slot, wait_s=WAIT_S) is None

    @rule()
    def stop_waiting(self) -> None:
        if self.slot:
            assert self.lanes.withdraw(self.slot) is None, "it would have been given a lane before"
        self.slot = ""

    @rule()
    def die_while_waiting(self) -> None:
        self.slot = ""

    @precondition(lambda self: self.lease is not None)
    @rule()
    def die_after_the_commit(self) -> None:
        if self.unfinished:
            self.unfinished.pop(0)
        self.die()

    @precondition(lambda self: self.lease is not None)
    @rule()
    def release(self) -> None:
        self.bell |= self.lanes.release(self._let_go())

    @precondition(lambda self: self.lease is not None)
    @rule()
    def park(self) -> None:
        self.bell |= self.lanes.park(self._let_go(), wait_ms=60_000)

    @rule(ticket=st.sampled_from(["x", "y"]))
    def wake(self, ticket: str) -> None:
        self.bell |= self.lanes.wake(LANE, ticket)

    @precondition(lambda self: self.lease is not None)
    @rule()
    def renew(self) -> None:
        assert self.lease is not None
        assert self.lanes.renew([self.lease]) == {self.lease: "alerted" if self.alerted else "held"}
        self.alerted = False

    @rule()
    def alert(self) -> None:
        rings = self.lanes.alert(LANE)
        assert not (rings and self.lease), "its owner hears of it"
        self.bell |= rings
        self.alerted = self.lease is not None

    @precondition(lambda self: self.lease is not None)
    @rule()
    def die(self) -> None:
        self.dead.append(self._let_go())
        self.time_passes()

    @precondition(lambda self: self.lease is None)
    @rule()
    def time_passes(self) -> None:
        self.redis.zadd(keys.LEASES, {LANE: 1}, xx=True)

    @rule()
    def sweep(self) -> None:
        self.bell |= self.lanes.expired(limit=10) == [LANE]

    @rule()
    def lose_the_bell(self) -> None:
        self.bell = False

    @precondition(lambda self: bool(self.dead))
    @rule(what=st.sampled_from(["complete", "release", "park", "renew", "drop"]))
    def the_dead_return(self, what: str) -> None:
        before = self.redis.hgetall(keys.lease(LANE)), self.redis.zrange(keys.lane(LANE), 0, -1)
        old = self.dead[-1]
        if what == "renew":
            if before[0]:  # one that is gone is not asked for: its keeper's clock has run out
                assert (self.lanes.renew([old])[old] != "lost") == (before[0].get("token") == old.token)
            return
        if before[0].get("token") == old.token:
            return  # nobody has noticed its death yet; it did not die
        acts = {
            "complete": lambda: self.lanes.complete(old, old.last_seq),
            "release": lambda: self.lanes.release(old),
            "park": lambda: self.lanes.park(old, wait_ms=1),
            "drop": lambda: self.lanes.drop(old),
        }
        assert not acts[what]()
        assert before == (self.redis.hgetall(keys.lease(LANE)), self.redis.zrange(keys.lane(LANE), 0, -1))

    @rule()
    def redis_forgets(self) -> None:
        self.redis.flushall()
        self.slot = ""
        if self.lease is not None:
            assert self.lanes.renew([self.lease]) == {self.lease: "held"}
        self.alerted = False
        if self.unfinished:
            self.bell |= self.lanes.submit(LANE, [(seq, f"turn{seq}") for seq in self.unfinished])

    @invariant()
    def a_free_slot_has_what_it_was_given(self) -> None:
        if self.slot and self.redis.exists(keys.assigned(self.slot)):
            assert self.lease is None, "two owners"
            self.lease, self.slot = self.lanes.assigned(self.slot, wait_s=1), ""
            assert self.lease is not None
            assert self.lease.lane == LANE

    @invariant()
    def no_unfinished_turn_is_stranded(self) -> None:
        if self.unfinished:
            known = self.redis.hget(keys.lease(LANE), "state")
            assert known in {"kicked", "running", "parked"}
            assert self.redis.zscore(keys.LEASES, LANE) is not None
            here = self.redis.zrange(keys.lane(LANE), 0, -1)
            assert {f"turn{seq}" for seq in self.unfinished} <= set(here)

    @invariant()
    def an_idle_lane_leaves_nothing(self) -> None:
        if self.redis.exists(keys.lease(LANE)) == 0:
            assert self._lasting() <= {keys.PULSE, keys.FREE_SLOTS}

    def _lasting(self) -> set[str]:
        """The keys that do not go by themselves."""
        return {key for key in self.redis.keys("*") if self.redis.pttl(key) < 0}

    def _new_token(self) -> str:
        self.tokens += 1
        return f"w-{self.tokens}"

    def _let_go(self) -> Lease:
        assert self.lease is not None
        lease, self.lease = self.lease, None
        self.alerted = False
        return lease


LaneMachine.TestCase.settings = settings(stateful_step_count=30)
TestLane = LaneMachine.TestCase
