"""Vectors as they are stored, and how one is compared with many: by sqlite-vec, by pgvector, else with numpy.

A vector is kept as one signed byte for each dimension, its largest number as 127. Cosine similarity does not depend on
a vector's length, so no factor is kept; rounding moves it by less than 0.01, and a vector takes a quarter of the room.
"""

import heapq
import logging
from array import array
from collections.abc import Sequence
from functools import cache
from typing import Any, Protocol

from sqlalchemy import ColumnElement, Connection, Float, Select, column, func, select, table

from loom_worker.store.dialect import is_postgresql

log = logging.getLogger(__name__)

Vector = Sequence[float]
MOST_DIMENSIONS = 8_192
"""More than any embedding model gives; sqlite-vec compares up to 8,192."""
LARGEST = 127

CHUNK = 4_096
"""Vectors that numpy compares at a time."""

_embeddings = table("message_embeddings", column("n"), column("embedding"))
_EMBEDDINGS = select(func.to_regclass(_embeddings.name).is_not(None))

Near = tuple[int, float]
"""Number of a message, and how near it is: the cosine of the angle, -1 to 1."""


class VectorScan(Protocol):
    """Compares a vector with all that a query finds."""

    name: str

    def nearest(self, tx: Connection, found: Select[Any], query: bytes, *, k: int) -> list[Near]:
        """The k nearest, the nearest first.

        Args:
            found: numbers and vectors, which have as many dimensions as the query.
            query: packed.
        """


class SqliteVec:
    """Compares inside SQLite, with the functions of sqlite-vec: no vector leaves the database."""

    name = "sqlite-vec"

    def nearest(self, tx: Connection, found: Select[Any], query: bytes, *, k: int) -> list[Near]:
        _, vector = found.selected_columns
        distance = func.vec_distance_cosine(func.vec_int8(vector), func.vec_int8(query), type_=Float)
        return _nearest(tx, found, distance, k)


class Pgvector:
    """Compares inside PostgreSQL, with pgvector, as ``migrations/postgresql/vectors.sql`` prepares it."""

    name = "pgvector"

    def nearest(self, tx: Connection, found: Select[Any], query: bytes, *, k: int) -> list[Near]:
        n, _ = found.selected_columns
        wanted = select(func.loom_vector(query)).scalar_subquery()  # made once, not for each row
        distance = func.cosine_distance(_embeddings.c.embedding, wanted, type_=Float)
        return _nearest(tx, found.where(_embeddings.c.n == n), distance, k)


def _nearest(tx: Connection, found: Select[Any], distance: ColumnElement[float], k: int) -> list[Near]:
    n, _ = found.selected_columns
    rows = tx.execute(found.with_only_columns(n, distance).order_by(distance, n.desc()).limit(k)).all()
    # A vector of zeros has no angle to any other: NULL to sqlite-vec, NaN to pgvector.
    return [(row[0], 1.0 - row[1]) for row in rows if row[1] is not None and row[1] == row[1]]


class NumpyScan:
    """Compares outside of the database; for a Python whose SQLite loads no extensions, and where there is no wheel."""

    name = "numpy"

    def nearest(self, tx: Connection, found: Select[Any], query: bytes, *, k: int) -> list[Near]:
        import numpy as np

        wanted = np.frombuffer(query, dtype=np.int8).astype(np.float32)
        best: list[Near] = []
        # Tuples of the driver: SQLAlchemy's rows cost more than all that is computed here.
        cursor: Any = tx.execute(found).cursor
        while rows := cursor.fetchmany(CHUNK):
            numbers, vectors = zip(*rows, strict=True)
            matrix = np.frombuffer(b"".join(vectors), dtype=np.int8).reshape(len(rows), -1).astype(np.float32)
            lengths = np.sqrt(np.einsum("ij,ij->i", matrix, matrix)) * np.linalg.norm(wanted)
            cosines = np.divide(matrix @ wanted, lengths, out=np.full(len(rows), -2.0, np.float32), where=lengths > 0)
            first = np.argpartition(-cosines, min(k, len(rows) - 1))[:k]
            near = ((int(numbers[at]), float(cosines[at])) for at in first if lengths[at] > 0)
            best = heapq.nlargest(k, (*best, *near), key=lambda each: (each[1], each[0]))
        return best


def scan_of(tx: Connection) -> VectorScan:
    """What compares vectors on this connection; sqlite-vec is loaded into it if it can be."""
    if is_postgresql(tx):
        return Pgvector() if tx.execute(_EMBEDDINGS).scalar() else NumpyScan()
    return SqliteVec() if _is_loaded(tx) else NumpyScan()


def packed(vector: Vector) -> bytes:
    """A vector as it is stored.

    Raises:
        ValueError: it has no or too many dimensions, or a number in it is not finite.
    """
    if not 0 < len(vector) <= MOST_DIMENSIONS:
        raise ValueError(f"{len(vector)} dimensions")
    largest = max(map(abs, vector))
    if not largest < float("inf"):
        raise ValueError("not finite")
    factor = LARGEST / largest if largest else 0.0
    try:
        return array("b", (round(number * factor) for number in vector)).tobytes()
    except (OverflowError, ValueError) as error:  # max() overlooks a NaN that is not the first
        raise ValueError("not finite") from error


def _is_loaded(tx: Connection) -> bool:
    """True if sqlite-vec works on this connection, also if it had to be loaded first."""
    info = tx.info
    if "sqlite_vec" not in info:
        info["sqlite_vec"] = _load(tx.connection.dbapi_connection)
    return bool(info["sqlite_vec"])


def _load(raw: Any) -> bool:
    path = _extension()
    # Some Pythons are built without this method, and some SQLite libraries without extensions.
    if path is None or not hasattr(raw, "enable_load_extension"):
        return False
    try:
        raw.enable_load_extension(True)
        try:
            raw.load_extension(path)
        finally:
            raw.enable_load_extension(False)  # the model's SQL never runs on this connection; nothing else needs it
    except Exception as error:  # each build of SQLite refuses in its own class; numpy does the same work
        log.info("sqlite-vec cannot be loaded, so numpy compares vectors: %s", error)
        return False
    return True


@cache
def _extension() -> str | None:
    """The file of the extension; None where its package is not installed."""
    try:
        import sqlite_vec
    except ImportError:
        return None
    return str(sqlite_vec.loadable_path())
