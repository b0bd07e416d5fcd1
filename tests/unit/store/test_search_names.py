"""Whom a question is about, and who wrote a message."""

import pytest

from loom_worker.store.search_names import Speakers, Subject, author_named, is_name, speakers, subject_of, with_names
from loom_worker.store.search_words import terms

KNOWN = Speakers("Maria", "Hilda", frozenset({"Melanie", "John Smith"}))


@pytest.mark.cases(
    ("question", "name", "role"),
    [
        ("What did Maria buy?", "Maria", "user"),
        ("What are Maria's plans?", "Maria", "user"),
        ("what did maria buy", "Maria", "user"),
        ("What did Hilda recommend?", "Hilda", "assistant"),
        ("what did hilda mean", "", ""),
        ("Where does John live?", "John Smith", ""),
        ("Is Mel well?", "Melanie", ""),
        ("What did Melanie give to Maria?", "Melanie", ""),
        ("What did I say of the boat?", "Maria", "user"),
        ("Which book did you name?", "Hilda", "assistant"),
        ("Did Johnathan call?", "", ""),
        ("Which Marinade is best?", "", ""),
        ("Where are the keys?", "", ""),
    ],
)
def test_a_question_is_about_the_first_speaker_it_names_or_who_asks_or_is_asked(
    question: str, name: str, role: str
) -> None:
    subject = subject_of(question, KNOWN)
    assert (subject.name, subject.role) == (name, role)


def test_a_nickname_that_could_be_two_people_is_nobodys() -> None:
    known = Speakers(named=frozenset({"Melanie", "Melissa"}))
    assert subject_of("What does Mel say?", known) == Subject()
    assert subject_of("What does Melis say?", known).name == "Melissa"


def test_a_nickname_is_looked_for_as_the_whole_name_too() -> None:
    subject = subject_of("Mel and Maria's boat", KNOWN)
    asked = with_names(terms("Mel and Maria's boat"), subject)
    assert [(term.forms, is_name(term, subject)) for term in asked] == [
        (("mel", "melanie"), True),
        (("maria",), True),
        (("boat",), False),
    ]


@pytest.mark.cases(
    ("text", "author"),
    [
        ("Melanie: I went home", "Melanie"),
        ("  Mary Ann O'Neil: yes", "Mary Ann O'Neil"),
        ("Élodie: oui", "Élodie"),
        ("You said: I went home", ""),
        ("note: buy milk", ""),
        ("10:30 works", ""),
        ("https://example.com", ""),
        ("I went home", ""),
        ("A" * 60 + ": no name is so long", ""),
    ],
)
def test_the_author_is_the_name_before_a_colon_at_the_beginning(text: str, author: str) -> None:
    assert author_named(text) == author


def test_who_is_named_once_may_be_a_heading_and_ids_are_no_names() -> None:
    heard = [
        ("user", "Note: buy milk"),
        ("user", "Ann: yes"),
        ("assistant", "Ann: no"),
        ("tool", "Bob: a"),
        ("tool", "Bob: b"),
    ]
    assert speakers("user-42", "Loom Agent", heard) == Speakers("", "Loom Agent", frozenset({"Ann"}))


def test_a_message_is_by_whom_it_names_or_else_by_its_role() -> None:
    maria, john, asker = Subject("Maria", "user"), Subject("John Smith"), Subject("", "user")
    assert maria.wrote("user", "I went home")
    assert maria.wrote("assistant", "Maria: I went home")
    assert not maria.wrote("user", "John Smith: I went home")
    assert not maria.wrote("assistant", "You went home")
    assert john.wrote("user", "john smith: home") is False
    assert john.wrote("user", "John Smith: home")
    assert asker.wrote("user", "Maria: home")
    assert not Subject().wrote("user", "I went home")
