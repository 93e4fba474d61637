"""Lexical neighbours: which documents share words, by TF-IDF. The teacher that everybody has.

They make hard negatives (near by words, yet not linked), masks of false negatives (so near that
they probably match), batches of documents that are worth telling apart, and the similarities that
relation distillation copies.
"""

import hashlib
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from encoder.arrays import Float32, Int64
from encoder.atomic_files import replace_durably
from evaluation.baselines import tfidf_matrix
from index.errors import CorpusError

NEIGHBOURS = 32  # of each document, at most
_FORMAT = 1
_KEY = "neighbours.json"
_ROWS_A_CALL = 256


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The lexical neighbours of M texts, memory-mapped. Texts are known by their places 0 to M - 1.

    Attributes:
        nearest: Int64[M, K], places of the nearest other texts, nearest first; -1 where fewer share
            a word.
        similarities: Float32[M, K], cosines of TF-IDF; 0 where there is none.
        ends: Int64[M], where the words of each text end in the two that follow.
        words: Int32[T].
        weights: Float32[T], of unit norm for each text.
    """

    nearest: Int64
    similarities: Float32
    ends: Int64
    words: Any
    weights: Float32

    def between(self, places: Sequence[int] | Int64) -> Float32:
        """Return the similarities [D, D] of D texts among each other."""
        import scipy.sparse

        spans = [(int(self.ends[p - 1]) if p else 0, int(self.ends[p])) for p in places]
        words = np.concatenate([self.words[a:b] for a, b in spans])
        weights = np.concatenate([self.weights[a:b] for a, b in spans])
        starts = np.cumsum([0, *(b - a for a, b in spans)])
        known, columns = np.unique(words, return_inverse=True)
        shape = (len(spans), max(1, len(known)))
        matrix = scipy.sparse.csr_matrix((weights, columns, starts), shape=shape)
        similarities: Float32 = (matrix @ matrix.T).toarray()
        return similarities


def find_neighbours(directory: Path, texts: Sequence[str]) -> Neighbours:
    """Find the neighbours of texts, or read what was found before.

    Args:
        directory: where they are stored; computed again if the texts have changed.
        texts: M of at least two.

    Raises:
        CorpusError: scikit-learn is not installed, or no word is in two texts and in at most half
            of them.
    """
    digest = hashlib.sha256()
    for text in texts:
        digest.update(hashlib.sha256(text.encode()).digest())
    key = {"format": _FORMAT, "neighbours": NEIGHBOURS, "texts": digest.hexdigest()}
    if _read_key(directory) != key:
        temporary = directory.with_name(directory.name + ".partial")
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        _write(temporary, texts)
        (temporary / _KEY).write_text(json.dumps(key), encoding="utf-8")
        shutil.rmtree(directory, ignore_errors=True)
        replace_durably(temporary, directory)
    return _open(directory)


def without_neighbours(texts: int) -> Neighbours:
    """Return the neighbours of M texts where none were searched for: there are none."""
    nothing = np.empty(0, dtype=np.float32)
    return Neighbours(
        nearest=np.empty((texts, 0), dtype=np.int64),
        similarities=np.empty((texts, 0), dtype=np.float32),
        ends=np.zeros(texts, dtype=np.int64),
        words=np.empty(0, dtype=np.int32),
        weights=nothing,
    )


def _read_key(directory: Path) -> object:
    try:
        return json.loads((directory / _KEY).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}  # nothing, or something that is to be made again


def _write(directory: Path, texts: Sequence[str]) -> None:
    matrix = tfidf_matrix(texts)
    count = min(NEIGHBOURS, len(texts) - 1)
    transposed = matrix.T.tocsr()
    nearest = np.full((len(texts), count), -1, dtype=np.int64)
    similarities = np.zeros((len(texts), count), dtype=np.float32)
    for start in range(0, len(texts), _ROWS_A_CALL):
        cosines = (matrix[start : start + _ROWS_A_CALL] @ transposed).toarray()  # [r, M]
        rows = np.arange(len(cosines))
        cosines[rows, start + rows] = -1.0  # a document is not its own neighbour
        best = np.argpartition(-cosines, count - 1, axis=1)[:, :count]
        found = np.take_along_axis(cosines, best, axis=1)
        order = np.lexsort((best, -found), axis=1)
        best, found = np.take_along_axis(best, order, 1), np.take_along_axis(found, order, 1)
        some = slice(start, start + len(cosines))
        nearest[some] = np.where(found > 0, best, -1)
        similarities[some] = np.maximum(found, 0)
    arrays = {
        "nearest": nearest,
        "similarities": similarities,
        "ends": matrix.indptr[1:].astype(np.int64),
        "words": matrix.indices.astype(np.int32),
        "weights": matrix.data.astype(np.float32),
    }
    for name, array in arrays.items():
        np.save(directory / f"{name}.npy", array, allow_pickle=False)


def _open(directory: Path) -> Neighbours:
    names = ("nearest", "similarities", "ends", "words", "weights")
    try:
        return Neighbours(
            **{name: np.load(directory / f"{name}.npy", mmap_mode="r") for name in names}
        )
    except (OSError, EOFError, ValueError) as error:
        raise CorpusError(f"{directory}: damaged: {error}; delete it") from error
