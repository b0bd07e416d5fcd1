"""What the scripted model does in a turn: look at the tables, look names up, query, answer, or refuse in words.

A turn is a generator that yields its calls and is sent what came of each. Every reply begins it anew, and the calls
that were made before are answered from the request. A message that spells out a call, ``convert {"amount": 5}``, is
carried out as it stands: users can try their own tools without a pattern.
"""

import json
import re
from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace

from loom_worker.core.values.chat import ChatMessage, Request, ToolOutcome
from loom_worker.core.values.json import Json
from loom_worker.core.values.judges import CORRECTION
from loom_worker.demo.pattern_queries import (
    INTRODUCTION,
    NO_LLM,
    PatternQuery,
    choose,
    pattern_answer,
    read_queries,
    read_result,
    read_today,
    unfenced,
)
from loom_worker.demo.prompts import UNCHANGED, Prompt, asks_again, read_prompt
from loom_worker.demo.questions import answer, decisions, tables, values
from loom_worker.demo.questions.clauses import Value, names_left_out
from loom_worker.demo.questions.compose import NotQueryable, compose
from loom_worker.demo.questions.parse import read_plan, unknown_words
from loom_worker.demo.questions.plan import Plan
from loom_worker.demo.questions.shop import shop
from loom_worker.demo.questions.tables import TableQuestion, read_table_question
from loom_worker.demo.questions.words import corrected, has_terms, idle_left_out, plain, terms
from loom_worker.demo.slots import Slots, read
from loom_worker.demo.writing import written

MOST_CHARS = 2_000
"""Longest question that is read: reading takes time, and no form is nearly as long."""
_SPELLED_CALL = re.compile(r"\s*([A-Za-z0-9_-]{1,64})\s+(\{.*\})\s*", re.DOTALL)
"""A tool's name and its arguments as a JSON object."""
_SHOWN_CHARS = 2_000
"""Of what a tool returned for a spelled-out call."""
_NOT_CALLED = "I may call no more tools in this turn, so it was not called, and I have no rows."
_HELP = re.compile(
    r"(?:what|which(?: questions)?|how) (?:else )?(?:can|could|should|may)(?: (?:ask|know|find out|answer|help|work))*"
    r"(?: here| with| about)?|help|what for|how work|examples?|show examples?|who|what|what else|ok|so",
)
_NO_TABLE = re.compile(r"no such table|relation .* does not exist|table .* doesn't exist", re.IGNORECASE)
_SAYS_TRADE = re.compile(r"\b(?:sell|sold|cost|costs|buy|bought|spend|spent|make|made|work|works)\b")
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

    @property
    def has_own_patterns(self) -> bool:
        """Does a pattern shown read tables that are not the sample shop's?"""
        return any(not _SHOP_TABLES.issuperset(query.tables()) for query in self.queries)

    def chosen(
        self, text: str = "", found: Mapping[str, Mapping[str, tuple[str, ...]]] = {}
    ) -> tuple["CurrentTurn", PatternQuery] | None:
        """The turn with a template that accounts for each word of a text (or of the question), and the template."""
        if self.prompt.form != "text":
            return None
        best = choose(self.queries, idle_left_out(text or self.text), self.slots, found)
        return (replace(self, slots=best[1]), best[0]) if best else None


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
    return decisions.undecided(prompt.choices, said) if is_undecided else said


def _answering(turn: CurrentTurn) -> Steps:
    asked = read_table_question(turn.text) if turn.prompt.form == "text" else None
    if not turn.text or _HELP.fullmatch(idle_left_out(turn.text)) or "execute_sql" not in turn.tools:
        return (yield from _examples(turn))
    if asked is not None and asked.is_plain:
        return (yield from _tables(turn, asked))
    parsed = _read(turn, turn.text)
    if isinstance(parsed, Plan):
        return (yield from _planned(turn, parsed))
    if (chosen := turn.chosen()) is not None:
        return (yield from _by_pattern(*chosen))
    if turn.has_own_patterns or has_terms(terms(turn.text)) or _SAYS_TRADE.search(turn.text):
        return (yield from _with_names(turn, parsed))
    return _introduced(turn) if asked is None else (yield from _tables(turn, asked))


