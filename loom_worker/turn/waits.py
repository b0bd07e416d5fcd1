"""What a turn waits for: published to other processes while it waits, and logged once; and when its model was asked."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace

from loom_worker.core.errors import LeftAlone, LoomError, Overloaded
from loom_worker.core.values.budgets import Reservation
from loom_worker.core.values.calls import Call
from loom_worker.core.values.chat import Usage, Watch
from loom_worker.core.values.ids import now_us
from loom_worker.core.values.json import Json
from loom_worker.core.values.traces import CallTimes, Interval, Try
from loom_worker.core.values.turns import Turn
from loom_worker.core.values.waiting import Waiting, WaitsFor
from loom_worker.events.writer import EventWriter
from loom_worker.guard.limits import Tolerant
from loom_worker.lanes.live_waits import KEPT_MS, LiveWaits
from loom_worker.llm.model import BudgetMeter, PaidTry
from loom_worker.llm.provider_errors import is_rate_limit
from loom_worker.turn.control import RunClock
from loom_worker.turn.state import TurnState

TRIES = 20
"""Tries of one reply; a client that retries without end must not fill the journal."""
ERROR_CHARS = 200


class CallRecorder:
    """The times of one reply after the other, of one run of a turn. For the turn's thread alone."""

    def __init__(self, fence: int, *, provider: str, model: str, clock_us: Callable[[], int] = now_us) -> None:
        """Args: fence: of the run; provider, model: that are asked."""
        self._none = CallTimes(fence, provider, model)
        self._clock_us = clock_us
        self.model = ""
        """That was asked last; empty: none yet."""
        self.begin()

    def begin(self) -> None:
        """Another reply is needed."""
        self._times = self._none
        self._asked_us: int | None = None

    def built(self, began_us: int, tokens: int) -> None:
        """The context is built; it took from then until now."""
        self._times = replace(self._times, built=Interval(began_us, self._clock_us()), tokens=tokens)

    def asked(self, model: str) -> None:
        """A request goes out."""
        self._end_try()
        self._asked_us, self.model = self._clock_us(), model

    def text(self) -> None:
        """A piece of text came."""
        if self._times.first_text_us is None:
            self._times = replace(self._times, first_text_us=self._clock_us())

    def failed(self, error: LoomError) -> None:
        """The request under way failed."""
        self._end_try(type(error).__name__, str(error)[:ERROR_CHARS])
        self._times = replace(self._times, first_text_us=None)

    def take(self) -> Json:
        """What is known by now, for the step that it led to; it will not be ``left`` any more."""
        self._end_try()
        times = self._times
        self.begin()
        return times.as_json()

    def left(self) -> Json | None:
        """What led to no step; None: nothing was asked."""
        self._end_try()
        return self._times.as_json() if self._times.tries or self._times.built else None

    def _end_try(self, error_type: str | None = None, error: str = "") -> None:
        if self._asked_us is None:
            return
        model = "" if self.model == self._times.model else self.model
        one = Try(Interval(self._asked_us, self._clock_us()), error_type, error, model)
        self._times = replace(self._times, tries=(*self._times.tries, one)[-TRIES:])
        self._asked_us = None


log = logging.getLogger(__name__)

QUIET_MS = 10_000
"""Nothing came from the model for so long: that is worth a line in the log."""
NOTED_AFTER_MS = 1_000
"""A try that has said nothing for so long is told in an event without text: its worker may die before the first one."""
SHOWN_AFTER_MS = 200
"""A shorter call is over before anyone looks, and leaves Redis alone."""
SHOWN_AGAIN_MS = KEPT_MS // 3
"""A record is written anew this often: it may be lost with Redis' memory."""


