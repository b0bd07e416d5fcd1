"""Embeddings that are computed on this machine: by a static model of the operator's, or by hashing words."""

import re
import threading
import zlib
from collections import Counter
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from loom_worker.core.errors import ProviderFailed
from loom_worker.core.values.chat import Usage
from loom_worker.core.words import stemmed
from loom_worker.llm.embeddings import Embedded, MayBeSent, TextKind, Vector

PACKAGES = ("tokenizers", "safetensors", "numpy")
"""What a static model needs."""
FILES = ("tokenizer.json", "model.safetensors")
MOST_TOKENS = 2_000
"""Tokens of a text: the mean of more words says ever less of each."""

HASHED = 512
"""Dimensions of hashed words: two of a message's thirty words seldom fall on the same one."""
_WORD = re.compile(r"[^\W_]+")


class HashedWords:
    """An Embedder that needs no model, for tests and the demo: texts are near if they share words, and only then.

    Each word adds 1 or -1 to one dimension, as its CRC says. The same text always gives the same vector.
    """

    def __init__(self, model: str = "hash") -> None:
        self.name = f"scripted/{model}"

    def embed(self, texts: Sequence[str], *, kind: TextKind, timeout_s: float, may_be_sent: MayBeSent) -> Embedded:
        found = tuple(map(_hashed, texts))
        return Embedded(found, Usage(input_tokens=sum(len(text.split()) for text in texts), llm_calls=1))


class StaticModel:
    """An Embedder with a vector for each token, of which a text's is the mean: a folder as model2vec writes it.

    It holds ``tokenizer.json`` and ``model.safetensors`` with a matrix ``embeddings``, and perhaps ``weights`` (one for
    each token) and ``mapping`` (from tokens to rows). Nothing is downloaded, and no code of the folder is run.
    """

    def __init__(self, folder: Path) -> None:
        self.name = f"local/{folder.name}"
        self._folder = folder
        self._lock = threading.Lock()
        self._parts: tuple[Any, Any] | None = None

    def embed(self, texts: Sequence[str], *, kind: TextKind, timeout_s: float, may_be_sent: MayBeSent) -> Embedded:
        """Raises ProviderFailed if the folder holds no such model, or a package is missing."""
        tokenizer, matrix = self._loaded()
        vectors, tokens = list[Vector](), 0
        for encoding in tokenizer.encode_batch(list(texts), add_special_tokens=False):
            ids = [number for number in encoding.ids if number < len(matrix)]
            tokens += len(ids)
            vectors.append((matrix[ids].mean(axis=0) if ids else matrix[0] * 0.0).tolist())
        return Embedded(tuple(vectors), Usage(input_tokens=tokens, llm_calls=1))

    def check(self) -> None:
        """Return if the model can be used; ProviderFailed: it cannot, with what to do."""
        if missing := [name for name in PACKAGES if find_spec(name) is None]:
            text = f"The local embedding model {self.name} needs packages: "
            raise ProviderFailed(f"{text}pip install {' '.join(missing)}")
        for name in FILES:
            if not (self._folder / name).is_file():
                raise ProviderFailed(f"The local embedding model {self._folder} has no {name}; see docs/providers.md.")

    def _loaded(self) -> tuple[Any, Any]:
        with self._lock:
            if self._parts is None:
                self.check()
                self._parts = _load(self._folder)
            return self._parts


def _hashed(text: str) -> Vector:
    vector = [0.0] * HASHED
    for word, count in Counter(stemmed(word) for word in _WORD.findall(text.lower())).items():
        number = zlib.crc32(word.encode("utf-8", "surrogatepass"))
        vector[number % HASHED] += (1.0 if number & 0x8000_0000 else -1.0) * count**0.5
    return vector


def _load(folder: Path) -> tuple[Any, Any]:
    """The tokenizer, and the vector of each of its tokens."""
    import numpy as np
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        tokenizer.no_padding()
        tokenizer.enable_truncation(MOST_TOKENS)
        tensors = load_file(folder / "model.safetensors")
        matrix = np.asarray(tensors["embeddings"], dtype=np.float32)
        if "mapping" in tensors:
            matrix = matrix[np.asarray(tensors["mapping"], dtype=np.int64)]
        if "weights" in tensors:
            matrix = matrix * np.asarray(tensors["weights"], dtype=np.float32)[: len(matrix), None]
        if matrix.ndim != 2 or not np.isfinite(matrix).all():
            raise ValueError("embeddings are no matrix of numbers")
    except Exception as error:  # both packages raise bare exceptions of Rust for a damaged file
        text = f"The local embedding model {folder} cannot be read: {type(error).__name__}: {str(error)[:200]}"
        raise ProviderFailed(text) from error
    return tokenizer, matrix