def _examples(turn: CurrentTurn) -> Steps:
    """What can be asked: the sample shop's examples, or the titles of patterns about the tables there are."""
    if "list_patterns" not in turn.tools:
        return INTRODUCTION
    names = tables.table_names(_told((yield "list_tables", {}))) or ()
    if not names or set(names) >= _SHOP_TABLES:
        return INTRODUCTION
    titles = re.findall(r"^- \S+: (.+)$", _told((yield "list_patterns", {})), re.MULTILINE)
    words = {word.rstrip("s") for name in names for word in re.findall(r"[a-z]{3,}", name.lower())}
    fitting = [each for each in titles if words & {word.rstrip("s") for word in re.findall(r"[a-z]+", each.lower())}]
    asked = [*fitting[:5], f"How many rows does the table {names[0]} have?", "Show me all tables"]
    first = INTRODUCTION.partition("\n")[0]
    return "\n".join([first, *(f"- {each}" for each in asked)])


def current(messages: tuple[ChatMessage, ...]) -> tuple[ChatMessage, tuple[ToolOutcome, ...]]:
    """The user message that is being answered, and the outcomes since."""
    since: list[ToolOutcome] = []
    for message in reversed(messages):
        if message.role == "user" and not message.text.startswith(CORRECTION):
            return message, tuple(since)
        since = [*message.outcomes, *since]
    return ChatMessage("user"), ()


def _spelled_call(request: Request, text: str) -> tuple[str, Json] | None:
    found = _SPELLED_CALL.fullmatch(text)
    if found is None or all(found[1] != tool.name for tool in request.tools):
        return None
    try:
        arguments = json.loads(found[2])
    except ValueError:
        return None
    return (found[1], arguments) if isinstance(arguments, dict) else None


def _with_names(turn: CurrentTurn, unread: str) -> Steps:
    """Words that no rule reads may be names: what the database holds can restrict the query."""
    own = {each for query in turn.queries for each in query.text_slots().items()}
    is_own = turn.has_own_patterns
    holds = tuple((name, *place) for name, place in sorted(own)) if is_own else shop().holds
    unknown = frozenset(turn.text.split()) if is_own else unknown_words(turn.text)
    runs = values.ngrams(turn.text, unknown) if holds else ()
    if not runs:
        return _refused(turn, f"I cannot put {unread} into a query")
    _, held = yield from _query(values.lookup_query(runs, holds))
    if held is None:
        return _refused(turn, f"I cannot put {unread} into a query of this database")
    text, found = values.marked(turn.text, runs, held)
    chosen = turn.chosen(text, {f"@v{n}": each.kinds for n, each in enumerate(found)})
    if chosen is not None:
        return (yield from _by_pattern(*chosen))
    parsed = _read(turn, text, found)
    if isinstance(parsed, Plan):
        return (yield from _planned(turn, parsed))
    rest = names_left_out(text)
    if found and (isinstance(_read(turn, rest), Plan) or turn.chosen(rest)):
        return _refused(turn, f"I cannot restrict this to {' and '.join(each.wording for each in found)}")
    return _refused(turn, f"I cannot put {parsed} into the query")


def _read(turn: CurrentTurn, text: str, found: tuple[Value, ...] = ()) -> Plan | str:
    """A plan over the shop's tables, or what of a text no rule reads."""
    parsed = read_plan(text, turn.slots, found, turn.notes)
    return "this" if not parsed or (turn.has_own_patterns and isinstance(parsed, Plan)) else parsed


