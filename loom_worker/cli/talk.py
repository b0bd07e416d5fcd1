"""A turn as the terminal shows it: text as it comes, tools as notes, a repeated attempt from its start again."""

import secrets
from collections.abc import Callable

import click

from loom_worker.cli import sse
from loom_worker.cli.http import LoomClient, path_to, sendable
from loom_worker.core.values.json import Json
from loom_worker.core.values.notifications import Event

# A model's text may carry escape sequences that retitle or repaint the terminal: only line ends and tabs pass.
_CONTROLS = {code: None for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}


def printable(text: str) -> str:
    """The text without control characters."""
    return text.translate(_CONTROLS)


def fresh_session(prefix: str) -> str:
    """A session id that nobody used."""
    return f"{prefix}-{secrets.token_hex(4)}"


class Teller:
    """Writes what the events of one turn say."""

    def __init__(self, write: Callable[[str], None], note: Callable[[str], None]) -> None:
        self._write, self._note = write, note
        self.is_mid_line = False
        """True if the last text did not end with a line end."""
        self._is_after_note = False

    def tell(self, event: Event) -> None:
        """Say this event; most say nothing."""
        match event.type:
            case "output_text.delta":
                self._text(printable(str(event.data.get("text", ""))))
            case "tool_call.started":
                self._remark(f"· {printable(str(event.data.get('name', 'tool')))} …")
            case "judge.verdict":
                self._remark(f"· {judged(event.data)}")
            case sse.COMMENT if not self.is_mid_line:
                self._remark(f"· {printable(str(event.data.get('text', '')))}")
            case "turn.retrying" | "stream.reset":
                self._remark("· from the start again: what was said before this line does not count")

    def tell_wait(self, event: Event) -> None:
        """Say only what is waited for."""
        if event.type == sse.COMMENT:
            self.tell(event)

    def end(self) -> None:
        """Close the line that is open."""
        if self.is_mid_line:
            self._text("\n")

    def _text(self, text: str) -> None:
        if self._is_after_note:
            text = text.lstrip("\n")  # the note has parted what was said before it already
        if text:
            self._write(text)
            self.is_mid_line = not text.endswith("\n")
            self._is_after_note = False

    def _remark(self, text: str) -> None:
        self.end()
        self._note(text)
        self._is_after_note = True


def terminal_teller() -> Teller:
    """Text to stdout as it comes, notes to stderr."""
    return Teller(lambda text: click.echo(text, nl=False), lambda text: click.secho(text, err=True, dim=True))


def submit(
    client: LoomClient, session: str, question: str, *, agent: str | None = None, said_at: str | None = None
) -> Json:
    """Post the question to the session; the accepted Turn.

    Args:
        agent: of a session that begins with this turn; another one than the session has is refused.
        said_at: when it was said, as RFC 3339; now, unless given.
    """
    path = path_to("sessions", session, "turns")
    more = {name: sendable(value) for name, value in (("agent", agent), ("said_at", said_at)) if value is not None}
    body = {"input": sendable(question), **more}
    return client.call("POST", path, body=body)


def follow(client: LoomClient, turn_id: str, tell: Callable[[Event], None]) -> Json:
    """Tell every event until the turn has ended; the finished Turn.

    Raises:
        StreamBroken: no event came for a minute.
    """
    path = f"/v1/turns/{turn_id}"
    for event in sse.follow(lambda last_id: client.stream(f"{path}/events", last_event_id=last_id)):
        tell(event)
    return client.call("GET", path)


def verdict(turn: Json) -> str:
    """Why a turn that did not complete has no answer, in a line; empty for one that completed."""
    if turn["status"] == "completed":
        return ""
    error = turn.get("error") or {}
    why = ", ".join(str(part) for part in (turn.get("reason"), error.get("message")) if part)
    return printable(f"the turn {turn['id']} is {turn['status']}" + (f" ({why})" if why else ""))


def judged(judge: Json) -> str:
    """What judges made of an answer, in a line: the score, and who of them found fault or gave no score."""
    score, verdicts = judge.get("score"), judge.get("verdicts", ())
    against = [str(one.get("name")) for one in verdicts if not (one.get("passed") or one.get("status") == "undecided")]
    names = f" (not passed by {', '.join(against)})" if against else ""
    again = "" if judge.get("is_last", True) else ", so the model answers again"
    return printable(f"judged {'by nobody' if score is None else f'{score:g}'}{names}{again}")


def still_running(turn_id: str) -> str:
    """What to tell somebody who looks away from a running turn."""
    return f"the turn goes on; see it with `loom turns {turn_id}`"
