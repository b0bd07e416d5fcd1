"""`loom chat`: a session in the terminal."""

import contextlib

import click

from loom_worker.cli import talk
from loom_worker.cli.http import LoomClient, client, path_to
from loom_worker.cli.show import table
from loom_worker.core.errors import Rejected, Transient
from loom_worker.core.settings import from_env

HELP = """\
/help         this list
/new          begin a new session
/agent NAME   begin a new session with this agent
/agents       list the agents
/session      say which session and agent this is
/quit, /exit  end the chat, as Ctrl-D does; Ctrl-C leaves a running turn, which goes on
//text        ask /text: a question that begins with a slash"""


@click.command()
@click.option("--session", help="Continue this session; default a new one.")
@click.option("--agent", help="Of a new session; default the one named default.")
@click.option("--url", envvar="LOOM_URL", help="Of another Loom than the one of this LOOM_HOME.")
def chat(session: str | None, agent: str | None, url: str | None) -> None:
    """Talk in the terminal, streamed; /help lists what can be typed, /quit or Ctrl-D ends it."""
    # Line editing and history for input(), where Python was built with it.
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  # imported for its effect on input()
    talking = Chat(client(from_env(), url), session=session or talk.fresh_session("chat"), agent=agent)
    talking.begin()
    while talking.goes_on and (line := _line()) is not None:
        talking.take(line)


def _line() -> str | None:
    """What was typed, None at the end."""
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
        """Say which session this is.

        Raises:
            NotRunning, Transient: nobody answers.
            Rejected: there is no such agent.
        """
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
        self._session, self._agent = talk.fresh_session("chat"), agent
        try:
            self.begin()
        except (Rejected, Transient):
            self._session, self._agent = former
            raise

    def _ask(self, question: str) -> None:
        """One question and its answer, streamed."""
        teller = talk.terminal_teller()
        turn = None
        try:
            turn = talk.submit(self._loom, self._session, question, agent=self._agent)
            why = talk.verdict(talk.follow(self._loom, turn["id"], teller.tell))
        except KeyboardInterrupt:
            why = talk.still_running(turn["id"]) if turn else "not sent"
        except (Rejected, Transient) as error:
            why = str(error)
        teller.end()
        if why:
            _complain(why)


def _complain(why: str) -> None:
    click.echo(f"loom: {talk.printable(why)}", err=True)
