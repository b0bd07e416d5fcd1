"""The tools by which an agent finds what has left its context, and puts it back for a while.

Each of them works in the session it is called for, and in no other.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from loom_worker.core.errors import Invalid, NotFound, ToolFailed
from loom_worker.core.text import fence, longest
from loom_worker.core.values.chat import ToolSpec, object_schema
from loom_worker.core.values.json import Json
from loom_worker.core.values.sessions import Message
from loom_worker.core.values.tools import Caller, Tool
from loom_worker.llm.rerank import Reranker
from loom_worker.memory.layers import Count
from loom_worker.memory.recall_facts import update_tool
from loom_worker.memory.recall_rerank import MOST_CANDIDATES, PREVIEW_CHARS, Candidate, ranked
from loom_worker.memory.recalled import MOST_BYTES, Entry, Room, answer, compact, moment_of, recalled_tokens, text_of
from loom_worker.memory.semantic import WORDS_DEPTH, SemanticSearch, preview, with_passages
from loom_worker.store.memory import Memories
from loom_worker.store.search import MessageHit, Search
from loom_worker.store.search_words import terms
from loom_worker.store.sessions import Sessions

QUERY_CHARS = 4_000
MOST_RECALLED, MOST_FOUND, USUAL = 50, 20, 10
_FARTHEST = 1_000_000_000


@dataclass(frozen=True, slots=True)
class RecallParts:
    """What the tools of an agent work with."""

    memories: Memories
    search: Search
    sessions: Sessions
    rerank: Reranker | None
    """None: there is no LLM to rank what a search finds."""
    count: Count
    recalled_budget_tokens: int
    """For all messages that are recalled at a time."""
    kernel_budget_tokens: int
    """For what is known of the session."""
    answer_tokens: int
    """For one answer that shows messages."""
    answer_bytes: int = MOST_BYTES
    """The same in UTF-8: from some size on results become references."""
    candidates: int = MOST_CANDIDATES
    """Messages that the model ranks at a time, as its window allows."""
    semantic: SemanticSearch | None = None
    """Finds by meaning too; None: the agent's file enables no embeddings."""
    has_swap: bool = True
    """False: the agent may not look for what has left its context."""

    @property
    def room(self) -> Room:
        """How large an answer may be that shows messages."""
        return Room(self.answer_tokens, self.count, self.answer_bytes)


def recall_tools(parts: RecallParts) -> tuple[Tool, ...]:
    """The tools; without swap the one alone that keeps facts in mind."""
    update = update_tool(parts.sessions, budget_tokens=parts.kernel_budget_tokens, count=parts.count)
    return (update, *_swap_tools(parts)) if parts.has_swap else (update,)


def _swap_tools(parts: RecallParts) -> tuple[Tool, ...]:
    def recall(arguments: Json, caller: Caller) -> str:
        return _recall(parts, caller, offset=int(arguments["offset"]), limit=int(arguments.get("limit", USUAL)))

    def search(arguments: Json, caller: Caller) -> str:
        limit, is_promoted = int(arguments.get("limit", USUAL)), bool(arguments.get("promote", True))
        return _search(parts, caller, arguments["query"][:QUERY_CHARS], limit=limit, is_promoted=is_promoted)

    def clear(_: Json, caller: Caller) -> str:
        return compact({"cleared": parts.memories.clear_promoted_in_lane(caller.lane)})

    return (
        Tool(_RECALL, recall, is_bounded=True, occasion="earlier"),
        Tool(_SEARCH, search, is_bounded=parts.rerank is None, occasion="earlier"),  # a model may take seconds
        Tool(_CLEAR, clear, is_bounded=True, occasion="earlier"),
    )


def _recall(parts: RecallParts, caller: Caller, *, offset: int, limit: int) -> str:
    page, total = parts.memories.page_from(caller.lane, offset=offset, limit=limit)
    first_n, recalled = _promoted(parts, caller, page)
    after = offset + len(page)
    rest = {"total": total, "next_offset": after if page and after < total else None, "recalled": recalled}
    entries = [Entry(offset + n, each, text_of(each), _place(each, first_n)) for n, each in enumerate(page)]
    return answer("messages", entries, rest, parts.room)


def _search(parts: RecallParts, caller: Caller, query: str, *, limit: int, is_promoted: bool) -> str:
    if not terms(query):
        return compact({"found": [], "note": "The query has no word to look for, so nothing was searched."})
    found, ranked_by = _candidates(parts, caller, query, limit=limit)
    shown = [_candidate(each) for each in found[: parts.candidates]]
    ranking = ranked(query, shown, parts.rerank, caller) if parts.rerank else None
    as_found = [(at, each.hit.score) for at, each in enumerate(found)]
    order = [*ranking, *((at, None) for at in range(len(shown), len(found)))] if ranking else as_found
    chosen = [(found[at], score) for at, score in order[:limit]]
    wanted = [each.message for each, _ in chosen] if is_promoted else []
    first_n, recalled = _promoted(parts, caller, wanted, is_best_first=True)
    entries = with_passages([(each, {"score": score, **_place(each.message, first_n)}) for each, score in chosen])
    return answer("found", entries, {"ranked_by": "llm" if ranking else ranked_by, "recalled": recalled}, parts.room)