class WaitTeller:
    """Tells other processes what turns of this one wait for, as long as Redis answers."""

    def __init__(self, waits: LiveWaits) -> None:
        self._waits = waits
        self._tolerant = Tolerant("telling what turns wait for", time.monotonic)

    def tell(self, turn: Turn, waiting: Waiting) -> None:
        """Tell it now; a Redis that does not answer is left alone for a while."""
        self._tolerant.ask(lambda: self._waits.record(turn, waiting), otherwise=None)

    def is_first(self, turn: Turn, reply_n: int) -> bool:
        """True for the first who asks this of the tools of a reply, over all workers; always while Redis is away."""
        return self._tolerant.ask(lambda: self._waits.is_first_report(turn, reply_n), otherwise=True)


class ModelWatch(Watch):
    """The Watch of one owner of a turn; ``begin`` it before each reply. For the turn's thread alone."""

    def __init__(
        self, turn: Turn, teller: WaitTeller, *, provider: str, model: str, clock_ms: Callable[[], int]
    ) -> None:
        """Watch nothing yet; provider and model are those that are asked."""
        self._turn = turn
        self._teller = teller
        self.model = f"{model} ({provider})"
        """The model and its provider, for logs and errors."""
        self.calls = CallRecorder(turn.fence, provider=provider, model=model)
        """Takes down their times."""
        self.meter: BudgetMeter | None = None
        self.paid: list[PaidTry] = []
        """The tries that are paid for, but for one that was answered."""
        self.under_way: PaidTry | None = None
        self.is_under_way = False  # true from when a request goes out until it fails
        self._noted = self._told_ms = 0
        self._clock_ms = clock_ms
        self._waiting = Waiting("model", 0, attempt=0)
        self._is_told = False
        self._began_ms = self._received_ms = 0
        self._shown_ms: int | None = None

    def begin(self, state: TurnState, writer: EventWriter, *, clock: RunClock) -> None:
        """A reply is needed; what was tried for it before, by whomever, counts."""
        self.calls.begin()
        self.paid, self.under_way, self.is_under_way, self._noted = [], None, False, 0
        self._writer, self._reply_n, self._run_clock = writer, state.next_n, clock
        now_ms = self._clock_ms()
        earlier = state.waited_last or {}
        self._waiting = Waiting(
            "model", earlier.get("since_ms", now_ms), earlier.get("tries", state.waits), last_error=state.last_error
        )
        self._is_told = bool(earlier)
        self._received_ms = self._began_ms = now_ms
        self._shown_ms = None

    def asked(self, model: str) -> None:
        self.calls.asked(model)
        self.under_way, self.is_under_way = None, True
        self._waiting = replace(self._waiting, waits_for="model", attempt=self._tries + 1, next_try_ms=None)
        if self._shown_ms is not None:
            self._show()

    def received(self) -> None:
        self._received_ms = self._clock_ms()
        self._show_in_time()

    def silent(self) -> None:
        self._show_in_time()
        if self._clock_ms() - self._received_ms >= QUIET_MS:
            self._tell_log("nothing came")

    def told(self, usage: Usage) -> None:
        if self.under_way is not None:
            self.under_way.told = usage
        elif usage.tokens:
            self.under_way = PaidTry(usage, self.meter.take() if self.meter else None, model=self.calls.model)
            self.paid.append(self.under_way)
            self._told_ms = self._clock_ms()

    def said(self, text: str) -> list[Json]:
        """A piece of text came; the paid tries that its event is to tell of, for whoever takes the turn over."""
        self.calls.text()
        if self.under_way is None and self.meter and self.meter.held:
            self.under_way = self.lost()[-1]
        new = self._new_tries()
        if self.under_way is not None:
            self.under_way.said.append(text)
        return new

    def lost(self) -> list[PaidTry]:
        """The paid tries, and among them the last one if the provider has told nothing of it."""
        if self.meter and (held := self.meter.take()):
            self.paid.append(PaidTry.untold(held, self.calls.model))
        return self.paid

    def answered(self) -> Reservation | None:
        """The reply says what the try under way used; what was set aside for it."""
        if self.under_way is not None:
            return self.paid.pop().held
        return self.meter.take() if self.meter else None

    def failed(self, error: LoomError, wait_s: float) -> None:
        self.calls.failed(error)
        self.is_under_way = False
        self.lost()
        self._note()
        next_ms = self._clock_ms() + int(wait_s * 1000)
        self._run_clock.add(-min(int(wait_s * 1000), named_ms(error)))
        self._waiting = self._after(error, next_ms)
        self._show()

    def parked(self, error: LoomError, wait_ms: int) -> Json:
        """The tries are used up, and the model is asked again in ``wait_ms``; what the journal keeps of that."""
        self._waiting = self._after(error, None)
        self._tell_log(f"it is asked again in {wait_ms / 1000:g} s")
        waiting = self._waiting
        return {
            "for": waiting.waits_for,
            "since_ms": waiting.since_ms,
            "tries": self._tries,
            "last_error": waiting.last_error,
            "times": self.calls.take(),
        }

    @property
    def _tries(self) -> int:
        return self._waiting.attempt or 0

    def _after(self, error: LoomError, next_try_ms: int | None) -> Waiting:
        """The wait after an error; its cause is the one before it if this only says that the provider is left alone."""
        earlier = self._waiting.last_error
        cause = earlier if earlier and isinstance(error, LeftAlone) else str(error)
        return replace(self._waiting, waits_for=_for(error), next_try_ms=next_try_ms, last_error=cause)

    def _new_tries(self) -> list[Json]:
        new, self._noted = [asdict(each) for each in self.paid[self._noted :]], len(self.paid)
        return new

    def _note(self) -> None:
        if self._noted < len(self.paid):
            self._writer.delta("", reply_n=self._reply_n, tries=self._new_tries())

    def _show_in_time(self) -> None:
        now_ms = self._clock_ms()
        if now_ms - self._told_ms >= NOTED_AFTER_MS:
            self._note()
        due_ms = self._began_ms + SHOWN_AFTER_MS if self._shown_ms is None else self._shown_ms + SHOWN_AGAIN_MS
        if now_ms >= due_ms:
            self._show()

    def _show(self) -> None:
        self._shown_ms = self._clock_ms()
        self._teller.tell(self._turn, self._waiting)

    def _tell_log(self, what: str) -> None:
        """One line a wait, however long it lasts and however often it is tried."""
        if self._is_told:
            return
        self._is_told = True
        turn, waiting = self._turn, self._waiting
        waits_s = (self._clock_ms() - waiting.since_ms) / 1000
        error = f"; last error: {waiting.last_error}" if waiting.last_error else ""
        log.warning(
            "waiting for %s for %.0f s: %s (attempt %d)%s",
            *(self.model, waits_s, what, self._tries, error),
            extra={"session": turn.session_id, "turn": turn.id, "request": turn.request_id},
        )


