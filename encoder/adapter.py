"""The adapter: what was fitted to one corpus, from its texts alone, and joins its vectors.

A checkpoint knows which words tell documents apart in general. Which tell them apart in one
corpus, and which of them go together there, the corpus itself says: the adapter holds a latent
semantic analysis of its term counts. The adapted document vector is

    [sqrt(1 - weight) * document vector, sqrt(weight) * unit(features)]

so that the cosine of two of them is the weighted mean of both cosines.
"""

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from encoder.arrays import Float32, Int64
from encoder.checkpoint import Checkpoint
from encoder.errors import AdapterError
from encoder.terms.term_table import (
    Terms,
    TermTable,
    TermVocabulary,
    count_words,
    read_term_vocabulary,
)
from encoder.terms.title_matcher import NO_TITLES, TitleMatcher
from encoder.tokenizer import open_tokenizer

FORMAT = 1
# So many that the words of a corpus hardly ever share one.
BUCKETS = 2**22
_DIGEST_BYTES = 32


@dataclass(frozen=True)
class Adapter:
    """What was fitted to one corpus; `fit_adapter` in `index.adapt` makes it.

    Attributes:
        base: fingerprint of the checkpoint whose vectors it joins.
        buckets: of the vocabulary of terms.
        rows: Int64[R], ascending: the rows of that vocabulary that the table has.
        table: weights and vectors of these R terms.
        weight: of the features in the score, between 0 and 1.
        documents: how many it was fitted to.
        titles: of that corpus, those that have a row: a text that names one has it as a term.
    """

    base: str
    buckets: int
    rows: Int64
    table: TermTable
    weight: float
    documents: int
    titles: TitleMatcher = NO_TITLES

    @property
    def width(self) -> int:
        """By how much the document vector grows."""
        return self.table.width

    @cached_property
    def digest(self) -> str:
        """SHA-256, in hex, of all that is in it."""
        digest = hashlib.sha256(json.dumps(_about(self), sort_keys=True).encode())
        for name, array in sorted(_arrays(self).items()):
            digest.update(f"{name} {array.dtype.str} {array.shape} ".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    @property
    def fingerprint(self) -> str:
        """Which vectors can be compared with those that it adapted."""
        return hashlib.sha256(f"{self.base} {self.digest}".encode()).hexdigest()

    def adapt(self, vector: Float32, terms: Terms) -> Float32:
        """Join the vector of a document with what its terms say.

        Args:
            vector: [dimension], unit norm.
            terms: as `count_words` counts them, over `buckets` buckets.

        Returns:
            [dimension + width], unit norm. Of a document without any term that the adapter knows
            it is the vector alone.
        """
        adapted = np.zeros(len(vector) + self.width, dtype=np.float32)
        features = self.table.features(self._known(terms))
        norm = float(np.linalg.norm(features))
        if norm == 0.0:
            adapted[: len(vector)] = vector
            return adapted
        adapted[: len(vector)] = np.sqrt(1.0 - self.weight) * vector
        adapted[len(vector) :] = np.sqrt(self.weight) / norm * features
        return adapted

    def _known(self, terms: Terms) -> Terms:
        places = np.searchsorted(self.rows, terms.rows)
        places[places == len(self.rows)] = 0
        known = self.rows[places] == terms.rows
        return Terms(places[known], terms.counts[known])


@dataclass(frozen=True, slots=True)
class VectorSpace:
    """Which vectors can be compared with each other, and their width."""

    fingerprint: str
    dimension: int


def vector_space(checkpoint: Checkpoint, adapter: Adapter | None) -> VectorSpace:
    """Return the space of the vectors of a checkpoint, adapted or not."""
    if adapter is None:
        return VectorSpace(checkpoint.fingerprint, checkpoint.dimension)
    return VectorSpace(adapter.fingerprint, checkpoint.dimension + adapter.width)


@dataclass(frozen=True, slots=True)
class OpenAdapter:
    """An adapter with the vocabulary that it counts by."""

    vocabulary: TermVocabulary
    adapter: Adapter

    def __call__(self, vector: Float32, blocks: Sequence[Sequence[int]]) -> Float32:
        """Adapt the vector [dimension] of the document of these sentence blocks."""
        terms = count_words(self.vocabulary, blocks, self.adapter.titles)
        return self.adapter.adapt(vector, terms)


def open_adaptation(checkpoint: Checkpoint, adapter: Adapter) -> OpenAdapter:
    """Make an adapter ready for the vectors of a checkpoint.

    Raises:
        AdapterError: it was fitted for another checkpoint.
    """
    require_fits(adapter, checkpoint, "the adapter")
    vocabulary = read_term_vocabulary(open_tokenizer(checkpoint), adapter.buckets)
    return OpenAdapter(vocabulary, adapter)


def require_fits(adapter: Adapter, checkpoint: Checkpoint, where: str) -> None:
    """Refuse an adapter of another checkpoint.

    Raises:
        AdapterError: `where` names it.
    """
    if adapter.base != checkpoint.fingerprint:
        raise AdapterError(
            f"{where}: was fitted for checkpoint {adapter.base[:12]}, not for "
            f"{checkpoint.fingerprint[:12]}: use that checkpoint or another data directory"
        )


def adapter_vocabulary(checkpoint: Checkpoint) -> TermVocabulary:
    """Return the vocabulary that new adapters of a checkpoint count by."""
    return read_term_vocabulary(open_tokenizer(checkpoint), BUCKETS)


def format_adapter(adapter: Adapter) -> bytes:
    """Return the content of an adapter file: an .npz archive, and the SHA-256 of it behind."""
    about = json.dumps({"format": FORMAT, **_about(adapter)})
    file = io.BytesIO()
    text = np.frombuffer(about.encode(), dtype=np.uint8)
    np.savez(file, allow_pickle=False, about=text, **_arrays(adapter))
    content = file.getvalue()
    return content + hashlib.sha256(content).digest()


def parse_adapter(data: bytes, where: str) -> Adapter:
    """Read what `format_adapter` wrote.

    Raises:
        AdapterError: it is damaged, of another format, or no adapter; `where` names it.
    """
    content, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if hashlib.sha256(content).digest() != digest:
        raise AdapterError(f"{where}: is damaged, or no adapter: restore it, or index anew")
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            about = json.loads(arrays["about"].tobytes())
            if about["format"] != FORMAT:
                raise AdapterError(f"{where}: format {about['format']!r} is not {FORMAT}")
            return Adapter(
                base=str(about["base"]),
                buckets=int(about["buckets"]),
                rows=arrays["rows"],
                table=TermTable(arrays["weights"], arrays["vectors"], arrays["scales"]),
                weight=float(about["weight"]),
                documents=int(about["documents"]),
                titles=TitleMatcher(arrays["title_hashes"], arrays["title_lengths"]),
            )
    except (BadZipFile, EOFError, KeyError, OSError, TypeError, ValueError) as error:
        raise AdapterError(f"{where}: is no adapter: {error}") from error


def _about(adapter: Adapter) -> dict[str, Any]:
    return {
        "base": adapter.base,
        "buckets": adapter.buckets,
        "documents": adapter.documents,
        "weight": adapter.weight,
    }


def _arrays(adapter: Adapter) -> Mapping[str, NDArray[Any]]:
    table, titles = adapter.table, adapter.titles
    return {
        "rows": adapter.rows,
        "scales": table.scales,
        "title_hashes": titles.hashes,
        "title_lengths": titles.lengths,
        "vectors": table.vectors,
        "weights": table.weights,
    }
