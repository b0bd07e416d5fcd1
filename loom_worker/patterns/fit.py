"""Fitting the index with scikit-learn: the patterns' texts become a vocabulary and one linear model per pattern.

``python -m loom_worker.patterns.fit FOLDER`` reads texts as JSON from standard input and writes the arrays into FOLDER,
so that one short-lived process pays for scikit-learn and all others map what it wrote.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from math import log
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loom_worker.patterns.index import OWN, Index, Texts, Vector, document, gain, is_learned, piece_terms, word_terms

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray

WHOLE = 0.7
"""Weight (0-1) of a pattern's texts as one document in its model, against the support vectors, which separate it from
others and ignore what they share. On the development questions, 0.4 to 0.7 differ by a question or two."""
ALONE = 1.4
"""The same weight of a pattern for which no model is learned. Questions are shorter than descriptions, so with 1 their
likeness is too small to be shown; with more, patterns of many texts in the same library lose to it."""
NEAR = 0.6
"""Likeness (0-1) to a text of the library from which an everyday sentence is what that library is for."""
MOST_TEXTS = 8_000
"""Most texts for which models are learned. With about 300 patterns that takes 8 s and 370 MiB, which grow with the
product of texts and patterns; beyond it the documents serve alone."""
NOTHING, ITS_WEIGHT = -1, 20.0
"""The class of an empty text, from which even a single pattern is separated. With this weight the texts of a single
pattern score as they do in the whole library."""
LEAST_VALUE = 0.002
"""Smaller coefficients are left out: they change no rank, and are nine tenths of all."""


def fit(patterns: Sequence[Texts], background: Sequence[str] | None = None) -> Index:
    """Fit an index.

    Args:
        patterns: what each says, a weight with each text; patterns that say the same get the same model.
        background: what a question must stand out against; None: the everyday sentences that ship with Loom.
    """
    import numpy as np
    from threadpoolctl import threadpool_limits

    distinct = sorted(set(patterns))  # what is learned depends on the order of what is read
    texts = [text for each in distinct for text, _ in each]
    weights = np.array([weight for each in distinct for _, weight in each])
    if not any(word_terms(text) for text in texts):
        return Index.empty(len(patterns))
    sentences = everyday() if background is None else background
    vectors, wholes, vocabulary, rarity = _vectors(distinct, sentences)
    classes = [n for n, each in enumerate(distinct) for _ in each]
    learning = [is_learned(each) for each in distinct]
    rarest = log(1 + len(texts) + len(sentences)) + 1
    number = {each: n for n, each in enumerate(distinct)}
    with threadpool_limits(1):  # threads that wait for a core that turns keep busy made this five times as slow
        coefficients = _coefficients(vectors, wholes, classes, weights, learning)
        coefficients = coefficients[:, [number[each] for each in patterns]]
        index = Index.of(vocabulary, rarity, coefficients, rarest=rarest, least=LEAST_VALUE)
        return replace(index, everyday=_everyday(vectors, weights, [index.vector(each) for each in sentences]))


def everyday() -> list[str]:
    """Sentences that people type anywhere, and that are seldom what a pattern is for."""
    text = Path(__file__).with_name("everyday.txt").read_text("utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def _vectors(patterns: Sequence[Texts], background: Sequence[str]) -> "tuple[Any, Any, list[str], NDArray[float64]]":
    """Single texts and whole patterns as rows of length 1 over terms; what each column is, and what it weighs.

    A term that the background says, too, weighs less: a few patterns do not show which words are common.
    """
    import numpy as np
    from scipy.sparse import hstack
    from sklearn.feature_extraction.text import TfidfVectorizer

    singles = [(text,) for texts in patterns for text, _ in texts]
    wholes = [document(texts) for texts in patterns]
    by_text, by_pattern, vocabulary, rarity = [], [], [], []
    for cut in (word_terms, piece_terms):
        vectorizer = TfidfVectorizer(
            analyzer=lambda texts, cut=cut: [term for text in texts for term in cut(text)],
            sublinear_tf=True,
            vocabulary=sorted({term for (text,) in singles for term in cut(text)}),
        )
        vectorizer.fit([*singles, *((sentence,) for sentence in background)])
        names = [str(name) for name in vectorizer.get_feature_names_out()]
        vectorizer.idf_ = vectorizer.idf_ * np.array([gain(name) for name in names])
        by_text.append(vectorizer.transform(singles) * np.sqrt(0.5))
        by_pattern.append(vectorizer.transform(wholes) * np.sqrt(0.5))
        vocabulary += names
        rarity.append(vectorizer.idf_)
    return hstack(by_text).tocsr(), hstack(by_pattern).tocsr(), vocabulary, np.concatenate(rarity)


def _everyday(vectors: Any, weights: "NDArray[float64]", sentences: Sequence[Vector]) -> "NDArray[float64]":
    """How much each term tells everyday sentences from the library's texts, by those not near any of these."""
    import numpy as np
    from scipy.sparse import csr_matrix, vstack
    from sklearn.svm import LinearSVC

    ends = np.cumsum([0, *(len(each.numbers) for each in sentences)])
    values = [weight for each in sentences for weight in each.weights.tolist()]
    columns = [number for each in sentences for number in each.numbers.tolist()]
    rows = csr_matrix((values, columns, ends), shape=(len(sentences), vectors.shape[1]))
    if sentences:
        rows = rows[(rows @ vectors.T).max(axis=1).toarray().ravel() < NEAR]
    if not rows.shape[0]:
        return np.zeros(vectors.shape[1])
    is_everyday = np.repeat([0, 1], [len(weights), rows.shape[0]])
    machine = LinearSVC(random_state=0)
    machine.fit(vstack([vectors, rows]), is_everyday, sample_weight=[*weights, *[1.0] * rows.shape[0]])
    return np.asarray(machine.coef_[0])


def _coefficients(
    vectors: Any, wholes: Any, classes: Sequence[int], weights: "NDArray[float64]", learning: Sequence[bool]
) -> Any:
    """A figure of each term (row) for each class (column), dense or sparse.

    Args:
        classes: of each single text.
        learning: whether a model is learned of each class; the texts of the others are only what it is told from.
    """
    import numpy as np
    from scipy.sparse import csr_matrix, vstack
    from sklearn.svm import LinearSVC

    if vectors.shape[0] > MOST_TEXTS:  # the documents as models, scaled so that the texts of each score OWN on average
        count = wholes.shape[0]
        sums = np.bincount(classes, np.asarray(vectors.multiply(wholes[classes]).sum(axis=1)).ravel(), count)
        scale = OWN * np.bincount(classes, minlength=count) / np.where(sums > 0, sums, 1.0)
        return wholes.T.multiply(scale).tocsr()
    coefficients = ALONE * wholes.T.toarray()
    if not any(learning):
        return coefficients
    machine = LinearSVC(random_state=0)
    nothing = csr_matrix((1, vectors.shape[1]))
    labels = [NOTHING, *(each if learning[each] else NOTHING for each in classes)]
    machine.fit(vstack([nothing, vectors]), labels, sample_weight=[ITS_WEIGHT, *weights])
    learned = machine.classes_[1:]
    coefficients[:, learned] *= WHOLE / ALONE
    coefficients[:, learned] += (1 - WHOLE) * machine.coef_[-len(learned) :].T
    return coefficients


def main(folder: Path) -> None:
    """Fit the texts on standard input, and write the index into a folder."""
    texts = [tuple((str(text), float(weight)) for text, weight in each) for each in json.load(sys.stdin)]
    fit(texts).write(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
