"""What the scripted model does in a turn: look at the tables, look names up, query, answer, or refuse in words.

A turn is a generator that yields its calls and is sent what came of each. Every reply begins it anew, and the calls
that were made before are answered from the request. A message that spells out a call, ``convert {"amount": 5}``, is
carried out as it stands: users can try their own tools without a pattern.
"""

import json
import re
from collections.abc import Generator
from dataclasses import dataclass, replace

from loom_worker.core.values.chat import ChatMessage, Request, ToolOutcome
from loom_worker.core.values.json import Json
from loom_worker.core.values.judges import CORRECTION
from loom_worker.core.values.media import FILE_ID
from loom_worker.demo import answer
from loom_worker.demo.compose import NotQueryable, compose
from loom_worker.demo.pattern_queries import PatternQuery, choose, pattern_answer, read_queries
from loom_worker.demo.prompts import UNCHANGED, Prompt, asks_again, read_prompt
from loom_worker.demo.questions import names, tables
from loom_worker.demo.questions.parse import read_plan
from loom_worker.demo.questions.plan import Plan, Where
from loom_worker.demo.questions.vocabulary import corrected, idle_left_out, other_words, plain, shop, terms
from loom_worker.demo.rows import INTRODUCTION, NO_LLM, read_result, read_today, unfenced
from loom_worker.demo.slots import Slots, read
from loom_worker.demo.writing import written

MOST_CHARS = 2_000
"""Longest question that is read: reading takes time, and no form is nearly as long."""
_FILE = re.compile(rf"\s*\[(?:image|file) [^\]\n]*, {FILE_ID.pattern}\]\s*")
"""The line of a file in a message: the model sees none."""
_SPELLED_CALL = re.compile(r"\s*([A-Za-z0-9_-]{1,64})\s+(\{.*\})\s*", re.DOTALL)
"""A tool's name and its arguments as a JSON object."""
_SHOWN_CHARS = 2_000
"""Characters of what a tool returned for a spelled-out call."""
_NOT_CALLED = "I may call no more tools in this turn, so it was not called, and I have no rows."
_HELP = re.compile(
    r"(?:what|which(?: questions)?|how) (?:else )?(?:can|could|should|may)(?: (?:ask|know|find out|answer|help|work))*"
    r"(?: here| with| about)?|help|what for|how work|examples?|show examples?|who|what|what else|ok|so|",
)
_NO_TABLE = re.compile(r"no such table|relation .* does not exist|table .* doesn't exist", re.IGNORECASE)
_OF_THE_SHOP = re.compile(r"\b(?:[A-Z]{3,}|sell|sold|costs?|buy|bought|spend|spent|make|made|works?)\b")
"""Terms of the shop, and verbs of its trade."""
_SHOP_TABLES = frozenset(
    "categories suppliers products stores employees promotions customers orders order_lines payments returns".split()
)

Steps = Generator[tuple[str, Json], ToolOutcome, str]
"""Yields calls, is sent what came of each, and returns what is said in the end."""


@dataclass(frozen=True, slots=True)
class ScriptStep:
    """What the scripted model does: say a text, or call tools."""

    text: str
    calls: tuple[tuple[str, Json], ...] = ()


@dataclass(frozen=True, slots=True)
class CurrentTurn:
    """What is asked in the current turn of a request."""

    prompt: Prompt
    slots: Slots
    text: str
    """The question in plain words."""
    notes: tuple[str, ...]
    queries: tuple[PatternQuery, ...]
    tools: frozenset[str]
    """Names of those that may be called."""
    names: tuple[Where, ...] = ()
    """What ``@v0`` and so on of the text stand for."""

    @property
    def has_own_patterns(self) -> bool:
        """Does a pattern shown read tables that are not the sample shop's?"""
        return any(not _SHOP_TABLES.issuperset(query.tables()) for query in self.queries)

    def read(self) -> Plan | str:
        """A plan over the shop's tables, or what of the text no form reads."""
        parsed = read_plan(self.text, self.slots, self.names, self.notes)
        return "this" if self.has_own_patterns and isinstance(parsed, Plan) else parsed

    def answered(self) -> Steps | None:
        """What answers a turn that can be read whole: a plan, or else a template that accounts for each word."""
        if isinstance(plan := self.read(), Plan):
            return _planned(self, plan)
        kinds = {f"@v{n}": each.kinds for n, each in enumerate(self.names)}
        found = choose(self.queries, idle_left_out(self.text), self.slots, kinds)
        return _by_pattern(*found) if found and self.prompt.form == "text" else None