def _planned(turn: CurrentTurn, plan: Plan) -> Steps:
    try:
        sql = compose(plan)
    except NotQueryable as error:
        return _refused(turn, f"I cannot {error}")
    query = next((query for query in turn.queries if _fits(query, plan)), None)
    if query is not None and turn.prompt.form == "text":
        is_default = turn.slots.n is None and query.defaults.get("n") == str(plan.head.limit)
        n = None if is_default else plan.head.limit
        return (yield from _by_pattern(replace(turn, slots=replace(turn.slots, n=n)), query))
    outcome, result = yield from _query(sql)
    if result is None and outcome.is_error and _NO_TABLE.search(outcome.content):
        return f"I have no answer: this database lacks a table that it needs. {yield from _examples(turn)}"
    if result is None:
        return _failed(outcome)
    said = decisions.worded(turn.prompt, plan, result, asks_several=turn.slots.n is not None)
    return said or _refused(turn, "the rows do not decide this")


def _by_pattern(turn: CurrentTurn, query: PatternQuery) -> Steps:
    outcome, result = yield from _query(query.query(turn.slots))
    return pattern_answer(query, turn.slots, result) if result else _failed(outcome, query)


def _query(sql: str) -> Generator[tuple[str, Json], ToolOutcome, tuple[ToolOutcome, Json | None]]:
    """Yields a query; returns what came of it, and its rows if they can be read."""
    outcome = yield "execute_sql", {"sql": sql}
    return outcome, read_result(_told(outcome))


def _told(outcome: ToolOutcome) -> str:
    """The data that a tool gave; empty if it failed."""
    return "" if outcome.is_error else unfenced(outcome.content)


def _fits(query: PatternQuery, plan: Plan) -> bool:
    """Does a pattern's template ask for the same as a plan?"""
    head, columns = plan.head, query.columns()
    if plan.wheres or plan.is_compared or plan.notes or head.fact != "sales" or not head.group or head.is_ascending:
        return False
    if (plan.periods and not query.takes_period()) or query.takes("n") != (head.limit is not None):
        return False
    ranks = head.limit is None or f"ORDER BY {head.measures[0]} DESC" in query.sql
    return ranks and columns[:2] == (head.group, head.measures[0]) and set(head.measures) <= set(columns)


def _tables(turn: CurrentTurn, asked: TableQuestion) -> Steps:
    """Answer about tables as such."""
    names = tables.table_names(_told((yield "list_tables", {})))
    if names is None:
        return _refused(turn, "I could not read the list of tables")
    if turn.slots.periods:
        return _refused(turn, f'I cannot restrict tables to the period "{turn.slots.periods[0].wording}"')
    if asked.kind == "tables":
        return "\n".join([f"The database has {len(names)} tables:", *names, "", NO_LLM])
    table = tables.named(asked.name, names)
    if table is None:
        return _refused(turn, f'"{asked.name}" is none of the tables ({", ".join(names)})')
    if asked.kind == "columns":
        columns = tables.columns_worded(table, _told((yield "get_schema", {"tables": [table]})))
        return f"{columns}\n\n{NO_LLM}" if columns else _refused(turn, f"I could not read the columns of {table}")
    outcome, result = yield from _query(tables.count_rows(table))
    if result is None or not result["rows"]:
        return _failed(outcome)
    return f"The table {table} has {result['rows'][0][0]:,} rows.\n\n{NO_LLM}"


def _introduced(turn: CurrentTurn) -> str:
    rest = idle_left_out(turn.text)
    for number, period in enumerate(turn.slots.periods):
        rest = rest.replace(f"@p{number}", period.wording)
    return f'I have no answer: I cannot put "{rest}" into a query. {INTRODUCTION}' if rest else INTRODUCTION


def _refused(turn: CurrentTurn, reason: str) -> str:
    titles = dict.fromkeys(query.title for query in turn.queries)
    offered = "".join(f"\n- {title}" for title in titles) if turn.has_own_patterns else None
    return answer.refusal(reason, offered)


def _failed(queried: ToolOutcome, query: PatternQuery | None = None) -> str:
    why = "failed" if queried.is_error else "gave a result I cannot read"
    of = f' of the pattern "{query.title}"' if query else ""
    return f"I have no answer: the query{of} {why}. {unfenced(queried.content)[:500]}"
