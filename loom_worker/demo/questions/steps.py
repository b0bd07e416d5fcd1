"""What the scripted model does next in a turn: look at the tables, look names up, query, answer, or refuse in words."""

from dataclasses import dataclass, replace

from loom_worker.core.values.chat import ChatMessage, Request, ToolOutcome
from loom_worker.core.values.json import Json
from loom_worker.demo import model
from loom_worker.demo.model import INTRODUCTION, Task, missing_tables, read_result, unfenced
from loom_worker.demo.questions import tables, values, worded
from loom_worker.demo.questions.clauses import names_left_out
from loom_worker.demo.questions.compose import NoPlace, compose
from loom_worker.demo.questions.plan import Plan
from loom_worker.demo.questions.reading import read_plan, text_of, unknown_words
from loom_worker.demo.questions.tables import TableQuestion, read_table_question
from loom_worker.demo.questions.words import has_terms, idle_left_out, terms
from loom_worker.demo.slots import Slots, read

MOST_CHARS = 2_000
"""Of a question that is read at all: reading takes time, and no form is nearly as long."""


@dataclass(frozen=True, slots=True)
class Said:
    """What the script wants: a text to say, tools to call, or both."""

    text: str
    calls: tuple[tuple[str, Json], ...] = ()


@dataclass(frozen=True, slots=True)
class Turn:
    """The current turn of a request, as far as it has come."""

    request: Request
    slots: Slots
    text: str
    """The question in plain words."""
    notes: tuple[str, ...]
    tasks: tuple[Task, ...]
    outcomes: tuple[ToolOutcome, ...]
    """Of this turn's calls, the oldest first."""

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


def next_step(request: Request) -> Said:
    """Decide the next step of the current turn; a pure function of the request."""
    if len(current(request.messages)[0].text) > MOST_CHARS:
        return Said(f"I have no answer: I read questions of up to {MOST_CHARS:,} characters. {INTRODUCTION}")
    turn = _turn(request)
    asked = read_table_question(turn.text)
    if not turn.has("execute_sql") or not turn.text:
        return Said(INTRODUCTION)
    if asked is not None and asked.is_plain:
        return _within_limits(turn, _tables(turn, asked))
    reading = read_plan(turn.text, turn.slots, notes=turn.notes)
    task = None if reading.plan else model.choose(turn.tasks, idle_left_out(turn.text), turn.slots)
    if reading.plan is not None:
        step = _planned(turn, reading.plan, before=0)
    elif task is not None:
        step = _by_task(turn, task)
    elif has_terms(terms(turn.text)):
        step = _with_names(turn, reading.unread)
    elif asked is not None:
        step = _tables(turn, asked)
    else:
        step = Said(_introduced(turn))
    return _within_limits(turn, step)


def _turn(request: Request) -> Turn:
    question, outcomes = current(request.messages)
    slots = read(question.text, model.read_today(question.context))
    text, notes = text_of(slots)
    return Turn(request, slots, text, notes, model.read_tasks(question.context), outcomes)


def current(messages: tuple[ChatMessage, ...]) -> tuple[ChatMessage, tuple[ToolOutcome, ...]]:
    """The user message that is being answered, and the outcomes since."""
    since: list[ToolOutcome] = []
    for message in reversed(messages):
        if message.role == "user":
            return message, tuple(since)
        since = [*message.outcomes, *since]
    return ChatMessage("user"), ()


def _within_limits(turn: Turn, step: Said) -> Said:
    if step.calls and not turn.request.may_call_tools:
        return Said(f"I may call no more tools in this turn and have no rows yet, so I cannot answer. {INTRODUCTION}")
    return step


def _with_names(turn: Turn, unread: str) -> Said:
    """Words that no rule reads may be names: what the database holds can restrict the query."""
    runs = values.grams(turn.text, unknown_words(turn.text))
    if not runs:
        return _refused(f"I cannot put {unread or 'this'} into a query")
    listed = turn.outcome("list_tables")
    if listed is None and turn.has("list_tables"):
        return Said("I look which tables there are.", (("list_tables", {}),))
    if listed is not None and (listed.is_error or missing_tables(values.TABLES, unfenced(listed.content))):
        return _refused(f"I cannot put {unread} into a query of this database")
    looked = turn.queried(0)
    if looked is None:
        return Said("I look which of these words the database holds.", (("execute_sql", {"sql": values.look(runs)}),))
    held = None if looked.is_error else read_result(unfenced(looked.content))
    if held is None:
        return _refused(f"I could not look up {unread} in the database")
    text, found = values.marked(turn.text, runs, held)
    reading = read_plan(text, turn.slots, found, turn.notes)
    if reading.plan is not None:
        return _planned(turn, reading.plan, before=1)
    rest = names_left_out(text)
    if found and (read_plan(rest, turn.slots).plan or model.choose(turn.tasks, idle_left_out(rest), turn.slots)):
        return _refused(f"I cannot restrict this to {' and '.join(each.said for each in found)}")
    return _refused(f"I cannot put {reading.unread} into the query")


