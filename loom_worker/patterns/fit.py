"""Fitting the index with scikit-learn: the patterns' texts become a vocabulary and one linear model per pattern.

``python -m loom_worker.patterns.fit FOLDER`` reads texts as JSON from standard input and writes the arrays into FOLDER,
so that one short-lived process pays for scikit-learn and all others map what it wrote.
"""

import json
import sys
from collections.abc import Sequence
from math import log
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loom_worker.patterns.index import OWN, Index, Texts, document, gain, piece_terms, word_terms

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray

WHOLE = 0.7
"""Weight (0-1) of a pattern's texts as one document in its model, against the support vectors, which separate it from
others and ignore what they share. On the development questions, 0.4 to 0.7 differ by a question or two."""
MOST_TEXTS = 8_000
"""Most texts for which models are learned. With about 300 patterns that takes 8 s and 370 MiB, which grow with the
product of texts and patterns; beyond it the documents serve alone."""
NOTHING, ITS_WEIGHT = -1, 20.0
"""The class of an empty text, from which even a single pattern is separated. With this weight the texts of a single
pattern score as they do in the whole library."""
LEAST_VALUE = 0.002
"""Smaller coefficients are left out: they change no rank, and are nine tenths of all."""


def fit(patterns: Sequence[Texts]) -> Index:
    """Fit an index.

    Args:
        patterns: what each says, a weight with each text; patterns that say the same get the same model.
    """
    import numpy as np
    from threadpoolctl import threadpool_limits

    distinct = sorted(set(patterns))  # what is learned depends on the order of what is read
    texts = [text for each in distinct for text, _ in each]
    weights = np.array([weight for each in distinct for _, weight in each])
    if not any(word_terms(text) for text in texts):
        return Index.empty(len(patterns))
    vectors, wholes, vocabulary, rarity = _vectors(distinct)
    classes = [n for n, each in enumerate(distinct) for _ in each]
    with threadpool_limits(1):  # threads that wait for a core that turns keep busy made this five times as slow
        coefficients = _coefficients(vectors, wholes, classes, weights)
    number = {each: n for n, each in enumerate(distinct)}
    coefficients = coefficients[:, [number[each] for each in patterns]]
    return Index.of(vocabulary, rarity, coefficients, rarest=log(1 + len(texts)) + 1, least=LEAST_VALUE)


def _vectors(patterns: Sequence[Texts]) -> "tuple[Any, Any, list[str], NDArray[float64]]":
    """Single texts and whole patterns as rows of length 1 over terms; what each column is, and what it weighs."""
    import numpy as np
    from scipy.sparse import hstack
    from sklearn.feature_extraction.text import TfidfVectorizer

    singles = [(text,) for texts in patterns for text, _ in texts]
    wholes = [document(texts) for texts in patterns]
    by_text, by_pattern, vocabulary, rarity = [], [], [], []
    for cut in (word_terms, piece_terms):
        vectorizer = TfidfVectorizer(
            analyzer=lambda texts, cut=cut: [term for text in texts for term in cut(text)], sublinear_tf=True
        )
        vectorizer.fit(singles)
        names = [str(name) for name in vectorizer.get_feature_names_out()]
        vectorizer.idf_ = vectorizer.idf_ * np.array([gain(name) for name in names])
        by_text.append(vectorizer.transform(singles) * np.sqrt(0.5))
        by_pattern.append(vectorizer.transform(wholes) * np.sqrt(0.5))
        vocabulary += names
        rarity.append(vectorizer.idf_)
    return hstack(by_text).tocsr(), hstack(by_pattern).tocsr(), vocabulary, np.concatenate(rarity)


def _coefficients(vectors: Any, wholes: Any, classes: Sequence[int], weights: "NDArray[float64]") -> Any:
    """Of each term (row) for each class (column), dense or sparse.

    Args:
        classes: of each single text.
    """
    import numpy as np
    from scipy.sparse import csr_matrix, vstack
    from sklearn.svm import LinearSVC

    if vectors.shape[0] > MOST_TEXTS:  # the documents as models, scaled so that the texts of each score OWN on average
        count = wholes.shape[0]
        sums = np.bincount(classes, np.asarray(vectors.multiply(wholes[classes]).sum(axis=1)).ravel(), count)
        scale = OWN * np.bincount(classes, minlength=count) / np.where(sums > 0, sums, 1.0)
        return wholes.T.multiply(scale).tocsr()
    machine = LinearSVC(random_state=0)
    nothing = csr_matrix((1, vectors.shape[1]))
    machine.fit(vstack([nothing, vectors]), [NOTHING, *classes], sample_weight=[ITS_WEIGHT, *weights])
    learned = machine.classes_[1:]
    coefficients = WHOLE * wholes.T.toarray()
    coefficients[:, learned] += (1 - WHOLE) * machine.coef_[-len(learned) :].T
    return coefficients


def main(folder: Path) -> None:
    """Fit the texts on standard input, and write the index into a folder."""
    texts = [tuple((str(text), float(weight)) for text, weight in each) for each in json.load(sys.stdin)]
    fit(texts).write(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
