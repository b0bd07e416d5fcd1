"""What every model is to the rest of Loom, and models that choose when and whom to ask.

On a budget, the most that a try can cost is set aside before it is made.
"""

import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from loom_worker.core.errors import (
    BudgetSpent,
    Interrupted,
    LoomError,
    NoAccess,
    Overloaded,
    ProviderFailed,
    StreamBroken,
    Unavailable,
    Unreached,
)
from loom_worker.core.values.budgets import NOTHING, Amount, CallCost, Payer, Reservation
from loom_worker.core.values.chat import (
    AS_USUAL,
    FellBack,
    Meter,
    Reply,
    ReplyEvent,
    Request,
    Restarted,
    Sampling,
    TextDelta,
    Thinking,
    ThinkingDelta,
    Usage,
)
from loom_worker.core.values.ids import now_ms
from loom_worker.core.values.json import Json
from loom_worker.llm.prices import cost_usd, rates, warn_of
from loom_worker.store.budgets import Budgets

log = logging.getLogger(__name__)

CHECK_EVERY_S = 0.5
"""How often a running call checks whether its reply is still wanted."""


class NotSent(ProviderFailed):
    """The request could not even be written, so this says nothing about the provider."""


class Model(Protocol):
    """A language model: a provider's adapter, the scripted model, or a wrapper around another model."""

    @property
    def name(self) -> str:
        """The model's name, as prices and token factors know it."""

    def reply(self, request: Request) -> Iterator[ReplyEvent]:
        """Answer one request; nothing happens before the first ``next``.

        Yields text as it arrives (TextDelta), perhaps a Restarted that takes back the deltas before it, and exactly
        one Reply, as the last event; its text is the join of the deltas since the last Restarted. An iterator that
        ends without a Reply has raised. Closing the iterator ends the call and its connection. Safe to use from many
        threads at once.

        Raises:
            Overloaded: the provider asks to wait; ``retry_after_s`` says how long, if it said so.
            StreamBroken: the reply was cut, malformed or too late; nothing of it counts.
            ProviderFailed: the provider refuses this request for good; NotSent: it cannot be sent at all.
            Interrupted: this process was asked to stop meanwhile, or the reply is no longer wanted.
        """


def whole_reply(model: Model, request: Request) -> Reply:
    """Ask, and skip what streams meanwhile.

    Raises:
        LoomError: as Model.reply; StreamBroken also if no reply came; ProviderFailed for one that is too large.
    """
    for event in model.reply(request):
        if isinstance(event, Reply):
            if event.stop_reason == "reply_too_large":
                raise ProviderFailed("The model's reply is too large (LOOM_MAX_REPLY_BYTES).")
            return event
    raise StreamBroken("The model's stream ended without a reply.")


def cannot_answer(error: LoomError) -> bool:
    """True if the provider is down, busy or left alone, or gives this account nothing; another one may answer."""
    return isinstance(error, Overloaded | StreamBroken | NoAccess)


def is_refused(error: LoomError) -> bool:
    """True if the provider refuses the request: the account may lack the model, or the server not know it."""
    return isinstance(error, ProviderFailed)


class Fallbacks:
    """A Model that asks one model after the other until one answers."""

    def __init__(self, models: Sequence[Model], *, falls: Callable[[LoomError], bool] = cannot_answer) -> None:
        """Wrap models.

        Args:
            models: each with its own retries and circuit breaker, in the order in which they are asked.
            falls: whether the next one is asked after this error of the one before it.
        """
        self.name = models[0].name
        self._models = models
        self._falls = falls

    def reply(self, request: Request) -> Iterator[ReplyEvent]:
        """Raises what the last model raises, or the first error after which no other is to be asked."""
        for model, after in zip(self._models, (*self._models[1:], None), strict=True):
            has_shown = False
            try:
                for event in model.reply(request):
                    has_shown = has_shown or isinstance(event, TextDelta | ThinkingDelta)
                    yield event
                return
            except LoomError as error:
                if after is None or not self._falls(error):
                    raise
                failure = error
            log.warning("%s cannot answer, so %s is asked: %s", model.name, after.name, failure)
            request.watch.failed(failure, 0.0)
            if has_shown:
                yield Restarted(str(failure))
            yield FellBack(after.name, model.name, str(failure))


