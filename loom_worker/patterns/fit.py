"""Fitting the index with scikit-learn: the patterns' texts become a vocabulary and one linear model per pattern.

``python -m loom_worker.patterns.fit FOLDER`` reads texts as JSON from standard input and writes the arrays into FOLDER,
so that one short-lived process pays for scikit-learn and all others map what it wrote.
"""

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import log
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loom_worker.patterns.index import Index, Texts, document, gain, piece_terms, word_terms

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray

RIDGE = 3.0
"""Penalty of the regression, for texts of length 1."""
WHOLE = 0.7
"""Share (0-1) of a pattern's texts as one document in its model, against the regression, which tells it from others but
forgets what they share. On the development questions: 0.5 to 0.9 differ by a question or two."""
MOST_TEXTS = 4_000
"""The regression takes time with the third power of the texts (1 s at 3,000); above, whole documents serve alone."""
LEAST_VALUE = 0.002
"""Smaller coefficients are left out: they change no place, and are nine tenths of all."""


def fit(patterns: Sequence[Texts]) -> Index:
    """Fit an index.

    Args:
        patterns: what each says, a weight with each text; patterns that say the same get the same model.
    """
    import numpy as np
    from threadpoolctl import threadpool_limits

    owners = [n for n, texts in enumerate(patterns) for _ in texts]
    texts = [text for each in patterns for text, _ in each]
    weights = np.array([weight for each in patterns for _, weight in each])
    if not any(word_terms(text) for text in texts):
        return Index.empty(len(patterns))
    vectors, wholes, vocabulary, rarity = _vectors(patterns)
    own = np.zeros((len(texts), len(patterns)))
    own[np.arange(len(texts)), owners] = 1.0
    with threadpool_limits(1):  # threads that wait for a core that turns keep busy made this five times as slow
        coefficients = _coefficients(vectors, wholes, own, weights)
    return Index.of(vocabulary, rarity, coefficients, rarest=log(1 + len(texts)) + 1, least=LEAST_VALUE)


def _vectors(patterns: Sequence[Texts]) -> "tuple[Any, Any, list[str], NDArray[float64]]":
    """Single texts and whole patterns as rows of length 1 over terms; what each column is, and what it weighs."""
    import numpy as np
    from scipy.sparse import hstack
    from sklearn.feature_extraction.text import TfidfVectorizer

    singles = [(text,) for texts in patterns for text, _ in texts]
    wholes = [document(texts) for texts in patterns]
    by_text, by_pattern, vocabulary, rarity = [], [], [], []
    for analyzer in (word_terms, piece_terms):
        vectorizer = TfidfVectorizer(analyzer=partial(_analyzed, analyzer), sublinear_tf=True)
        vectorizer.fit(singles)
        names = [str(name) for name in vectorizer.get_feature_names_out()]
        vectorizer.idf_ = vectorizer.idf_ * np.array([gain(name) for name in names])
        by_text.append(vectorizer.transform(singles) * np.sqrt(0.5))
        by_pattern.append(vectorizer.transform(wholes) * np.sqrt(0.5))
        vocabulary += names
        rarity.append(vectorizer.idf_)
    return hstack(by_text).tocsr(), hstack(by_pattern).tocsr(), vocabulary, np.concatenate(rarity)


def _analyzed(analyzer: Callable[[str], list[str]], texts: Iterable[str]) -> list[str]:
    return [term for text in texts for term in analyzer(text)]


def _coefficients(vectors: Any, wholes: Any, own: "NDArray[float64]", weights: "NDArray[float64]") -> Any:
    """Of each term (row) for each pattern (column), dense or sparse."""
    import numpy as np
    from sklearn.kernel_ridge import KernelRidge

    if vectors.shape[0] > MOST_TEXTS:
        return wholes.T.tocsr()
    ridge = KernelRidge(alpha=RIDGE, kernel="linear").fit(vectors, own, sample_weight=weights)
    return (1 - WHOLE) * np.asarray(vectors.T @ ridge.dual_coef_) + WHOLE * wholes.T.toarray()


def _read(texts: Iterable[Iterable[Sequence[Any]]]) -> list[Texts]:
    return [tuple((str(text), float(weight)) for text, weight in each) for each in texts]


def main(folder: Path) -> None:
    """Fit what standard input says, and write it into a folder."""
    fit(_read(json.load(sys.stdin))).write(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
