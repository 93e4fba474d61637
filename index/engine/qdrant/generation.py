"""A generation: the collection of Qdrant, what a document is in it, and what it was made with."""

from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Self, cast

import httpx
import numpy as np
from grpc import RpcError, StatusCode
from qdrant_client import QdrantClient, models
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

from encoder.alignment.space import AlignedBlocks, AlignmentSpace
from encoder.arrays import Float32, Int64
from index.alignment.alignment_index import pack, unpack
from index.engine.qdrant.filters import payload_values
from index.errors import EngineError
from index.lexical.hashed_words import HashedWords
from index.store.document_store import DocumentStore

DOCUMENT, WORDS = "document", "words"  # the vectors of a point
BLOCKS, COMMON = "blocks", "common"  # in the payload: aligned blocks, the share of common text
MANIFEST = 0  # the id of a point that no document has
REVISION = "revision"  # the sequence of the store that a point holds its document of
FORMAT = 3
_NOT_FOUND = 404


class GenerationMissingError(EngineError):
    """The collection is not there: another server has switched to the next one."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a generation was made with.

    Attributes:
        format: of the points.
        fingerprint: of the encoder.
        dimension: of the document vectors.
        space: the number of the alignment space in the store; 0 without one.
        terms: the number of the measured frequencies that weigh the words.
        made: sequence of the store that it was made of.
        documents: how many there were then.
        position: sequence of the store that the generation holds.
    """

    format: int
    fingerprint: str
    dimension: int
    space: int
    terms: int
    made: int
    documents: int
    position: int

    @classmethod
    def of(cls, store: DocumentStore, position: int, terms: int) -> Self:
        """Return the manifest of a generation that is made of the present store."""
        return cls(
            FORMAT,
            store.fingerprint,
            store.dimension,
            store.alignment.space_number,
            terms,
            position,
            len(store),
            position,
        )

    def point(self) -> models.PointStruct:
        """Return the point that holds it."""
        payload = {**asdict(self), REVISION: self.position}
        return models.PointStruct(id=MANIFEST, vector={}, payload=payload)

    @classmethod
    def read(cls, payload: dict[str, Any] | None, name: str) -> Self:
        """Read the payload of the point.

        Raises:
            EngineError: it is another one.
        """
        try:
            values = dict(payload or {})
            values.pop(REVISION)
            if values["format"] != FORMAT:
                raise EngineError(name, f"its format is {values['format']!r}, not {FORMAT}")
            return cls(**values)
        except (KeyError, TypeError) as error:
            raise EngineError(name, "it is no generation of Longmatch, or half of one") from error


def create(client: QdrantClient, name: str, manifest: Manifest) -> None:
    """Create the collection of a generation, with the indexes of what filters read."""
    vectors = {
        DOCUMENT: models.VectorParams(
            size=manifest.dimension,
            distance=models.Distance.DOT,
            datatype=models.Datatype.FLOAT16,
            on_disk=True,
            quantization_config=models.ScalarQuantization(
                scalar=models.ScalarQuantizationConfig(type=models.ScalarType.INT8, always_ram=True)
            ),
        )
    }
    words = models.SparseVectorParams(
        index=models.SparseIndexParams(on_disk=True, datatype=models.Datatype.FLOAT16)
    )
    client.create_collection(
        name, vectors, sparse_vectors_config={WORDS: words}, on_disk_payload=True
    )
    client.create_payload_index(name, "values", models.PayloadSchemaType.KEYWORD)
    client.create_payload_index(name, REVISION, models.PayloadSchemaType.INTEGER)


def points_of(
    store: DocumentStore, ids: Int64, revision: int, terms: int, space: AlignmentSpace | None
) -> list[models.PointStruct]:
    """Return the points of those of these documents that are there.

    Args:
        store: that has them.
        ids: Int64[N], their vector ids.
        revision: that they are written as.
        terms: the number of the frequencies that weigh their words.
        space: that their vectors are compared in; None for the vectors as they are.
    """
    present, vectors = store.vectors(ids)
    vectors = vectors if space is None else space.whiten(vectors)
    wanted = present.tolist()
    summaries = store.get(wanted)
    rows = cast(HashedWords, store.words).weighed(present, terms)
    aligned = store.alignment.read(wanted)
    points, start = [], 0
    for row, vector_id in enumerate(wanted):
        held = slice(start, start := int(rows.ends[row]))
        if vector_id not in summaries:
            continue
        vector: dict[str, Any] = {DOCUMENT: vectors[row].tolist()}
        if held.start < held.stop:
            vector[WORDS] = sparse(rows.term_ids[held].astype(np.int64), rows.weights[held])
        document = summaries[vector_id]
        payload = {"id": document.id, REVISION: revision, **payload_values(document.metadata)}
        if aligned is not None and vector_id in aligned.blocks:
            payload[BLOCKS] = b64encode(pack(aligned.blocks[vector_id])).decode()
            payload[COMMON] = aligned.shares[vector_id]
        points.append(models.PointStruct(id=vector_id, vector=vector, payload=payload))
    return points


def sparse(term_ids: Int64, weights: Float32) -> models.SparseVector:
    """Return a sparse vector of terms Int64[U] and weights Float32[U]."""
    return models.SparseVector(indices=term_ids.tolist(), values=weights.tolist())


def blocks_of(payload: Mapping[str, Any], dimension: int) -> AlignedBlocks | None:
    """Return the aligned blocks in the payload of a point; None if there are none.

    Raises:
        ValueError: they are damaged.
    """
    return unpack(b64decode(payload[BLOCKS]), dimension) if BLOCKS in payload else None


@contextmanager
def naming_failures(url: str) -> Iterator[None]:
    """Raise EngineError, which names the server and what has failed.

    Raises:
        GenerationMissingError: a collection is not there.
        EngineError: it does not answer, or refuses.
    """
    try:
        yield
    except UnexpectedResponse as error:
        reason = f"it answers {error.status_code}: {error.content.decode(errors='replace')[:300]}"
        missing = error.status_code == _NOT_FOUND
        raise (GenerationMissingError if missing else EngineError)(url, reason) from error
    except (ResponseHandlingException, httpx.HTTPError, OSError) as error:
        raise EngineError(url, f"it does not answer: {error}") from error
    except RpcError as error:
        missing = error.code() is StatusCode.NOT_FOUND
        reason = f"it answers {error.code().name}: {error.details()}"
        raise (GenerationMissingError if missing else EngineError)(url, reason) from error
    except ValueError as error:  # of the client, where it is the engine itself
        missing = "not found" in str(error)
        raise (GenerationMissingError if missing else EngineError)(url, str(error)) from error
