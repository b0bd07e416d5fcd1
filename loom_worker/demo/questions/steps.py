"""What the scripted model does next in a turn: look at the tables, look names up, query, answer, or refuse in words.

A message that spells out a call, ``convert {"amount": 5}``, is carried out as it stands: users can try their own tools
without a pattern_queries.
"""

import json
import re
from collections.abc import Mapping
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
from loom_worker.demo.questions.clauses import names_left_out
from loom_worker.demo.questions.compose import NotQueryable, compose
from loom_worker.demo.questions.parse import read_plan, text_of, unknown_words
from loom_worker.demo.questions.plan import Plan
from loom_worker.demo.questions.shop import shop
from loom_worker.demo.questions.tables import TableQuestion, read_table_question
from loom_worker.demo.questions.words import has_terms, idle_left_out, terms
from loom_worker.demo.slots import Slots, read
from loom_worker.demo.writing import written

MOST_CHARS = 2_000
"""Longest question that is read: reading takes time, and no form is nearly as long."""
_SPELLED_CALL = re.compile(r"\s*([A-Za-z0-9_-]{1,64})\s+(\{.*\})\s*", re.DOTALL)
"""A tool's name and its arguments as a JSON object."""
_SHOWN_CHARS = 2_000
"""Of what a tool returned for a spelled-out call."""


_HELP = re.compile(
    r"(?:what|which(?: questions)?|how) (?:else )?(?:can|could|should|may)(?: (?:ask|know|find out|answer|help|work))*"
    r"(?: here| with| about)?|help|what for|how work|examples?|show examples?|who|what|what else|ok|so",
)
_SAYS_TRADE = re.compile(r"\b(?:sell|sold|cost|costs|buy|bought|spend|spent|make|made|work|works)\b")
_SHOP_TABLES = frozenset(
    "categories suppliers products stores employees promotions customers orders order_lines payments returns".split()
)


@dataclass(frozen=True, slots=True)
class ScriptStep:
    """What the scripted model does: say a text, call tools, or both."""

    text: str
    calls: tuple[tuple[str, Json], ...] = ()


@dataclass(frozen=True, slots=True)
class CurrentTurn:
    """The current turn of a request, as far as it has come."""

    request: Request
    prompt: Prompt
    slots: Slots
    text: str
    """The question in plain words."""
    notes: tuple[str, ...]
    queries: tuple[PatternQuery, ...]
    outcomes: tuple[ToolOutcome, ...]
    """Of this turn's calls, the oldest first."""

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

    def has(self, tool: str) -> bool:
        """May this tool be called?"""
        return any(each.name == tool for each in self.request.tools)

    def outcome(self, tool: str) -> ToolOutcome | None:
        """What the latest call of a tool gave."""
        return next((each for each in reversed(self.outcomes) if each.name == tool), None)

    def queried(self, number: int) -> ToolOutcome | None:
        """What the query of that number (0 is the first) of this turn gave."""
        made = [each for each in self.outcomes if each.name == "execute_sql"]
        return made[number] if number < len(made) else None


def next_step(request: Request) -> ScriptStep:
    """Decide the next step of the current turn; a pure function of the request."""
    question, outcomes = current(request.messages)
    if call := _spelled_call(request, question.text):
        return _call_step(request, call, outcomes)
    if asks_again(question.text):
        return ScriptStep(UNCHANGED)
    if (made := written(question.text)) is not None:
        return ScriptStep(made)
    prompt = read_prompt(question.text)
    if len(prompt.question) > MOST_CHARS:
        return ScriptStep(f"I have no answer: I read questions of up to {MOST_CHARS:,} characters. {INTRODUCTION}")
    slots = read(prompt.question, read_today(question.context))
    text, notes = text_of(slots)
    turn = CurrentTurn(request, prompt, slots, text, notes, read_queries(question.context), outcomes)
    step = _within_limits(turn, _answering(turn))
    is_undecided = prompt.form == "choice" and not step.calls and step.text not in prompt.choices
    return ScriptStep(decisions.undecided(prompt.choices, step.text)) if is_undecided else step


def _answering(turn: CurrentTurn) -> ScriptStep:
    """The next step towards the answer to a question."""
    asked = read_table_question(turn.text) if turn.prompt.form == "text" else None
    if not turn.text or _HELP.fullmatch(idle_left_out(turn.text)) or not turn.has("execute_sql"):
        return _examples(turn)
    if asked is not None and asked.is_plain:
        return _tables(turn, asked)
    parsed = read_plan(turn.text, turn.slots, notes=turn.notes)
    if parsed.plan is not None and not turn.has_own_patterns:
        return _planned(turn, parsed.plan, before=0)
    if (chosen := turn.chosen()) is not None:
        return _by_pattern(*chosen)
    if turn.has_own_patterns:
        return _with_names(turn, parsed.unread)
    if has_terms(terms(turn.text)) or _SAYS_TRADE.search(turn.text):
        return _with_names(turn, parsed.unread)
    return ScriptStep(_introduced(turn)) if asked is None else _tables(turn, asked)


