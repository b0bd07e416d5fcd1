"""Finding messages by meaning: the nearest vectors and the full text, fused by their scores.

Whatever keeps the question from having a vector (no embeddings, a provider that is down or slow, a budget), the full
text answers alone, and the result says so.
"""

import logging
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Literal, TypeVar

from loom_worker.core.errors import LoomError, NotFound
from loom_worker.core.values.budgets import Payer, Settlement
from loom_worker.core.values.ids import now_ms
from loom_worker.core.values.json import Json
from loom_worker.core.values.tiers import Scope
from loom_worker.core.values.tools import Caller
from loom_worker.llm.embeddings import Embedder, Vector, cut, sourced
from loom_worker.llm.model import BudgetMeter
from loom_worker.memory.recalled import Entry, text_of
from loom_worker.store.budgets import Budgets
from loom_worker.store.ledger import Charge, Ledger
from loom_worker.store.search import MessageHit, Search
from loom_worker.store.vector_scan import Near
from loom_worker.store.vectors import MOST_COUNTED, MessageVectors, Reach

log = logging.getLogger(__name__)

Thing = TypeVar("Thing", bound=Hashable)

RankedBy = Literal["fused", "vectors", "bm25"]
LEAST_DEPTH, WORDS_DEPTH = 10, 30
"""Places of the vectors that count, and of the words, unless more are wanted: what is near and stands in the words'
second ten may rise, and beyond ten vectors seldom tell one message from the next."""
SHOWN_CHARS = 500
"""Characters of each message that is found; of longer ones what stands around the words."""
NO_EMBEDDINGS = "sessions.memory.embeddings is not enabled in the agent's file"


@dataclass(frozen=True, slots=True)
class Fusion:
    """What a search found, the best first."""

    hits: tuple[MessageHit, ...]
    ranked_by: RankedBy
    note: str = ""
    """What the reader should know: why there are no vectors, or how many messages have none yet."""


@dataclass(frozen=True, slots=True)
class QueryEmbedder:
    """Gives what is looked for a vector, on behalf of a session; what that costs is entered into the ledger."""

    embedder: Embedder
    count: Callable[[str], int]
    """The tokens of a text, never too few."""
    budgets: Budgets
    ledger: Ledger
    agent_budget: Json | None = None
    timeout_s: float = 2.0
    clock_ms: Callable[[], int] = field(default=now_ms)

    def vector(self, query: str, caller: Caller, may_be_sent: Callable[[], bool]) -> Vector:
        """The vector of a text that is not blank.

        Raises:
            LoomError: as Embedder.embed; BudgetSpent; Unavailable: what it cost could not be entered.
        """
        text = cut(query, self.count)
        payer = Payer(caller.workspace, caller.lane, caller.agent, self.agent_budget, caller.turn_id)
        meter = BudgetMeter(self.budgets, payer, input_tokens=self.count(text), clock_ms=self.clock_ms)
        meter.reserve(self.embedder.name, 0)
        try:
            embedder = sourced(caller.source, self.embedder)
            found = embedder.embed([text], kind="query", timeout_s=self.timeout_s, may_be_sent=may_be_sent)
        except LoomError:
            meter.refund()
            raise
        settlement = Settlement(payer, found.usage.amount(), () if meter.held is None else (meter.held,))
        names = (caller.workspace, caller.session_id, caller.agent, self.embedder.name)
        charge = Charge(*names, found.usage, caller.turn_id, kind="embedding", settlement=settlement)
        self.ledger.charge(caller.lane, charge, now_ms=self.clock_ms())
        return found.vectors[0]