@dataclass(frozen=True, slots=True)
class Tuned:
    """A Model that is asked as a file says, where a request says nothing else."""

    model: Model
    thinking: Thinking | None
    sampling: Sampling

    @property
    def name(self) -> str:
        """The wrapped model's name."""
        return self.model.name

    def reply(self, request: Request) -> Iterator[ReplyEvent]:
        thinking = request.thinking or self.thinking
        sampling = self.sampling if request.sampling == AS_USUAL else request.sampling
        return self.model.reply(replace(request, thinking=thinking, sampling=sampling))


class Revocable:
    """Asks another model only while the session exists: nothing of a deleted session is sent any more."""

    def __init__(self, model: Model, is_there: Callable[[], bool]) -> None:
        """Wrap a model.

        Args:
            is_there: asks the database; once just before each sending, and every CHECK_EVERY_S while a reply arrives.
        """
        self._model = model
        self._is_there = is_there

    @property
    def name(self) -> str:
        """The wrapped model's name."""
        return self._model.name

    def reply(self, request: Request) -> Iterator[ReplyEvent]:
        """Ends with Interrupted also if the session is deleted: nothing was sent, or the call was ended."""
        if not self._is_there():
            raise Interrupted("Nothing was sent: the session is deleted.")
        check_at_s, is_gone = time.monotonic() + CHECK_EVERY_S, False

        def is_given_up() -> bool:
            nonlocal check_at_s, is_gone
            if not is_gone and time.monotonic() >= check_at_s:
                is_gone = not self._is_there()
                check_at_s = time.monotonic() + CHECK_EVERY_S
            return is_gone or request.is_given_up()

        yield from self._model.reply(replace(request, may_be_sent=self._is_there, is_given_up=is_given_up))


FRAME_TOKENS, MESSAGE_TOKENS, TOOLS_TOKENS = 128, 10, 810
"""Around a request and around each of its messages, generously; the provider's own text about tools, where there are
some (memory/layers.py)."""
TOKEN_BYTES = 3
"""Fewest bytes of a token of text, as a rule: English has more, Chinese as many."""


class BudgetMeter(Meter):
    """The Meter of one request that budgets limit; for one thread."""

    def __init__(
        self, budgets: Budgets, payer: Payer, *, input_tokens: int, clock_ms: Callable[[], int] = now_ms
    ) -> None:
        """Args: input_tokens: of the request, never fewer than the provider will count."""
        self.held: Reservation | None = None
        """What is set aside for the last try."""
        self.narrowed = ""
        """Which budget made its reply shorter than it might have been; empty: none."""
        self._budgets = budgets
        self._payer = payer
        self._input_tokens = input_tokens
        self._clock_ms = clock_ms

    def reserve(self, model: str, max_tokens: int) -> int:
        self.lose()
        found = rates(model, self._input_tokens)
        self._cost = CallCost(self._input_tokens, max_tokens, *(found or (None, None)))
        self.held = self._metered = self._budgets.reserve(self._payer, self._cost, now_ms=self._clock_ms())
        self._said, self._aside = 0.0, 0
        if self.held is None:
            return max_tokens
        self.narrowed, self._aside = self.held.grant.narrowed, self.held.grant.amount.tokens - self._input_tokens
        return self.held.grant.max_tokens

    def said(self, text: str) -> None:
        """As often as more comes than is set aside, set twice as much aside."""
        self._said += len(text.encode(errors="surrogatepass")) / TOKEN_BYTES
        while (held := self._metered) is not None and self._aside < min(self._said, held.grant.max_tokens):
            before, self._aside = self._aside, min(2 * self._aside, held.grant.max_tokens)
            more = self._cost.amount(self._aside) - self._cost.amount(before)
            try:
                self._budgets.extend(held, self._payer, more, now_ms=self._clock_ms())
            except Unavailable as error:  # a reply is worth more than its reserve
                log.warning("too little is set aside for a call: %s", error)
            except BudgetSpent as error:
                self.narrowed = str(error)
                raise

    def take(self) -> Reservation | None:
        """Hand over what is set aside for the last try, to be settled by what that used."""
        held, self.held = self.held, None
        return held

    def refund(self, used: Amount = NOTHING) -> None:
        if (held := self.take()) is None:
            return
        try:
            self._budgets.give_back(held, used, now_ms=self._clock_ms())
        except Unavailable as error:  # the sweep does it later, and the caller learns why its call failed
            log.warning("what was set aside for a call stays so: %s", error)

    def lose(self) -> None:
        """Count its input as spent, and what came of its reply."""
        if self.held is not None:
            self.refund(self._cost.amount(int(self._said)))


