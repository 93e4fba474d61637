"""What holds the vectors and the words of a data directory: this process, or a Milvus."""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from index.lexical.lexical_index import LexicalIndex
from index.sqlite.connections import SQLiteConnections
from index.store.ports import StoredWords
from index.vectors.backends import EXACT, FAISS_BACKENDS, Backend
from index.vectors.milvus.connection import MilvusAddress
from index.vectors.milvus.engine import MilvusEngine, open_milvus
from index.vectors.milvus.word_index import open_words
from index.vectors.vector_index import Precision

MakeWords = Callable[[SQLiteConnections, Path], StoredWords]


def open_engine(
    path: Path, milvus: MilvusAddress | None, open_files: ExitStack, *, read_only: bool
) -> tuple[MilvusEngine | None, MakeWords]:
    """Connect to the Milvus, if this process uses one; it is closed with `open_files`.

    Returns:
        The Milvus, and what opens the words of the store: in this process, or in the Milvus.

    Raises:
        StoreError: the owner of the collections cannot be written.
        VectorEngineError: the Milvus cannot be used.
    """
    if milvus is None or (read_only and milvus.is_lite):
        return None, LexicalIndex  # one process at a time has a Milvus Lite open
    engine = open_milvus(milvus, path, read_only=read_only)
    open_files.callback(engine.close)
    if not milvus.words:
        return engine, LexicalIndex
    return engine, partial(open_words, engine=engine.words, read_only=read_only)


def choose_backend(
    precision: Precision | None, milvus: MilvusAddress | None, engine: MilvusEngine | None
) -> Backend | None:
    """Return what holds the vectors; None for FAISS in the precision of the snapshot."""
    if milvus is None:
        return None if precision is None else FAISS_BACKENDS[precision]
    return EXACT if engine is None else engine.backend
