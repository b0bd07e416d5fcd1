"""Facts: what is known beyond a session, as subject, relation and object, and from when to when it held."""

import hashlib
import unicodedata
from dataclasses import dataclass
from typing import Any, Literal

from loom_worker.core.values.json import Json, rfc3339
from loom_worker.core.values.tiers import Scope
from loom_worker.core.words import STOP_WORDS, UNSPACED, WORD, forms_of, grams, stemmed

FactSource = Literal["conversation", "user"]
"""Who says so: a message of a session, or a person who corrected what was known."""
FactStatus = Literal["open", "closed", "all"]
"""Facts that hold, those that held once, or both."""
SUBJECT_CHARS, RELATION_CHARS, OBJECT_CHARS = 200, 100, 500
"""Longest parts of a fact, in characters."""
MOST_TOPIC_WORDS = 32
"""Words of a topic that are looked for."""
SPEAKER = "user"
"""The subject of facts about the person who writes, where all facts of one owner are about the same person."""
SHARED, SHARED_BY_USERS = "workspace", "workspace:users"
"""Keys of the owners of facts that a whole workspace is told: those that no key of a user may change, and others."""
_ARTICLES = frozenset({"a", "an", "the"})
_PUNCTUATION = ".,;:!?\"'()[]“”‘’"


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose facts they are: those of one owner are told together, and close each other."""

    workspace: str
    key: str
    """``session:<lane>``, ``user:<id>`` or ``workspace``; ``workspace:users`` for what keys of users say to all."""

    @property
    def is_shared(self) -> bool:
        """True if everybody in the workspace is told."""
        return self.key.startswith(SHARED)

    @classmethod
    def told(cls, workspace: str, scope: Scope, **whose: Any) -> frozenset[str]:
        """Whose facts a session is told; with the workspace's, those that its user said for nobody else."""
        key = cls.of(workspace, scope=scope, **whose).key
        own = cls.of(workspace, scope="user", **whose).key
        return frozenset({key, own, SHARED_BY_USERS} if key == SHARED else {key})

    @classmethod
    def of(cls, workspace: str, *, lane: str, user: str | None, scope: Scope, by_user: bool = False) -> "Owner":
        """The owner of what is said in a session, with a user's key or not; ``user`` without one is the session."""
        if scope == "workspace":
            return cls(workspace, SHARED_BY_USERS if by_user else SHARED)
        return cls(workspace, f"session:{lane}" if scope == "session" or user is None else f"user:{user}")


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact that is stored. It is closed and never rewritten when another one takes its place."""

    id: str
    """``fact_…``; sorts by time."""
    subject: str
    relation: str
    object: str
    since_ms: int
    """When it began to hold, as far as is known; else when it was first said."""
    until_ms: int | None
    """When it ceased to hold; None: it holds."""
    superseded_by: str | None
    """The id of the fact that took its place; that one may be deleted."""
    confidence: float
    """0 to 1."""
    source: FactSource
    session_id: str | None
    message_id: str | None
    """Where it was first said; None: by a person's correction, or in a session that is deleted."""
    seen_ms: int
    """When it was last said."""
    created_ms: int
    user: str | None = None
    """In whose session it was said; None: nobody's, or that of whoever is told."""

    def brief(self) -> "Fact":
        return self

    @property
    def digest(self) -> str:
        """The same for each wording of the same fact, see ``digest_of``."""
        return digest_of(self.subject, self.relation, self.object)

    @property
    def text(self) -> str:
        """The fact on one line."""
        return f"{self.subject} {self.relation} {self.object}"

    @property
    def words(self) -> frozenset[str]:
        """The words by which it is found; the usual one of its relation among them."""
        return search_words(self.text, relation_key(self.relation))

    def as_json(self) -> Json:
        """The Fact of the HTTP API. ``object`` is a part of the fact, as everybody who writes triples expects."""
        return {
            "id": self.id,
            "subject": self.subject,
            "relation": self.relation,
            "object": self.object,
            "since": rfc3339(self.since_ms),
            "until": rfc3339(self.until_ms),
            "superseded_by": self.superseded_by,
            "confidence": round(self.confidence, 3),
            "source": self.source,
            "user": self.user,
            "session_id": self.session_id,
            "message_id": self.message_id,
            "last_said_at": rfc3339(self.seen_ms),
            "created_at": rfc3339(self.created_ms),
        }


@dataclass(frozen=True, slots=True)
class StatedFact:
    """A fact as a message of a conversation states it."""

    subject: str
    relation: str
    object: str
    message_id: str
    n: int
    """Number of that message."""
    said_ms: int
    confidence: float = 0.7
    since_ms: int | None = None
    """When it began to hold, where the message tells."""
    until_ms: int | None = None
    """When it ceased to hold, where the message tells."""
    replaces: tuple[str, ...] = ()
    """Ids of facts in whose place it stands."""
    is_many: bool = False
    """True: others with the same subject and relation hold beside it."""