def _for(error: LoomError) -> WaitsFor:
    if not isinstance(error, Overloaded) or isinstance(error, LeftAlone):
        return "model"
    return "rate_limit" if is_rate_limit(error) or error.retry_after_s is not None else "model"


def named_ms(error: LoomError) -> int:
    """How long the provider asked to wait; 0 if it did not say, or is left alone by a breaker."""
    if isinstance(error, LeftAlone) or not isinstance(error, Overloaded):
        return 0
    return int((error.retry_after_s or 0.0) * 1000)


def log_wait(state: TurnState, teller: WaitTeller, *, now_ms: int) -> None:
    """Say once for each reply that a person is asked, and once that its tools take long."""
    asked = [call for call in state.unsaved_calls if call.is_waiting]
    if asked:
        _warn(state, f"waiting for a person to decide on {_names(asked)}")
    late = [call for call in state.open_calls if now_ms - (call.started_ms or call.sent_ms or now_ms) >= QUIET_MS]
    if late and teller.is_first(state.turn, late[0].reply_n):
        _warn(state, f"waiting for tools for over {QUIET_MS // 1000} s: {_names(late)}")


def _names(calls: Sequence[Call]) -> str:
    return ", ".join(sorted({call.name for call in calls}))


def _warn(state: TurnState, text: str) -> None:
    turn = state.turn
    log.warning("%s", text, extra={"session": turn.session_id, "turn": turn.id, "request": turn.request_id})
