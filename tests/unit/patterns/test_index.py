import random
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from loom_worker.patterns.fit import everyday, fit
from loom_worker.patterns.index import HALF, Index, Texts, gain, is_learned, piece_terms, word_terms
from loom_worker.patterns.match import texts_of
from tests.support.shipped_patterns import shipped

TEXTS = tuple(texts_of(pattern) for pattern in shipped().patterns)[:30]
SAID = [text for texts in TEXTS for text, _ in texts]


@cache
def index() -> Index:
    return fit(TEXTS)


@pytest.mark.heavy
def test_questions_of_known_terms_are_weighed_as_scikit_learn_weighs_them() -> None:
    from sklearn.feature_extraction.text import TfidfVectorizer  # takes a second to load

    said = [*SAID, *everyday()]
    halves = [TfidfVectorizer(analyzer=cut, sublinear_tf=True).fit(said) for cut in (word_terms, piece_terms)]
    for vectorizer in halves:
        vectorizer.idf_ = vectorizer.idf_ * np.array([gain(term) for term in vectorizer.get_feature_names_out()])
    rows = [(vectorizer.get_feature_names_out(), vectorizer.transform(SAID)) for vectorizer in halves]
    for number, question in enumerate(SAID):
        asked = index().vector(question)
        ours = dict(zip(asked.terms, asked.weights.tolist(), strict=True))
        theirs = {}
        for names, matrix in rows:
            row = matrix[number]
            theirs.update({names[n]: HALF * value for n, value in zip(row.indices, row.data, strict=True)})
        assert ours == pytest.approx(theirs, abs=1e-9)


def test_what_no_pattern_says_shortens_a_question() -> None:
    known, mixed = index().vector(SAID[0]), index().vector(f"{SAID[0]} frobnicate wombats")
    assert np.linalg.norm(known.weights) == pytest.approx(1.0)
    assert np.linalg.norm(mixed.weights) < 0.9


def test_the_parts_of_a_score_are_the_score() -> None:
    for question in random.Random(3).sample(SAID, 20):
        asked = index().contributions(question)
        scores = asked.scores()
        best = int(scores.argmax())
        assert sum(asked.parts(best).values()) == pytest.approx(scores[best])


def test_an_index_that_was_written_answers_as_before(tmp_path: Path) -> None:
    index().write(tmp_path)
    again = Index.read(tmp_path)
    for question in SAID[:50]:
        assert again.contributions(question).scores().tolist() == index().contributions(question).scores().tolist()
        assert again.contributions(question).everyday == index().contributions(question).everyday


def test_a_renewed_index_keeps_the_models_of_patterns_that_stay() -> None:
    fresh = (("a wombat on the moon", 1.0),)
    after = (TEXTS[3], fresh, TEXTS[0])
    renewed = index().renewed(TEXTS, after)
    asked = index().contributions(SAID[0])
    scores = renewed.contributions(SAID[0]).scores()
    assert scores[[0, 2]].tolist() == pytest.approx(asked.scores()[[3, 0]].tolist())
    assert renewed.contributions(SAID[0]).everyday == asked.everyday
    assert int(renewed.contributions("wombat").scores().argmax()) == 1


def test_patterns_that_say_nothing_match_nothing() -> None:
    assert fit([(), ()]).contributions("orders").scores().tolist() == [0.0, 0.0]


def test_more_texts_than_are_learned_from_are_matched_as_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loom_worker.patterns.fit.MOST_TEXTS", 10)
    index = fit(TEXTS)
    found = [int(index.contributions(texts[0][0]).scores().argmax()) == n for n, texts in enumerate(TEXTS)]
    assert sum(found) >= 0.9 * len(found)


def test_an_everyday_question_is_told_from_what_the_library_says() -> None:
    assert index().contributions("What can I cook for my mother tonight?").everyday > 0
    assert index().contributions(SAID[0]).everyday < 0


def test_everyday_sentences_that_a_pattern_is_for_are_no_background_to_it() -> None:
    texts = ((("opening hours", 1.0), ("when are you open", 1.0)), (("delivery", 1.0), ("where is my parcel", 1.0)))
    others = ["do you love me", "what is seven times eight"]
    yielding = fit(texts, ["When are you open?", *others])
    assert yielding.everyday.tolist() == pytest.approx(fit(texts, others).everyday.tolist(), abs=0.2)
    assert yielding.contributions("When are you open?").everyday < 0


def test_a_library_that_says_only_what_people_say_every_day_has_no_background() -> None:
    assert not fit(((("good morning", 1.0), ("hello", 1.0)),), ["Good morning."]).everyday.any()
    assert not fit(((("good morning", 1.0),),), []).everyday.any()


@pytest.mark.cases(
    ("asked", "about", "expected"),
    [(1, 1, False), (5, 1, False), (6, 1, True), (6, 3, True), (1, 0, False), (2, 0, True)],
)
def test_a_model_is_learned_from_questions_enough(asked: int, about: int, expected: bool) -> None:
    texts: Texts = (*((f"ask {n}", 1.0) for n in range(asked)), *((f"about {n}", 0.5) for n in range(about)))
    assert is_learned(texts) is expected