@dataclass(frozen=True, slots=True)
class EndedFact:
    """A fact that ceased to hold, with none in its place."""

    fact_id: str
    said_ms: int
    message_id: str = ""


@dataclass(frozen=True, slots=True)
class LearnedFacts:
    """What a part of a conversation says."""

    scope: Scope
    statements: tuple[StatedFact, ...] = ()
    ended: tuple[EndedFact, ...] = ()
    users_write: bool = False
    """True: with the scope ``workspace``, what keys of users say is told to all of it."""


@dataclass(frozen=True, slots=True)
class Correction:
    """What a person says of a fact; None: as it is."""

    relation: str | None = None
    object: str | None = None
    confidence: float | None = None
    until_ms: int | None = None
    """When it ceased to hold; None: it holds."""


@dataclass(frozen=True, slots=True)
class FactFilter:
    """Which facts are listed."""

    status: FactStatus = "open"
    topic: str = ""
    """Only facts that share a word with it; empty: all."""


def text_key(text: str) -> str:
    """The same for texts that differ in case, white space, leading articles or punctuation at the ends of words."""
    words = [word.strip(_PUNCTUATION) for word in unicodedata.normalize("NFKC", text).casefold().split()]
    words = [word for word in words if word]
    return " ".join(words[1:] if len(words) > 1 and words[0] in _ARTICLES else words)


_AUXILIARIES = frozenset("is are was were be been has have had currently now s".split())
_SAME_RELATIONS = {
    "live in": "reside in|home city|home|city|residence|location|moved to|based in|home town|home is in",
    "work at": "work for|employer|employed by|employed at|job at|employee of|company",
    "call": "name|named|name is|called|full name|goes by",
    "age": "aged|year old|old|age is|has age",
    "born on": "birthday|born|date of birth|birth date|birthday is|birthday on",
    "work as": "job|job title|profession|occupation|role|position",
    "marry to": "married to|spouse|wife|husband",
    "phone number": "phone|telephone|mobile|mobile number|telephone number",
    "email": "email address|e mail|mail address|email is",
}
_RELATIONS = {other: name for name, others in _SAME_RELATIONS.items() for other in others.split("|")}


def relation_key(relation: str) -> str:
    """The same for the usual wordings of a relation: ``lives_in``, ``is living in`` and ``moved to``."""
    words = text_key(relation.replace("_", " ").replace("-", " ")).split()
    kept = [word for word in words if word not in _AUXILIARIES] or words
    plain = " ".join(kept)
    if plain in _RELATIONS:
        return _RELATIONS[plain]
    stems = " ".join("live" if word == "living" else stemmed(word) for word in kept)
    return _RELATIONS.get(stems, stems)


def digest_of(subject: str, relation: str, object_: str) -> str:
    """Tells the same fact in other words, where they differ as ``text_key`` and ``relation_key`` say; 64 hex digits."""
    parts = "\x1f".join((text_key(subject), relation_key(relation), text_key(object_)))
    return hashlib.sha256(parts.encode("utf-8", "surrogatepass")).hexdigest()


def search_words(*texts: str) -> frozenset[str]:
    """The words by which a fact is found, in all their forms."""
    plain, pairs = _words(" ".join(texts))
    return frozenset(stemmed(form) for word in plain for form in forms_of(word)) | {*plain, *pairs}


def topic_words(topic: str) -> tuple[str, ...]:
    """What to look for of a topic, each once, at most MOST_TOPIC_WORDS; words of grammar only where it has no other."""
    plain, pairs = _words(topic)
    wanted = [word for word in plain if word not in STOP_WORDS] if not set(plain) <= STOP_WORDS or pairs else plain
    meant = [_RELATIONS[word].split()[0] for word in wanted if word in _RELATIONS]
    return tuple(dict.fromkeys((*map(stemmed, (*wanted, *meant)), *pairs)))[:MOST_TOPIC_WORDS]


def _words(text: str) -> tuple[list[str], list[str]]:
    """Words between spaces, and the pairs of characters of those that are written without."""
    folded = unicodedata.normalize("NFC", text).casefold()
    return [word for word in WORD.findall(folded) if not UNSPACED.search(word)], (grams(folded) or "").split()


def raised(confidence: float, by: float) -> float:
    """How certain a fact is once it was said again; the second time counts half, and nothing is ever certain."""
    return min(0.99, 1 - (1 - confidence) * (1 - by / 2))