@dataclass(frozen=True, slots=True)
class SemanticSearch:
    """Finds messages within an agent's scope."""

    vectors: MessageVectors
    search: Search
    scope: Scope
    query: QueryEmbedder | None
    """None: the agent's file enables no embeddings."""

    def found(self, query: str, caller: Caller, *, limit: int) -> Fusion:
        """The messages within the scope that are near to a question or share words with it."""
        reach, depth = Reach(caller.lane, self.scope), max(limit, LEAST_DEPTH)
        most = max(limit, WORDS_DEPTH)
        worded = self.search.scope(caller.lane, query, scope=self.scope, limit=most, is_apart=False)
        near, note = self._near(reach, query, caller, k=depth)
        chosen = fused(_numbered(worded), near)[:limit]
        return Fusion(self._hits(reach, chosen, query), _ranked_by(near, worded), note)

    def with_near(self, found: Sequence[MessageHit], query: str, caller: Caller, *, limit: int) -> Fusion:
        """What a search of the caller's session found by words, fused with what is near."""
        reach = Reach(caller.lane, "session")
        near, note = self._near(reach, query, caller, k=max(limit, LEAST_DEPTH))
        if not near:
            return Fusion(tuple(found[:limit]), "bm25", note)
        chosen = fused(_numbered(found), near)[:limit]
        known = {each.message.n: each for each in found}
        missing = self.search.among(caller.lane, [n for n, _ in chosen if n not in known], query)
        known |= {each.message.n: each for each in missing}
        hits = tuple(_scored(known[n], score) for n, score in chosen if n in known)
        return Fusion(hits, _ranked_by(near, found), note)

    def _near(self, reach: Reach, query: str, caller: Caller, *, k: int) -> tuple[tuple[Near, ...], str]:
        if self.query is None:
            return (), f"Found by words alone: {NO_EMBEDDINGS}."
        if not query.strip():
            return (), ""
        name = self.query.embedder.name
        try:
            vector = self.query.vector(query, caller, lambda: self.vectors.is_there(caller.lane))
            near = self.vectors.nearest(reach, name, vector, k=k)
        except LoomError as error:  # Interrupted too: a worker that stops can still go on without vectors
            log.warning("a search goes on without vectors: %s", error)
            return (), f"Found by words alone: the embedding model {name} gave no vector for the query."
        left = self.vectors.left(reach, name)
        if not left:
            return near, ""
        more = f"{left} or more" if left == MOST_COUNTED else str(left)
        return near, f"{more} messages have no vector yet, and were found by words alone."

    def _hits(self, reach: Reach, chosen: Sequence[tuple[int, float]], query: str) -> tuple[MessageHit, ...]:
        lanes = self.vectors.lanes(reach, [n for n, _ in chosen])
        known: dict[int, MessageHit] = {}
        for lane, numbers in groupby(sorted(lanes, key=lambda n: (lanes[n], n)), key=lambda n: lanes[n]):
            try:
                known |= {each.message.n: each for each in self.search.among(lane, list(numbers), query)}
            except NotFound:
                if lane == reach.lane:
                    raise
        return tuple(_scored(known[n], score) for n, score in chosen if n in known)


def with_passages(found: Sequence[tuple[MessageHit, Json]]) -> list[Entry]:
    """Each message that was found with its neighbours; where passages meet, no message is shown twice.

    Args:
        found: each with further members of its entry.
    """
    shown = {each.hit.message_id for each, _ in found}
    entries = []
    for each, more in found:
        ids = [excerpt.message_id for excerpt in each.hit.passage]
        at = ids.index(each.hit.message_id)
        texts = [
            "" if excerpt.message_id in shown else f"{excerpt.role}: {excerpt.text}" for excerpt in each.hit.passage
        ]
        shown |= set(ids)
        before, after = tuple(filter(None, texts[:at])), tuple(filter(None, texts[at + 1 :]))
        entries.append(Entry(each.offset, each.message, preview(each, SHOWN_CHARS), more, before, after))
    return entries


def preview(found: MessageHit, most_chars: int) -> str:
    """What a message says; of a longer one what stands around the words."""
    text = text_of(found.message)
    return text if len(text) <= most_chars else found.hit.snippet


def _numbered(found: Sequence[MessageHit]) -> list[tuple[int, float]]:
    return [(each.message.n, each.hit.score) for each in found]


def _scored(found: MessageHit, score: float) -> MessageHit:
    return replace(found, hit=replace(found.hit, score=round(score, 4)))


def _ranked_by(near: Sequence[Near], worded: Sequence[object]) -> RankedBy:
    if not near:
        return "bm25"
    return "fused" if worded else "vectors"


def fused(worded: Sequence[tuple[Thing, float]], near: Sequence[tuple[Thing, float]]) -> list[tuple[Thing, float]]:
    """All things of both rankings with their scores, the best first; of equals, what the words found.

    Each ranking counts as far as it separates what it holds. The words give a thing its share of their best score;
    the vectors how far it stands from their last place on the way to the question itself: where all are about as near,
    which is usual for a weak model, that is next to nothing, and the words' order stays.

    Args:
        worded: with scores, the best first.
        near: with cosines (-1 to 1), the nearest first.
    """
    best = max(worded[0][1], 1e-9) if worded else 1.0
    scores = {thing: score / best for thing, score in worded}
    last = near[-1][1] if near else 0.0
    for thing, cosine in near:
        scores[thing] = scores.get(thing, 0.0) + (cosine - last) / max(1.0 - last, 1e-9)
    return sorted(scores.items(), key=lambda item: -item[1])
