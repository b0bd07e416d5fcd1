"""The tools that search the conversations of an agent's scope: this session, its user's, or its workspace's.

``memory_search`` finds words, ``memory_semantic`` also what was said in others. They change nothing: what they find is
in their answers alone, unlike what ``search_conversation`` recalls.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from loom_worker.core.errors import NotFound, ToolFailed
from loom_worker.core.text import longest, one_line
from loom_worker.core.values.chat import ToolSpec, object_schema
from loom_worker.core.values.json import Json
from loom_worker.core.values.tiers import MemoryTiers, Scope
from loom_worker.core.values.tools import Caller, Tool
from loom_worker.memory.recall_tools import MOST_FOUND, QUERY_CHARS
from loom_worker.memory.recalled import Room, answer, compact, moment_of
from loom_worker.memory.semantic import SemanticSearch, preview, with_passages
from loom_worker.store.search import MessageHit, Search
from loom_worker.store.search_words import terms

NOTHING = "The query has no word to look for, so nothing was searched."
USUAL_NEAR = 8
USUAL_LINES, MOST_LINES, LINE_CHARS = 27, 50, 200
"""Messages that a search by words shows without their neighbours; per byte they hold more (docs/quality.md)."""
_WHERE: dict[Scope, str] = {
    "session": "this conversation",
    "user": "all conversations with this user",
    "workspace": "all conversations of this workspace",
}


def search_tool(search: Search, tiers: MemoryTiers, room: Room) -> Tool:
    """The tool ``memory_search`` of an agent with these tiers; ``room``: how large an answer may be."""

    def run(arguments: Json, caller: Caller) -> str:
        query, limit = arguments["query"][:QUERY_CHARS], int(arguments.get("limit", USUAL_LINES))
        if not terms(query):
            return compact({"found": [], "note": NOTHING})
        try:
            found = search.scope(
                caller.lane,
                query,
                scope=tiers.scope,
                limit=limit,
                is_apart=False,
                recent_messages=tiers.recent_messages,
            )
        except NotFound as error:
            raise ToolFailed(str(error), "ERROR_NOT_FOUND") from error
        return listed(found, caller.session_id, tiers.scope, room)

    # Over many sessions it may take a tenth of a second, which a turn's own task should not.
    return Tool(_SPEC, run, is_bounded=tiers.scope == "session")


def listed(found: Sequence[MessageHit], here: str, scope: Scope, room: Room) -> str:
    """One line a message, as many as there is room for; those of other sessions than this one begin with its id."""
    lines = [_line(each, here) for each in found]

    def written(kept: int) -> str:
        left_out = {"left_out": len(lines) - kept} if kept < len(lines) else {}
        return compact({"found": lines[:kept], "scope": scope, **left_out})

    return written(longest(len(lines), lambda kept: room.holds(written(kept))))


def _line(found: MessageHit, here: str) -> str:
    message = found.message
    session = "" if message.session_id == here else f"{message.session_id} "
    # On one line: a message must not look like two.
    text = one_line(preview(found, LINE_CHARS), 2 * LINE_CHARS)
    return f"{session}#{found.offset} {moment_of(message)} {message.chat.role}: {text}"


@dataclass(frozen=True, slots=True)
class SemanticParts:
    """What the tool works with."""

    search: SemanticSearch
    room: Room


def semantic_tool(parts: SemanticParts) -> Tool:
    """The tool ``memory_semantic``."""

    def run(arguments: Json, caller: Caller) -> str:
        return _near(parts, caller, str(arguments["query"])[:QUERY_CHARS], k=int(arguments.get("k", USUAL_NEAR)))

    return Tool(_near_spec(parts.search.scope), run)  # an embedding model may take seconds


def _near(parts: SemanticParts, caller: Caller, query: str, *, k: int) -> str:
    if not query.strip():
        return compact({"found": [], "note": "The query is empty, so nothing was searched."})
    try:
        fusion = parts.search.found(query, caller, limit=k)
    except NotFound as error:
        raise ToolFailed(str(error), "ERROR_NOT_FOUND") from error
    entries = with_passages([(each, {"session": each.message.session_id}) for each in fusion.hits])
    note = {"note": fusion.note} if fusion.note else {}
    return answer("found", entries, {"ranked_by": fusion.ranked_by, **note}, parts.room)


def _near_spec(scope: Scope) -> ToolSpec:
    return ToolSpec(
        name="memory_semantic",
        description=(
            f"Search {_WHERE[scope]} by meaning: what was said in other words than the query is found too. Best first, "
            "each with its session, its date and what was said around it. Ask as you would ask a person; for exact "
            "words, names and numbers other searches are better."
        ),
        input_schema=_query_and("k", usual=USUAL_NEAR, most=MOST_FOUND),
    )


def _query_and(limit: str, *, usual: int, most: int) -> Json:
    bounds: Json = {"type": "integer", "minimum": 1, "maximum": most, "default": usual}
    return object_schema("query", **{"query": {"type": "string"}, limit: bounds})


_SPEC = ToolSpec(
    name="memory_search",
    description=(
        "Search what was said in this conversation and, as far as you may look, in earlier ones: by words, names, "
        "dates (on 7 May 2023, last summer) or a whole question. Best first, a line a message: the session's id if it "
        "is another one, #position, date, who, what."
    ),
    input_schema=_query_and("limit", usual=USUAL_LINES, most=MOST_LINES),
)
