"""`loom ask` and `loom chat`: text as it comes, tools as notes, a repeated attempt from its start again."""

import contextlib
import secrets
import sys
from collections.abc import Callable

import click

from loom_worker.cli import sse
from loom_worker.cli.http import LoomClient, client, path_to, sendable
from loom_worker.cli.show import Api, common, printable, table, url_option
from loom_worker.core.errors import Rejected, Transient
from loom_worker.core.settings import from_env
from loom_worker.core.values.json import Json
from loom_worker.core.values.notifications import Event

HELP = """\
/help         this list
/new          begin a new session
/agent NAME   begin a new session with this agent
/agents       list the agents
/session      say which session and agent this is
/quit, /exit  end the chat, as Ctrl-D does; Ctrl-C leaves a running turn, which goes on
//text        ask /text: a question that begins with a slash"""


@click.command()
@click.argument("question")
@click.option("--session", help="Continue this session; default a new one.")
@click.option("--agent", help="Of a new session; default the one named default.")
@click.option("--said-at", help="When it was said, if not now: 2023-05-07T13:56:00Z.")
@common
@click.pass_context
def ask(
    ctx: click.Context, question: str, *, session: str | None, agent: str | None, said_at: str | None, api: Api
) -> None:
    """Ask one question and print the answer; exit code 0 if the turn completed.

    On a terminal the answer is streamed; into a pipe or file goes the turn's text alone. Stderr tells of waits.
    """
    if any("\ud800" <= letter <= "\udfff" for letter in question):  # bytes that were no UTF-8
        raise click.UsageError("the question is not valid text in this terminal's encoding")
    turn = submit(api.loom, session or fresh_session("ask"), question, agent=agent, said_at=said_at)
    is_streamed = sys.stdout.isatty() and not api.as_json
    teller = terminal_teller()
    tell = teller.tell if is_streamed else (lambda _: None) if api.as_json else teller.tell_wait
    try:
        turn = follow(api.loom, turn["id"], tell)
    except KeyboardInterrupt:
        click.echo(f"\n{still_running(turn['id'])}", err=True)
        ctx.exit(1)
    teller.end()
    if api.as_json or (not is_streamed and turn.get("output_text")):
        api.tell(turn, lambda turn: printable(turn["output_text"]))
    if why := verdict(turn):
        click.echo(f"loom: {why}", err=True)
        ctx.exit(1)


@click.command()
@click.option("--session", help="Continue this session; default a new one.")
@click.option("--agent", help="Of a new session; default the one named default.")
@url_option
def chat(session: str | None, agent: str | None, url: str | None) -> None:
    """Talk in the terminal, streamed; /help lists what can be typed, /quit or Ctrl-D ends it."""
    # Line editing and history for input(), where Python was built with it.
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  # imported for its effect on input()
    talking = Chat(client(from_env(), url), session=session or fresh_session("chat"), agent=agent)
    talking.begin()
    while talking.goes_on and (line := _line()) is not None:
        talking.take(line)


def _line() -> str | None:
    try:
        return input("you> ").strip()
    except (EOFError, KeyboardInterrupt):
        click.echo()
        return None


class Chat:
    """The session of a chat, and its slash commands."""

    def __init__(self, loom: LoomClient, *, session: str, agent: str | None) -> None:
        self._loom = loom
        self._session, self._agent = session, agent
        self.goes_on = True
        """False once the user has ended it."""

    def begin(self) -> None:
        """Say which session this is, once Loom answers and has the agent."""
        self._loom.call("GET", path_to("agents", self._agent) if self._agent else "/v1/agents?limit=1")
        of_agent = f" of the agent {self._agent}" if self._agent else ""
        click.echo(f"session {self._session}{of_agent}; /help lists what you can type, /quit ends,")
        click.echo(f"`loom chat --session {self._session}` continues")

    def take(self, line: str) -> None:
        """Do what a line says: ask, or what a command of HELP does; errors are printed, and the chat goes on."""
        try:
            if line.startswith("/") and not line.startswith("//"):
                self._obey(line)
            elif line:
                self._ask(line.removeprefix("/"))
        except (Rejected, Transient) as error:
            _complain(str(error))

    def _obey(self, line: str) -> None:
        name, _, value = line.partition(" ")
        match name, value.strip():
            case "/help", "":
                click.echo(HELP)
            case "/new", "":
                self._anew(self._agent)
            case "/agent", agent if agent:
                self._anew(agent)
            case "/agents", "":
                click.echo(table(self._loom.call("GET", "/v1/agents")["data"], ("name", "description")))
            case "/session", "":
                click.echo(f"session {self._session}, agent {self._agent or 'as the session has it'}")
            case (("/quit" | "/exit"), ""):
                self.goes_on = False
            case "/agent", _:
                _complain("/agent needs a name; /agents lists them")
            case (("/help" | "/new" | "/agents" | "/session" | "/quit" | "/exit"), _):
                _complain(f"{name} takes nothing behind it")
            case _:
                _complain(f"there is no command {name}; /help lists them. To ask what begins with a slash, type two")

    def _anew(self, agent: str | None) -> None:
        former = self._session, self._agent
        self._session, self._agent = fresh_session("chat"), agent
        try:
            self.begin()
        except (Rejected, Transient):
            self._session, self._agent = former
            raise

    def _ask(self, question: str) -> None:
        teller = terminal_teller()
        turn = None
        try:
            turn = submit(self._loom, self._session, question, agent=self._agent)
            why = verdict(follow(self._loom, turn["id"], teller.tell))
        except KeyboardInterrupt:
            why = still_running(turn["id"]) if turn else "not sent"
        except (Rejected, Transient) as error:
            why = str(error)
        teller.end()
        if why:
            _complain(why)


def _complain(why: str) -> None:
    click.echo(f"loom: {printable(why)}", err=True)


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
            case "model.fallback":
                self._remark(f"· {printable(str(event.data.get('model')))} is asked instead")
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