def _examples(turn: CurrentTurn) -> ScriptStep:
    """What can be asked: the sample shop's examples, or the titles of patterns about the tables there are."""
    looks: tuple[tuple[str, Json], ...] = tuple(
        (name, {}) for name in ("list_tables", "list_patterns") if turn.has(name)
    )
    if len(looks) < 2 or not turn.request.may_call_tools:
        return ScriptStep(INTRODUCTION)
    outcomes = [turn.outcome(name) for name, _ in looks]
    if None in outcomes:
        return ScriptStep("", looks)
    listed, patterns = (unfenced(each.content) if each and not each.is_error else "" for each in outcomes)
    names = tables.table_names(listed) or ()
    if not names or set(names) >= _SHOP_TABLES:
        return ScriptStep(INTRODUCTION)
    words = {word.rstrip("s") for name in names for word in re.findall(r"[a-z]{3,}", name.lower())}
    titles = re.findall(r"^- \S+: (.+)$", patterns, re.MULTILINE)
    fitting = [each for each in titles if words & {word.rstrip("s") for word in re.findall(r"[a-z]+", each.lower())}]
    asked = [*fitting[:5], f"How many rows does the table {names[0]} have?", "Show me all tables"]
    first = INTRODUCTION.partition("\n")[0]
    return ScriptStep("\n".join([first, *(f"- {each}" for each in asked)]))


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


def _call_step(request: Request, call: tuple[str, Json], outcomes: tuple[ToolOutcome, ...]) -> ScriptStep:
    outcome = next((each for each in reversed(outcomes) if each.name == call[0]), None)
    if outcome is not None:
        shown = unfenced(outcome.content)[:_SHOWN_CHARS]
        return ScriptStep(f"{call[0]} {'failed' if outcome.is_error else 'gave'}: {shown}")
    if not request.may_call_tools:
        return ScriptStep(f"I may call no more tools in this turn, so {call[0]} was not called.")
    return ScriptStep(f"I call {call[0]}, as you say.", (call,))


def _within_limits(turn: CurrentTurn, step: ScriptStep) -> ScriptStep:
    if step.calls and not turn.request.may_call_tools:
        return ScriptStep(
            f"I may call no more tools in this turn and have no rows yet, so I cannot answer. {INTRODUCTION}"
        )
    return step


def _with_names(turn: CurrentTurn, unread: str) -> ScriptStep:
    """Words that no rule reads may be names: what the database holds can restrict the query."""
    own = {each for query in turn.queries for each in query.text_slots().items()}
    is_own = turn.has_own_patterns
    holds = tuple((name, *place) for name, place in sorted(own)) if is_own else shop().holds
    unknown = frozenset(turn.text.split()) if is_own else unknown_words(turn.text)
    runs = values.ngrams(turn.text, unknown) if holds else ()
    if not runs:
        return _refused(turn, f"I cannot put {unread or 'this'} into a query")
    looked = turn.queried(0)
    if looked is None:
        return ScriptStep("", (("execute_sql", {"sql": values.lookup_query(runs, holds)}),))
    held = None if looked.is_error else read_result(unfenced(looked.content))
    if held is None:
        return _refused(turn, f"I cannot put {unread} into a query of this database")
    text, found = values.marked(turn.text, runs, held)
    chosen = turn.chosen(text, {f"@v{n}": each.kinds for n, each in enumerate(found)})
    if chosen is not None:
        return _by_pattern(*chosen, before=1)
    parsed = read_plan(text, turn.slots, found, turn.notes)
    if parsed.plan is not None and not is_own:
        return _planned(turn, parsed.plan, before=1)
    rest = names_left_out(text)
    if found and (read_plan(rest, turn.slots).plan or turn.chosen(rest)):
        return _refused(turn, f"I cannot restrict this to {' and '.join(each.wording for each in found)}")
    return _refused(turn, f"I cannot put {parsed.unread} into the query")


