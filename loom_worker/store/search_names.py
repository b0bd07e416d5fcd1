"""Whom a question is about, and who wrote a message: what somebody says of themselves seldom holds their name. Pure."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from loom_worker.core.words import STOP_WORDS, WORD
from loom_worker.store.search_words import Term

BEGINNING = 48
"""Characters of a message in which the name of its author may stand: ``Name: what they say``."""
SHORTEST = 3
"""Letters of a nickname that is how a name begins: Mel for Melanie."""

# Up to three words that begin with a capital, in any writing that has them.
_PREFIX = re.compile(r"\s*([^\W\d_][\w.'’-]*(?: [^\W\d_][\w.'’-]*){0,2}):\s")
_NAME = re.compile(r"[^\W\d_]+(?:[ .'’-]{1,2}[^\W\d_]+){0,2}\.?")
_QUESTION_WORD = re.compile(r"[^\W_]+(?:['’]s)?")
_USER_SAYS = frozenset({"i", "me", "my", "mine", "myself"})
_AGENT_SAYS = frozenset({"you", "your", "yours", "yourself"})


@dataclass(frozen=True, slots=True)
class Speakers:
    """Who speaks in a session, by name."""

    user: str = ""
    """Empty if it is not known."""
    agent: str = ""
    named: frozenset[str] = frozenset()
    """The authors that messages name at their beginning."""


@dataclass(frozen=True, slots=True)
class Subject:
    """Whom a question is about; of nobody in particular, if it has neither a name nor a role."""

    name: str = ""
    """As the session knows it."""
    role: str = ""
    """``user`` or ``assistant``."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Words of the question in lower case that name a speaker: to the whole name."""

    def wrote(self, role: str, beginning: str) -> bool:
        """True of a message of theirs; who is named at its beginning counts, or else its role.

        Args:
            beginning: at least BEGINNING characters of the message, or all of it.
        """
        author = author_named(beginning)
        if author and self.name:
            return author.lower() == self.name.lower()
        return bool(self.role) and role == self.role


def speakers(user: str, agent: str, heard: Iterable[tuple[str, str]]) -> Speakers:
    """Put together who speaks in a session.

    Args:
        user, agent: what may be names; ids, addresses and sentences are none.
        heard: role and beginning of some messages.
    """
    authors = Counter(author_named(text) for role, text in heard if role != "tool")
    # A heading such as ``Note:`` stands once; someone who speaks does so again.
    named = frozenset(name for name, count in authors.items() if name and count > 1)
    user, agent = (name if _NAME.fullmatch(name) else "" for name in (user, agent))
    return Speakers(user, agent, named)


def author_named(text: str) -> str:
    """The name at the beginning of a message, before a colon; empty if there is none."""
    found = _PREFIX.match(text[:BEGINNING])
    return found[1] if found and all(word[0].isupper() for word in found[1].split()) else ""


def subject_of(question: str, known: Speakers) -> Subject:
    """Whom a question is about: the first of the speakers that it names, or else who asks, or who is asked.

    A name counts by itself or by one of its words; with a capital, unless the question is in small letters; and a word
    with a capital also if exactly one name begins with it, or begins it. The agent's name needs its capital.
    """
    words = [word.removesuffix("'s").removesuffix("’s") for word in _QUESTION_WORD.findall(question)]
    is_small = question[1:] == question[1:].lower()
    people = sorted({known.user, *known.named} - {""})
    found: dict[str, str] = {}
    for word in words:
        name = (
            _name_of(word, [*people, known.agent]) if word[:1].isupper() else _name_of(word, people) if is_small else ""
        )
        if name:
            found.setdefault(word.lower(), name)
    if found:
        name = next(iter(found.values()))
        return Subject(name, "user" if name == known.user else "assistant" if name == known.agent else "", found)
    low = {word.lower() for word in words}
    if low & _USER_SAYS:
        return Subject(known.user, "user")
    return Subject(known.agent, "assistant") if low & _AGENT_SAYS else Subject()


def may_name(question: str) -> bool:
    """Whether a word of a question may be a name: one with a capital that is no word of grammar, or all are small."""
    words = _QUESTION_WORD.findall(question)
    return question[1:] == question[1:].lower() or any(
        word[0].isupper() and word.lower() not in STOP_WORDS for word in words
    )


def _name_of(word: str, names: Sequence[str]) -> str:
    low = word.lower()
    whole = [name for name in names if low in (each.lower() for each in WORD.findall(name))]
    if whole or low == word or len(word) < SHORTEST:
        return whole[0] if whole else ""
    begun = [name for name in names if len(name) >= SHORTEST and _begins(low, name.lower())]
    return begun[0] if len(begun) == 1 else ""


def _begins(word: str, name: str) -> bool:
    return name.startswith(word) or (word.startswith(name) and len(word) <= 2 * len(name))


def with_names(terms: Sequence[Term], subject: Subject) -> tuple[Term, ...]:
    """The terms of a question, in which the whole name is looked for where a nickname stands."""
    return tuple(replace(term, forms=tuple(dict.fromkeys((*term.forms, *_of_name(term, subject))))) for term in terms)


def is_name(term: Term, subject: Subject) -> bool:
    """True of a term that is the name of a speaker."""
    return any(form in subject.names for form in term.forms)


def _of_name(term: Term, subject: Subject) -> list[str]:
    names = [subject.names[form] for form in term.forms if form in subject.names]
    return [word.lower() for name in names for word in WORD.findall(name)]
