"""The error tree, by what the catcher does. str(error) of each is safe to show to a user."""

from dataclasses import dataclass


class LoomError(Exception):
    """Base of all we raise; its first argument is the text, the others are data for the catcher."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class Rejected(LoomError):
    """The request is wrong: answer 4xx, never retry.

    The last argument, if it is not the first and a str, is the problem's slug, such as ``session-archived``.
    """

    @property
    def slug(self) -> str | None:
        """Which problem this is, for programs; None where the class says enough."""
        last = self.args[-1] if len(self.args) > 1 else None
        return last if isinstance(last, str) else None


class NotFound(Rejected):
    """No such thing in this workspace (404, also for what belongs to others)."""


class Forbidden(Rejected):
    """Whoever asks may not do that, with this key or at all (403)."""


class Conflict(Rejected):
    """The thing is in another state than the request needs (409)."""


@dataclass(frozen=True, slots=True)
class Flaw:
    """One invalid place of a request body."""

    pointer: str
    """JSON pointer of the place, such as ``/webhook/url``."""
    detail: str


class Invalid(Rejected):
    """Well-formed, but its values are refused (422); ``args[1]`` is a tuple of Flaw."""

    @property
    def flaws(self) -> tuple[Flaw, ...]:
        """The places that are wrong; empty when the whole is."""
        return self.args[1] if len(self.args) > 1 else ()


class QueueFull(Rejected):
    """A lane or a workspace has all it may have (429); ``args[1]`` is retry_after_s, None if waiting does not help."""


class Transient(LoomError):
    """The world is busy: try again later."""


class Unavailable(Transient):
    """The database or the broker did not answer (503); ``args[1]``, if given, is the problem's slug."""

    @property
    def slug(self) -> str | None:
        """Which problem this is, such as ``storage-full``; None where the class says enough."""
        return self.args[1] if len(self.args) > 1 else None


class Conflicted(Unavailable):
    """Another transaction was in the way of this one; the same may succeed when it is tried once more."""


class Overloaded(Transient):
    """The provider asks us to wait; ``args[1]`` is its request in seconds, or None."""

    @property
    def retry_after_s(self) -> float | None:
        """Seconds the provider asked for, None if it named none."""
        return self.args[1] if len(self.args) > 1 else None


class LeftAlone(Overloaded):
    """The provider keeps failing, so it is not even asked for ``args[1]`` seconds: this says no more of it."""


class StreamBroken(Transient):
    """A reply ended before it was complete: cut, silent, malformed or over its deadline."""


class Unreached(StreamBroken):
    """No connection came about, so nothing was sent."""


class ProviderFailed(LoomError):
    """The provider refuses this request for good (bad key, unknown model, invalid input)."""


class NoAccess(ProviderFailed):
    """It gives this account nothing, or not this model (key, credit, permission, unknown name), whatever is asked."""


class PromptTooLong(ProviderFailed):
    """The provider counts more input than it takes; ``args[1:]`` are tokens and limit, None where it did not say."""

    @property
    def tokens(self) -> int | None:
        """Input tokens of the request, as the provider counts them."""
        return self.args[1] if len(self.args) > 1 else None

    @property
    def limit(self) -> int | None:
        """Input tokens that would have fitted with the requested output."""
        return self.args[2] if len(self.args) > 2 else None


class Interrupted(LoomError):
    """This process stops, or lost its lease: leave the turn to another, charge nothing."""


class Fenced(LoomError):
    """Another worker owns the turn by now: stop, write nothing."""


class Overruled(LoomError):
    """The client's cancel request to end the turn came before its end: nothing was written, decide again."""


class BudgetExceeded(LoomError):
    """What must be sent does not fit the model's window."""


class BudgetSpent(LoomError):
    """A budget in money, tokens or calls has too little left; ``args[1]`` is when it renews (ms), None if never."""

    @property
    def renews_ms(self) -> int | None:
        """Milliseconds since 1970."""
        return self.args[1] if len(self.args) > 1 else None


class BudgetHeld(BudgetSpent):
    """It has too little left only as long as other calls have some of it set aside."""


class JudgeFailed(LoomError):
    """A judge can give no score: what that means for the answer is for its criticality to say."""


class ToolFailed(LoomError):
    """The model gets 100 characters of it, the store keeps the rest, the turn goes on.

    ``args[1]``, if given, is the code: INVALID_INPUT, ERROR_NOT_FOUND, DATABASE_ERROR, UNAVAILABLE, or one
    of the tool's own in capitals.
    """

    @property
    def code(self) -> str | None:
        """The code for the model, None where none fits."""
        return self.args[1] if len(self.args) > 1 else None


class BadFile(LoomError):
    """A file of the user's (agent, pattern) cannot be used; the text names file and line."""


class BadSettings(LoomError):
    """One or more settings are wrong; the text lists every one of them."""
