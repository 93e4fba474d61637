"""The adapter: a latent semantic analysis of the terms of one corpus, appended to its vectors.

A checkpoint knows which words distinguish documents in general. Which words distinguish those of
one corpus, and which occur together there, is fitted to the texts of that corpus. The adapted
document vector is

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
from encoder.checkpoint import SENTENCE_MODEL, Checkpoint, mark_fingerprint
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
# Enough that words of a corpus rarely share one.
BUCKETS = 2**22
_DIGEST_BYTES = 32


@dataclass(frozen=True)
class Adapter:
    """An adapter fitted to one corpus, by `index.adapt.fit_adapter`.

    Attributes:
        base: fingerprint of the checkpoint whose vectors it extends.
        buckets: of the vocabulary of terms.
        rows: Int64[R], ascending: the rows of that vocabulary that the table has.
        table: weights and vectors of these R terms.
        weight: of the features in the score, between 0 and 1.
        documents: how many it was fitted to.
        titles: those of the corpus that have a row; a text that names one has it as a term.
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
        """Number of dimensions added to the document vector."""
        return self.table.width

    @cached_property
    def digest(self) -> str:
        """SHA-256, in hex, of its whole content."""
        digest = hashlib.sha256(json.dumps(_about(self), sort_keys=True).encode())
        for name, array in sorted(_arrays(self).items()):
            digest.update(f"{name} {array.dtype.str} {array.shape} ".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the adapted vectors, where all sentence blocks are encoded."""
        return hashlib.sha256(f"{self.base} {self.digest}".encode()).hexdigest()

    def adapt(self, vector: Float32, terms: Terms) -> Float32:
        """Append the features of a document's terms to its vector.

        Args:
            vector: [dimension], unit norm.
            terms: as `count_words` counts them, over `buckets` buckets.

        Returns:
            [dimension + width], unit norm. Without any term that the adapter knows, the second
            part is zero.
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
    """Return the space of the vectors of a checkpoint and its reading share, adapted or not."""
    made_by = checkpoint if adapter is None else adapter
    width = 0 if adapter is None else adapter.width
    return VectorSpace(
        mark_fingerprint(made_by.fingerprint, checkpoint.reading_share),
        checkpoint.dimension + width,
    )


@dataclass(frozen=True, slots=True)
class OpenAdapter:
    """An adapter with the vocabulary by which it counts terms."""

    vocabulary: TermVocabulary
    adapter: Adapter

    def __call__(self, vector: Float32, blocks: Sequence[Sequence[int]]) -> Float32:
        """Adapt the vector [dimension] of the document of these sentence blocks."""
        terms = count_words(self.vocabulary, blocks, self.adapter.titles)
        return self.adapter.adapt(vector, terms)


def open_adaptation(checkpoint: Checkpoint, adapter: Adapter) -> OpenAdapter:
    """Open an adapter for the vectors of a checkpoint."""
    require_fits(adapter, checkpoint, "the adapter")
    vocabulary = read_term_vocabulary(open_tokenizer(checkpoint), adapter.buckets)
    return OpenAdapter(vocabulary, adapter)


def require_fits(adapter: Adapter, checkpoint: Checkpoint, where: str) -> None:
    """Check that an adapter was fitted for a checkpoint."""
    if adapter.base != checkpoint.fingerprint:
        raise AdapterError(
            f"{where}: was fitted for checkpoint {adapter.base[:12]}, not for "
            f"{checkpoint.fingerprint[:12]}: use that checkpoint or another data directory"
        )


def adapter_vocabulary(checkpoint: Checkpoint) -> TermVocabulary:
    """Return the vocabulary by which new adapters of a checkpoint count terms.

    Raises:
        AdapterError: its tokenizer may have no WordPieces, by which words are counted.
    """
    if checkpoint.architecture == SENTENCE_MODEL:
        raise AdapterError(f"{checkpoint.name}: a sentence model cannot be adapted to a corpus")
    return read_term_vocabulary(open_tokenizer(checkpoint), BUCKETS)


def format_adapter(adapter: Adapter) -> bytes:
    """Return the content of an adapter file: an .npz archive followed by its SHA-256."""
    about = json.dumps({"format": FORMAT, **_about(adapter)})
    file = io.BytesIO()
    text = np.frombuffer(about.encode(), dtype=np.uint8)
    np.savez(file, allow_pickle=False, about=text, **_arrays(adapter))
    content = file.getvalue()
    return content + hashlib.sha256(content).digest()


def parse_adapter(data: bytes, where: str) -> Adapter:
    """Parse the content of an adapter file, which `where` names in an AdapterError."""
    content, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if hashlib.sha256(content).digest() != digest:
        raise AdapterError(f"{where}: is damaged, or not an adapter: restore it, or index again")
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
        raise AdapterError(f"{where}: not an adapter: {error}") from error


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
