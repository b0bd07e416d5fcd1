"""The tool that searches the conversations of an agent's scope: this session, its user's, or its workspace's.

It changes nothing: what it finds is in its answer alone, unlike what ``search_conversation`` recalls.
"""

from loom_worker.core.errors import NotFound, ToolFailed
from loom_worker.core.values.chat import ToolSpec
from loom_worker.core.values.json import Json
from loom_worker.core.values.tiers import MemoryTiers
from loom_worker.core.values.tools import Caller, Tool
from loom_worker.memory.recall_tools import MOST_FOUND, QUERY_CHARS, USUAL
from loom_worker.memory.recalled import Room, answer, compact
from loom_worker.memory.semantic import with_passages
from loom_worker.store.search import MessageHit, Search
from loom_worker.store.search_words import terms

NOTHING = "The query has no word to look for, so nothing was searched."


def search_tool(search: Search, tiers: MemoryTiers, room: Room) -> Tool:
    """The tool ``memory_search`` of an agent with these tiers.

    Args:
        room: how large an answer may be.
    """

    def run(arguments: Json, caller: Caller) -> str:
        query, limit = arguments["query"][:QUERY_CHARS], int(arguments.get("limit", USUAL))
        if not terms(query):
            return compact({"found": [], "note": NOTHING})
        try:
            found = search.scope(
                caller.lane, query, scope=tiers.scope, limit=limit, recent_messages=tiers.recent_messages
            )
        except NotFound as error:
            raise ToolFailed(str(error), "ERROR_NOT_FOUND") from error
        entries = with_passages([(each, _more(each)) for each in found])
        return answer("found", entries, {"scope": tiers.scope}, room)

    # Over many sessions it may take a tenth of a second, which a turn's own task should not.
    return Tool(_SPEC, run, is_bounded=tiers.scope == "session")


def _more(found: MessageHit) -> Json:
    return {"session_id": found.message.session_id, "score": found.hit.score}


_SPEC = ToolSpec(
    name="memory_search",
    description=(
        "Search what was said in this conversation and, as far as you may look, in earlier ones: by words, names, "
        "dates (on 7 May 2023, last summer) or a whole question. Best first: passages with their session, date and "
        "what was said around them; no message twice."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "query": {"type": "string"},
            "limit": {"type": "integer", "minimum": 1, "maximum": MOST_FOUND, "default": USUAL},
        },
        "required": ["query"],
        "additionalProperties": False,
    },
)