def next_step(request: Request) -> ScriptStep:
    """Decide the next step of the current turn; a pure function of the request."""
    question, outcomes = current(request.messages)
    steps, made = _steps(request, question), iter(outcomes)
    try:
        call = next(steps)
        while True:
            outcome = next((each for each in made if each.name == call[0]), None)
            if outcome is None and request.may_call_tools and any(each.name == call[0] for each in request.tools):
                return ScriptStep("", (call,))
            call = steps.send(outcome or ToolOutcome("", call[0], _NOT_CALLED, is_error=True))
    except StopIteration as end:
        return ScriptStep(end.value)


def current(messages: tuple[ChatMessage, ...]) -> tuple[ChatMessage, tuple[ToolOutcome, ...]]:
    """The user message that is being answered, and the outcomes since."""
    since: list[ToolOutcome] = []
    for message in reversed(messages):
        if message.role == "user" and not message.text.startswith(CORRECTION):
            return replace(message, text=_FILE.sub(" ", message.text)), tuple(since)
        since = [*message.outcomes, *since]
    return ChatMessage("user"), ()


def _steps(request: Request, question: ChatMessage) -> Steps:
    if call := _spelled_call(request, question.text):
        outcome = yield call
        return f"{call[0]} {'failed' if outcome.is_error else 'gave'}: {unfenced(outcome.content)[:_SHOWN_CHARS]}"
    if asks_again(question.text):
        return UNCHANGED
    if (made := written(question.text)) is not None:
        return made
    prompt = read_prompt(question.text)
    if len(prompt.question) > MOST_CHARS:
        return f"I have no answer: I read questions of up to {MOST_CHARS:,} characters. {INTRODUCTION}"
    slots = read(prompt.question, read_today(question.context))
    tools = frozenset(each.name for each in request.tools)
    turn = CurrentTurn(prompt, slots, *corrected(plain(slots.marked)), read_queries(question.context), tools)
    said = yield from _answering(turn)
    is_undecided = prompt.form == "choice" and said not in prompt.choices
    return answer.undecided(prompt.choices, said) if is_undecided else said


def _spelled_call(request: Request, text: str) -> tuple[str, Json] | None:
    found = _SPELLED_CALL.fullmatch(text)
    if found is None or all(found[1] != tool.name for tool in request.tools):
        return None
    try:
        arguments = json.loads(found[2])
    except ValueError:
        return None
    return (found[1], arguments) if isinstance(arguments, dict) else None


def _answering(turn: CurrentTurn) -> Steps:
    if _HELP.fullmatch(idle_left_out(turn.text)) or "execute_sql" not in turn.tools:
        return (yield from _examples(turn))
    asked = tables.read_table_question(turn.text) if turn.prompt.form == "text" else None
    if asked is not None and asked.is_plain:
        return (yield from _tables(turn, asked))
    if (found := turn.answered()) is not None:
        return (yield from found)
    if turn.has_own_patterns or _OF_THE_SHOP.search(terms(turn.text)):
        return (yield from _with_names(turn))
    return (yield from _tables(turn, asked)) if asked else _refused(turn, f"I cannot put {turn.read()} into a query")


def _with_names(turn: CurrentTurn) -> Steps:
    """Words that no form reads may be names: what the database holds can restrict the query."""
    own = {(name, *place) for query in turn.queries for name, place in query.text_slots().items()}
    holds = sorted(own) if turn.has_own_patterns else [tuple(each) for each in shop().words["holds"]]
    unknown = turn.text.split() if turn.has_own_patterns else other_words(turn.text)
    held: Json | None = None
    if holds and unknown:
        held = read_result(_told((yield "execute_sql", {"sql": names.lookup_query(turn.text, unknown, holds)})))
    if held is None:
        return _refused(turn, f"I cannot put {turn.read()} into a query")
    text, found = names.marked(turn.text, unknown, held)
    turn = replace(turn, text=text, names=found)
    if (steps := turn.answered()) is not None:
        return (yield from steps)
    said = " and ".join(each.wording for each in found)
    return _refused(turn, f"I cannot put {turn.read()} into a query{f' restricted to {said}' if said else ''}")


