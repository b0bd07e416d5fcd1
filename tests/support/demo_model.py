"""Turns of the scripted demo model over a database in memory, as a worker would run them but without one."""

import json
from dataclasses import dataclass
from datetime import date
from typing import Any

from loom_worker.core.sqlite_driver import sqlite3
from loom_worker.core.values.chat import ChatMessage, Reply, Request, ToolOutcome, ToolSpec
from loom_worker.demo.scripted import Scripted
from loom_worker.patterns.render import for_message
from tests.support.shipped_patterns import shipped_matcher

TOOLS = tuple(ToolSpec(name, name, {"type": "object"}) for name in ("list_tables", "get_schema", "execute_sql"))
KINDS = frozenset({"sql", "sqlite"})
MOST_ROWS = 500
"""Rows of a result, as the tool's own cap cuts them."""


@dataclass(frozen=True, slots=True)
class Answered:
    """What a turn came to."""

    text: str
    sql: str
    """The last statement; empty if none was run but looks for names."""
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    @property
    def is_refusal(self) -> bool:
        """No figure was given, and the answer says so."""
        return self.text.startswith(("I have no answer", "I am Loom's scripted demo model"))


def ask(question: str, shop: sqlite3.Connection, today: date) -> Answered:
    """Run a turn to its end, with the shipped pattern that matches."""
    found = [
        for_message(each) for each in shipped_matcher().match(question, k=1, kinds=KINDS) if each.confidence >= 0.5
    ]
    return answer_to(question, shop, today, found)


def answer_to(
    question: str, shop: sqlite3.Connection, today: date, found: list[str], *, patterns: str = ""
) -> Answered:
    """Run a turn to its end, with patterns as they are shown; ``patterns`` is what list_patterns gives, if given."""
    messages = [ChatMessage("user", question, context="\n\n".join([*found, f"Today is {today}."]))]
    tools = (*TOOLS, ToolSpec("list_patterns", "", {"type": "object"})) if patterns else TOOLS
    model, last = Scripted(count=len), Answered("", "", (), ())
    for _ in range(6):
        *_, reply = model.reply(Request("You are an analyst.", tuple(messages), tools=tools, max_tokens=100_000))
        assert isinstance(reply, Reply)
        if not reply.tool_uses:
            is_looked_up = last.columns == ("kind", "value")
            return Answered(reply.text, *(("", (), ()) if is_looked_up else (last.sql, last.columns, last.rows)))
        outcomes = []
        for use in reply.tool_uses:
            content = patterns if use.name == "list_patterns" else call(shop, use.name, use.arguments)
            if use.name == "execute_sql":
                result = json.loads(content)
                last = Answered("", use.arguments["sql"], tuple(result["columns"]), tuple(map(tuple, result["rows"])))
            outcomes.append(ToolOutcome(use.id, use.name, content))
        messages += [
            ChatMessage("assistant", reply.text, tool_uses=reply.tool_uses),
            ChatMessage("tool", outcomes=tuple(outcomes)),
        ]
    raise AssertionError(f"the script never came to an answer: {question}")


def call(shop: sqlite3.Connection, name: str, arguments: dict[str, Any]) -> str:
    """What the tool of that name gives; sqlite3.Error comes as it is."""
    if name == "list_tables":
        names = shop.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
        return json.dumps({"tables": [{"name": table, "columns": 3} for (table,) in sorted(names)]})
    if name == "get_schema":
        return json.dumps({"tables": [_schema(shop, table) for table in arguments["tables"]]})
    cursor = shop.execute(arguments["sql"])
    rows = cursor.fetchmany(MOST_ROWS + 1)
    columns = [column[0] for column in cursor.description]
    cut = rows[:MOST_ROWS]
    return json.dumps({"columns": columns, "rows": cut, "row_count": len(cut), "truncated": len(rows) > MOST_ROWS})


def _schema(shop: sqlite3.Connection, table: str) -> dict[str, Any]:
    columns = shop.execute("SELECT name, type FROM pragma_table_info(?)", (table,)).fetchall()
    return {"name": table, "columns": [{"name": name, "type": kind} for name, kind in columns]}
