"""Other words for the same thing."""

from loom_worker.core.words import stemmed
from loom_worker.store.search_synonyms import synonyms


def test_a_word_has_those_of_its_group_in_all_their_forms_and_not_itself() -> None:
    found = synonyms("purchase")
    assert {"buy", "bought"} <= set(found)
    assert not any(stemmed(word) == "purchase" for word in found)


def test_the_plural_and_other_forms_of_a_word_have_the_same_ones() -> None:
    assert synonyms("movies") == synonyms("movie")
    assert "film" in synonyms("movies")


def test_a_word_that_is_in_no_group_has_none() -> None:
    assert synonyms("photosynthesis") == ()


def test_no_word_of_a_group_is_alone() -> None:
    assert all(synonyms(word) for word in ("job", "dog", "trip", "celebrate", "old"))