def _planned(turn: Turn, plan: Plan, *, before: int) -> Said:
    """Carry out a plan; ``before`` queries have been made to look names up."""
    try:
        sql = compose(plan)
    except NoPlace as place:
        return _refused(f"I cannot {place}")
    task = next((task for task in turn.tasks if _fits(task, plan)), None)
    if task is not None:
        is_default = turn.slots.n is None and task.defaults.get("n") == str(plan.head.limit)
        n = None if is_default else plan.head.limit
        return _by_task(replace(turn, slots=replace(turn.slots, n=n)), task)
    asked = Task("", "", sql, {})
    queried = turn.queried(before)
    if queried is None:
        return _query(turn, asked, sql)
    result = None if queried.is_error else read_result(unfenced(queried.content))
    return Said(worded.worded(plan, result) if result else _failed(queried))


def _by_task(turn: Turn, task: Task) -> Said:
    queried = turn.queried(0)
    if queried is None:
        return _query(turn, task, task.query(turn.slots))
    result = None if queried.is_error else read_result(unfenced(queried.content))
    return Said(model.answer(task, turn.slots, result) if result else _failed(queried, task))


def _fits(task: Task, plan: Plan) -> bool:
    """Does a pattern's template ask for the same as a plan?"""
    head, columns = plan.head, task.columns()
    if plan.wheres or plan.is_compared or plan.notes or head.fact != "sales" or not head.group:
        return False
    if (plan.periods and not task.takes_period()) or task.takes("n") != (head.limit is not None):
        return False
    ranks = head.limit is None or f"ORDER BY {head.measures[0]} DESC" in task.sql
    return ranks and columns[:2] == (head.group, head.measures[0]) and set(head.measures) <= set(columns)


def _query(turn: Turn, task: Task, sql: str) -> Said:
    """Look at the tables if that has not been done, then ask."""
    name = f'I follow the pattern "{task.title}" and look' if task.title else "I look"
    wanted: tuple[tuple[str, Json], ...] = (("list_tables", {}), ("get_schema", {"tables": list(task.tables())}))
    looks = tuple(call for call in wanted if turn.has(call[0]))
    if looks and not turn.outcomes:
        return Said(f"{name} at the tables first.", looks)
    listed = turn.outcome("list_tables")
    missing = missing_tables(task.tables(), unfenced(listed.content)) if listed else ()
    if missing:
        what = f'the pattern "{task.title}" ({task.pattern_id})' if task.title else "the query"
        return Said(
            f"I have no answer: {what} reads {', '.join(missing)}, and this database has no such table. "
            "The scripted demo model cannot adapt a query to other tables; an LLM can."
        )
    for outcome in turn.outcomes:
        if outcome.is_error and outcome.name in ("list_tables", "get_schema"):
            return Said(f"I could not look at the tables, so I have no answer. {unfenced(outcome.content)}")
    return Said("The tables are there; now the query.", (("execute_sql", {"sql": sql}),))


def _tables(turn: Turn, asked: TableQuestion) -> Said:
    """Answer about tables as such."""
    listed = turn.outcome("list_tables")
    if listed is None:
        look = Said("I look which tables there are.", (("list_tables", {}),))
        return look if turn.has("list_tables") else _refused("I have no tool that lists the tables")
    names = None if listed.is_error else tables.table_names(unfenced(listed.content))
    if names is None:
        return _refused("I could not read the list of tables")
    if turn.slots.periods:
        return _refused(f'I cannot restrict tables to the period "{turn.slots.periods[0].said}"')
    if asked.kind == "tables":
        return Said("\n".join([f"The database has {len(names)} tables:", *names, "", model.NO_LLM]))
    table = tables.named(asked.name, names)
    if table is None:
        return _refused(f'"{asked.name}" is none of the tables ({", ".join(names)})')
    return _columns(turn, table) if asked.kind == "columns" else _rows(turn, table)


def _columns(turn: Turn, table: str) -> Said:
    given = turn.outcome("get_schema")
    if given is None:
        look = Said(f"I look at the table {table}.", (("get_schema", {"tables": [table]}),))
        return look if turn.has("get_schema") else _refused("I have no tool that shows a table's columns")
    said = None if given.is_error else tables.columns_worded(table, unfenced(given.content))
    return Said(f"{said}\n\n{model.NO_LLM}") if said else _refused(f"I could not read the columns of {table}")


def _rows(turn: Turn, table: str) -> Said:
    queried = turn.queried(0)
    if queried is None:
        return Said("The table is there; now the query.", (("execute_sql", {"sql": tables.count_rows(table)}),))
    result = None if queried.is_error else read_result(unfenced(queried.content))
    if result is None or not result["rows"]:
        return Said(_failed(queried))
    return Said(f"The table {table} has {result['rows'][0][0]:,} rows.\n\n{model.NO_LLM}")


def _introduced(turn: Turn) -> str:
    rest = idle_left_out(turn.text)
    for number, period in enumerate(turn.slots.periods):
        rest = rest.replace(f"@p{number}", period.said)
    return f'I have no answer: I cannot put "{rest}" into a query. {INTRODUCTION}' if rest else INTRODUCTION


def _refused(reason: str) -> Said:
    return Said(worded.refusal(reason))


def _failed(queried: ToolOutcome, task: Task | None = None) -> str:
    why = "failed" if queried.is_error else "gave a result I cannot read"
    of = f' of the pattern "{task.title}"' if task else ""
    return f"I have no answer: the query{of} {why}. {unfenced(queried.content)[:500]}"
