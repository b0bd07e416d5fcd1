"""The tool by which an agent looks for what was said in other words, in as many sessions as its file allows."""

from dataclasses import dataclass

from loom_worker.core.errors import NotFound, ToolFailed
from loom_worker.core.values.chat import ToolSpec
from loom_worker.core.values.json import Json
from loom_worker.core.values.tiers import Scope
from loom_worker.core.values.tools import Caller, Tool
from loom_worker.memory.recall_tools import MOST_FOUND, QUERY_CHARS
from loom_worker.memory.recalled import Room, answer, compact
from loom_worker.memory.semantic import SemanticSearch, with_passages

USUAL = 8
_WHERE: dict[Scope, str] = {
    "session": "this conversation",
    "user": "all conversations with this user",
    "workspace": "all conversations of this workspace",
}


@dataclass(frozen=True, slots=True)
class SemanticParts:
    """What the tool works with."""

    search: SemanticSearch
    room: Room
    """How large an answer may be."""


def semantic_tool(parts: SemanticParts) -> Tool:
    """The tool ``memory_semantic``."""

    def run(arguments: Json, caller: Caller) -> str:
        return _found(parts, caller, str(arguments["query"])[:QUERY_CHARS], k=int(arguments.get("k", USUAL)))

    return Tool(_spec(parts.search.scope), run)  # an embedding model may take seconds


def _found(parts: SemanticParts, caller: Caller, query: str, *, k: int) -> str:
    if not query.strip():
        return compact({"found": [], "note": "The query is empty, so nothing was searched."})
    try:
        fusion = parts.search.found(query, caller, limit=k)
    except NotFound as error:
        raise ToolFailed(str(error), "ERROR_NOT_FOUND") from error
    entries = with_passages([(each, {"session": each.message.session_id}) for each in fusion.hits])
    note = {"note": fusion.note} if fusion.note else {}
    return answer("found", entries, {"ranked_by": fusion.ranked_by, **note}, parts.room)


def _spec(scope: Scope) -> ToolSpec:
    return ToolSpec(
        name="memory_semantic",
        description=(
            f"Search {_WHERE[scope]} by meaning: what was said in other words than the query is found too. Best first, "
            "each with its session, its date and what was said around it. Ask as you would ask a person; for exact "
            "words, names and numbers other searches are better."
        ),
        input_schema={
            "type": "object",
            "properties": {
                "query": {"type": "string"},
                "k": {"type": "integer", "minimum": 1, "maximum": MOST_FOUND, "default": USUAL},
            },
            "required": ["query"],
            "additionalProperties": False,
        },
    )