@dataclass(slots=True)
class PaidTry:
    """A try that came to nothing, or has not yet come to anything, as far as it is known what it used."""

    told: Usage
    held: Reservation | None = None
    said: list[str] = field(default_factory=list)
    """Its text so far: the provider tells the tokens of the output at its end alone."""
    model: str = ""
    """That was asked; empty: the turn's own."""

    def usage(self, model: str, count: Callable[[str], int]) -> Usage:
        """What it used as far as it is known, with its cost."""
        text, model = "".join(self.said), self.model or model
        usage = replace(self.told, output_tokens=max(self.told.output_tokens, count(text) if text else 0))
        return replace(usage, cost_usd=cost_usd(model, usage))

    @classmethod
    def from_json(cls, data: Json) -> "PaidTry":
        """Read what ``asdict`` made of it."""
        held = data["held"] and Reservation.from_json(data["held"])
        return cls(Usage(**data["told"]), held, data["said"], data.get("model", ""))

    @classmethod
    def untold(cls, held: Reservation, model: str = "") -> "PaidTry":
        """A try of which the provider told nothing: it took in what was sent; calls of tools were not made."""
        tokens = held.sent.tokens
        return cls(Usage(input_tokens=tokens, cost_usd=None, llm_calls=int(tokens > 0)), held, model=model)


class Metered:
    """A Model that asks another Model once the request's meter has set aside what that may cost.

    Put it inside Retrying: each try may cost as much.
    """

    def __init__(self, model: Model) -> None:
        self._model = model

    @property
    def name(self) -> str:
        """The wrapped model's name."""
        return self._model.name

    def reply(self, request: Request) -> Iterator[ReplyEvent]:
        """Raises BudgetSpent if the budget has no room for it; nothing was sent."""
        warn_of(self.name)
        max_tokens = request.meter.reserve(self.name, request.max_tokens)
        try:
            for event in self._model.reply(replace(request, max_tokens=max_tokens)):
                if isinstance(event, TextDelta | ThinkingDelta):
                    request.meter.said(event.text)
                yield event
        except (Overloaded, ProviderFailed, Unreached):  # it answered with a refusal, or was not asked at all
            request.meter.refund()
            raise


class OnBudget:
    """A Model whose calls are paid for by somebody else than a turn's answer: summaries, rankings. For one thread."""

    def __init__(self, model: Model, budgets: Budgets, payer: Payer, count: Callable[[str], int]) -> None:
        """Args: count: the model's tokens of a text, never too few."""
        self._model = model
        self._budgets = budgets
        self._payer = payer
        self._count = count
        self._meters: list[BudgetMeter] = []

    @property
    def name(self) -> str:
        """The wrapped model's name."""
        return self._model.name

    @property
    def held(self) -> tuple[Reservation, ...]:
        """What is set aside for calls that were not taken yet."""
        return tuple(meter.held for meter in self._meters if meter.held is not None)

    def take(self) -> tuple[Reservation, ...]:
        """What is set aside, for whoever settles it now."""
        return tuple(filter(None, (meter.take() for meter in self._meters)))

    def reply(self, request: Request) -> Iterator[ReplyEvent]:
        texts = [request.system, *(message.text for message in request.messages)]
        texts += [f"{tool.name}{tool.description}{dict(tool.input_schema)}" for tool in request.tools]
        texts += [json.dumps(request.shape.schema)] if request.shape else []
        tokens = sum(map(self._count, texts)) + FRAME_TOKENS + MESSAGE_TOKENS * len(request.messages)
        tokens += TOOLS_TOKENS + MESSAGE_TOKENS * len(request.tools) if request.tools or request.shape else 0
        meter = BudgetMeter(self._budgets, self._payer, input_tokens=tokens)
        self._meters = [*(each for each in self._meters if each.held), meter]
        try:
            yield from self._model.reply(replace(request, meter=meter, source=self._payer.source))
        except LoomError:
            meter.lose()
            raise