def _candidates(parts: RecallParts, caller: Caller, query: str, *, limit: int) -> tuple[list[MessageHit], str]:
    most = max(parts.candidates, limit) if parts.rerank else limit
    depth = max(most, WORDS_DEPTH) if parts.semantic else most
    try:
        found = parts.search.lane(caller.lane, query, limit=depth)
        if parts.semantic is None:
            return list(found), "bm25"
        fusion = parts.semantic.with_near(found, query, caller, limit=most)
        return list(fusion.hits), fusion.ranked_by
    except NotFound as error:
        raise ToolFailed(str(error), "ERROR_NOT_FOUND") from error


def _candidate(found: MessageHit) -> Candidate:
    return Candidate(found.message.chat.role, moment_of(found.message), preview(found, PREVIEW_CHARS))


def _promoted(
    parts: RecallParts, caller: Caller, wanted: Sequence[Message], *, is_best_first: bool = False
) -> tuple[int, Json]:
    """Put messages back into the context that have left it; where L1 begins, and what is recalled now.

    A message that is by itself too long to be recalled is left out: it could not be read otherwise.

    Args:
        is_best_first: of more than there is room for, the first ones are recalled, and the call is not refused.
    """
    before = parts.memories.load(caller.lane, limit=0)
    first_n, known = before.state.first_n, set(before.state.promoted)
    away = [message for message in wanted if message.n < first_n and message.id not in known]
    new = [message for message in away if _tokens(parts, [message]) <= parts.recalled_budget_tokens]
    fitting = new[: _fitting(parts, before.recalled, new)] if is_best_first else new
    tokens = _promote(parts, caller, before.recalled, fitting) if fitting else _tokens(parts, before.recalled)
    too_long = {"too_long": len(away) - len(new)} if len(new) < len(away) else {}
    no_room = {"no_room": len(new) - len(fitting)} if len(fitting) < len(new) else {}
    rest = {"tokens": tokens, "budget_tokens": parts.recalled_budget_tokens}
    return first_n, {"added": len(fitting), **too_long, **no_room, **rest}


def _fitting(parts: RecallParts, before: Sequence[Message], new: Sequence[Message]) -> int:
    """How many of these messages, from the first on, there is room for in addition to those recalled before."""
    most = parts.recalled_budget_tokens
    return longest(len(new), lambda number: _tokens(parts, [*before, *new[:number]]) <= most)


def _promote(parts: RecallParts, caller: Caller, before: Sequence[Message], new: Sequence[Message]) -> int:
    ids, most = [message.id for message in new], parts.recalled_budget_tokens
    try:
        return parts.memories.promote_in_lane(
            caller.lane, ids, budget_tokens=most, tokens=lambda messages: _tokens(parts, messages)
        )
    except Invalid as error:
        have = _tokens(parts, before)
        needed = _tokens(parts, [*before, *new]) - have
        text = f"{needed} tokens, {max(0, most - have)} of {most} free: smaller limit or clear_recalled_context"
        raise ToolFailed(text, "INVALID_INPUT") from error
    except NotFound as error:
        raise ToolFailed(str(error), "ERROR_NOT_FOUND") from error


def _tokens(parts: RecallParts, messages: Sequence[Message]) -> int:
    return recalled_tokens(messages, parts.count, fence)


def _place(message: Message, first_n: int) -> Json:
    return {"is_in_context": True} if message.n >= first_n else {}


def _limit(most: int) -> Json:
    return {"type": "integer", "minimum": 1, "maximum": most, "default": USUAL}


_RECALL = ToolSpec(
    name="recall_conversation",
    description=(
        "Read messages from any earlier part of this conversation, by their position, and recall those that have left "
        "your context: they stand beside the user's next messages until clear_recalled_context. The oldest message has "
        "offset 0; the answer says how many there are in total."
    ),
    input_schema=object_schema(
        "offset",
        offset={"type": "integer", "minimum": 0, "maximum": _FARTHEST, "description": "messages to skip"},
        limit=_limit(MOST_RECALLED),
    ),
)
_SEARCH = ToolSpec(
    name="search_conversation",
    description=(
        "Search everything that was ever said in this conversation, also what has left your context: by words, names, "
        "numbers or a whole question. Best first, each with what was said around it and its offset for "
        "recall_conversation. What is found is recalled as there, while there is room, unless promote is false."
    ),
    input_schema=object_schema(
        "query",
        query={"type": "string"},
        limit=_limit(MOST_FOUND),
        promote={"type": "boolean", "default": True},
    ),
)
_CLEAR = ToolSpec(
    name="clear_recalled_context",
    description="Take all recalled messages out of your context again, to make room; they can be recalled anew.",
    input_schema=object_schema(),
)