def _planned(turn: CurrentTurn, plan: Plan, *, before: int) -> ScriptStep:
    """Carry out a plan; ``before`` queries have been made to look names up."""
    try:
        sql = compose(plan)
    except NotQueryable as error:
        return _refused(turn, f"I cannot {error}")
    query = next((query for query in turn.queries if _fits(query, plan)), None)
    if query is not None and turn.prompt.form == "text":
        is_default = turn.slots.n is None and query.defaults.get("n") == str(plan.head.limit)
        n = None if is_default else plan.head.limit
        return _by_pattern(replace(turn, slots=replace(turn.slots, n=n)), query)
    queried = turn.queried(before)
    if queried is None:
        return ScriptStep("", (("execute_sql", {"sql": sql}),))
    result = None if queried.is_error else read_result(unfenced(queried.content))
    if result is None:
        return ScriptStep(_failed(queried))
    said = decisions.worded(turn.prompt, plan, result, asks_several=turn.slots.n is not None)
    return ScriptStep(said) if said else _refused(turn, "the rows do not decide this")


def _by_pattern(turn: CurrentTurn, query: PatternQuery, *, before: int = 0) -> ScriptStep:
    queried = turn.queried(before)
    if queried is None:
        return ScriptStep("", (("execute_sql", {"sql": query.query(turn.slots)}),))
    result = None if queried.is_error else read_result(unfenced(queried.content))
    return ScriptStep(pattern_answer(query, turn.slots, result) if result else _failed(queried, query))


def _fits(query: PatternQuery, plan: Plan) -> bool:
    """Does a pattern's template ask for the same as a plan?"""
    head, columns = plan.head, query.columns()
    if plan.wheres or plan.is_compared or plan.notes or head.fact != "sales" or not head.group:
        return False
    if (plan.periods and not query.takes_period()) or query.takes("n") != (head.limit is not None):
        return False
    ranks = head.limit is None or f"ORDER BY {head.measures[0]} DESC" in query.sql
    return ranks and columns[:2] == (head.group, head.measures[0]) and set(head.measures) <= set(columns)


def _tables(turn: CurrentTurn, asked: TableQuestion) -> ScriptStep:
    """Answer about tables as such."""
    listed = turn.outcome("list_tables")
    if listed is None:
        look = ScriptStep("", (("list_tables", {}),))
        return look if turn.has("list_tables") else _refused(turn, "I have no tool that lists the tables")
    names = None if listed.is_error else tables.table_names(unfenced(listed.content))
    if names is None:
        return _refused(turn, "I could not read the list of tables")
    if turn.slots.periods:
        return _refused(turn, f'I cannot restrict tables to the period "{turn.slots.periods[0].wording}"')
    if asked.kind == "tables":
        return ScriptStep("\n".join([f"The database has {len(names)} tables:", *names, "", NO_LLM]))
    table = tables.named(asked.name, names)
    if table is None:
        return _refused(turn, f'"{asked.name}" is none of the tables ({", ".join(names)})')
    return _columns(turn, table) if asked.kind == "columns" else _rows(turn, table)


def _columns(turn: CurrentTurn, table: str) -> ScriptStep:
    given = turn.outcome("get_schema")
    if given is None:
        look = ScriptStep("", (("get_schema", {"tables": [table]}),))
        return look if turn.has("get_schema") else _refused(turn, "I have no tool that shows a table's columns")
    columns = None if given.is_error else tables.columns_worded(table, unfenced(given.content))
    return (
        ScriptStep(f"{columns}\n\n{NO_LLM}") if columns else _refused(turn, f"I could not read the columns of {table}")
    )


def _rows(turn: CurrentTurn, table: str) -> ScriptStep:
    queried = turn.queried(0)
    if queried is None:
        return ScriptStep("", (("execute_sql", {"sql": tables.count_rows(table)}),))
    result = None if queried.is_error else read_result(unfenced(queried.content))
    if result is None or not result["rows"]:
        return ScriptStep(_failed(queried))
    return ScriptStep(f"The table {table} has {result['rows'][0][0]:,} rows.\n\n{NO_LLM}")


def _introduced(turn: CurrentTurn) -> str:
    rest = idle_left_out(turn.text)
    for number, period in enumerate(turn.slots.periods):
        rest = rest.replace(f"@p{number}", period.wording)
    return f'I have no answer: I cannot put "{rest}" into a query. {INTRODUCTION}' if rest else INTRODUCTION


def _refused(turn: CurrentTurn, reason: str) -> ScriptStep:
    titles = dict.fromkeys(query.title for query in turn.queries)
    offered = "".join(f"\n- {title}" for title in titles) if turn.has_own_patterns else None
    return ScriptStep(answer.refusal(reason, offered))


def _failed(queried: ToolOutcome, query: PatternQuery | None = None) -> str:
    why = "failed" if queried.is_error else "gave a result I cannot read"
    of = f' of the pattern "{query.title}"' if query else ""
    return f"I have no answer: the query{of} {why}. {unfenced(queried.content)[:500]}"
