"""What the model is told of the tools over a SQL database."""

from loom_worker.backends.statements import MAX_SQL_CHARS
from loom_worker.core.values.chat import ToolSpec

MAX_TABLES = 20
"""Tables of one ``get_schema``."""

_SCALAR = {"type": ["string", "number", "boolean", "null"]}

LIST_TABLES = ToolSpec(
    "list_tables",
    "List the tables of the database, each with its number of columns.",
    {"type": "object", "properties": {}, "additionalProperties": False},
)
GET_SCHEMA = ToolSpec(
    "get_schema",
    "Show columns, types and keys of tables. Use it before you write SQL on a table whose columns you do not know.",
    {
        "type": "object",
        "properties": {
            "tables": {
                "type": "array",
                "items": {"type": "string", "minLength": 1, "maxLength": 200},
                "minItems": 1,
                "maxItems": MAX_TABLES,
                "description": "Names as list_tables gives them.",
            }
        },
        "required": ["tables"],
        "additionalProperties": False,
    },
)
EXECUTE_SQL = ToolSpec(
    "execute_sql",
    "Run one SELECT (or WITH … SELECT) and return its columns and rows. Results are capped, and truncated says so: "
    "aggregate, filter and LIMIT in SQL rather than fetch many rows.",
    {
        "type": "object",
        "properties": {
            "sql": {
                "type": "string",
                "minLength": 1,
                "maxLength": MAX_SQL_CHARS,
                "description": "One statement in the database's own dialect.",
            },
            "parameters": {
                "description": "Values bound to the statement: an object for :name, an array for ?.",
                "anyOf": [
                    {"type": "object", "additionalProperties": _SCALAR, "maxProperties": 100},
                    {"type": "array", "items": _SCALAR, "maxItems": 100},
                ],
            },
        },
        "required": ["sql"],
        "additionalProperties": False,
    },
)