def _planned(turn: CurrentTurn, plan: Plan) -> Steps:
    try:
        sql = compose(plan)
    except NotQueryable as error:
        return _refused(turn, f"I cannot {error}")
    query = next((query for query in turn.queries if _fits(query, plan)), None)
    if query is not None and turn.prompt.form == "text":
        is_default = turn.slots.n is None and query.defaults.get("n") == str(plan.limit)
        return (yield from _by_pattern(query, replace(turn.slots, n=None if is_default else plan.limit)))
    outcome = yield "execute_sql", {"sql": sql}
    result = read_result(_told(outcome))
    if result is None and outcome.is_error and _NO_TABLE.search(outcome.content):
        return f"I have no answer: this database lacks a table that it needs. {yield from _examples(turn)}"
    if result is None:
        return _failed(outcome)
    said = answer.worded(turn.prompt, plan, result, asks_several=turn.slots.n is not None)
    return said or _refused(turn, "the rows do not decide this")


def _fits(query: PatternQuery, plan: Plan) -> bool:
    """Does a pattern's template ask for the same as a plan?"""
    columns = query.columns()
    if plan.wheres or plan.is_compared or plan.notes or plan.fact != "sales" or not plan.group or plan.is_ascending:
        return False
    if (plan.periods and not query.takes_period()) or query.takes("n") != (plan.limit is not None):
        return False
    ranks = plan.limit is None or f"ORDER BY {plan.measures[0]} DESC" in query.sql
    return ranks and columns[:2] == (plan.group, plan.measures[0]) and set(plan.measures) <= set(columns)


def _by_pattern(query: PatternQuery, slots: Slots) -> Steps:
    outcome = yield "execute_sql", {"sql": query.query(slots)}
    result = read_result(_told(outcome))
    return pattern_answer(query, slots, result) if result else _failed(outcome, f' of the pattern "{query.title}"')


def _tables(turn: CurrentTurn, asked: tables.TableQuestion) -> Steps:
    """Answer about tables as such."""
    listed = tables.read_tables(_told((yield "list_tables", {})))
    if listed is None:
        return _refused(turn, "I could not read the list of tables")
    if turn.slots.periods:
        return _refused(turn, f'I cannot restrict tables to the period "{turn.slots.periods[0].wording}"')
    known = [str(each["name"]) for each in listed]
    if asked.kind == "tables":
        return "\n".join([f"The database has {len(known)} tables:", *known, "", NO_LLM])
    if (table := tables.named(asked.name, known)) is None:
        return _refused(turn, f'"{asked.name}" is none of the tables ({", ".join(known)})')
    if asked.kind == "columns":
        found = tables.read_tables(_told((yield "get_schema", {"tables": [table]})))
        columns = [f"{each['name']} {each.get('type', '')}".strip() for each in found[0]["columns"]] if found else []
        if not columns:
            return _refused(turn, f"I could not read the columns of {table}")
        return "\n".join([f"The table {table} has {len(columns)} columns:", *columns, "", NO_LLM])
    outcome = yield "execute_sql", {"sql": tables.count_rows(table)}
    result = read_result(_told(outcome))
    counted = result and result["rows"]
    return f"The table {table} has {counted[0][0]:,} rows.\n\n{NO_LLM}" if counted else _failed(outcome)


def _examples(turn: CurrentTurn) -> Steps:
    """What can be asked: the sample shop's examples, or the titles of patterns about the tables there are."""
    if "list_patterns" not in turn.tools:
        return INTRODUCTION
    known = [str(each["name"]) for each in tables.read_tables(_told((yield "list_tables", {}))) or ()]
    if not known or set(known) >= _SHOP_TABLES:
        return INTRODUCTION
    titles = re.findall(r"^- \S+: (.+)$", _told((yield "list_patterns", {})), re.MULTILINE)
    words = {word.rstrip("s") for name in known for word in re.findall(r"[a-z]{3,}", name.lower())}
    fitting = [each for each in titles if words & {word.rstrip("s") for word in re.findall(r"[a-z]+", each.lower())}]
    asked = [*fitting[:5], f"How many rows does the table {known[0]} have?", "Show me all tables"]
    return "\n- ".join([INTRODUCTION.partition("\n")[0], *asked])


def _told(outcome: ToolOutcome) -> str:
    """The data that a tool gave; empty if it failed."""
    return "" if outcome.is_error else unfenced(outcome.content)


def _refused(turn: CurrentTurn, reason: str) -> str:
    first, *examples = INTRODUCTION.splitlines()
    if turn.has_own_patterns:
        examples = [f"- {title}" for title in dict.fromkeys(query.title for query in turn.queries)]
    return "\n".join([f"{answer.NO_ANSWER}{reason}.", first, *examples])


def _failed(queried: ToolOutcome, of: str = "") -> str:
    why = "failed" if queried.is_error else "gave a result I cannot read"
    return f"I have no answer: the query{of} {why}. {unfenced(queried.content)[:500]}"
