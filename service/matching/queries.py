"""Texts of a request, given or stored, with the vectors that a comparison reads."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from encoder.arrays import Float32
from encoder.blocks import Receipt
from encoder.comparison.text import ComparableText, prepare_text
from index.directory.data_directory import DataDirectory
from index.sqlite.block_vectors import BlockVectors
from service.encode import PointedText, encode_texts
from service.engine import Engine
from service.errors import DocumentNotFoundError
from service.threads import run_in


@dataclass(frozen=True, slots=True)
class StoredQuery:
    """A stored document; `pointer` says where in the body its id stands, None if in none."""

    pointer: str | None
    document_id: str


Query = PointedText | StoredQuery


@dataclass(frozen=True, slots=True)
class Source:
    """One text that is compared.

    Attributes:
        id: of the stored document; None for a text of the request.
        title: of the stored document, else "".
        text: the whole of it.
        vector: Float32[dimension], its document vector.
        blocks: its block vectors; None when an earlier version of Longmatch stored it.
        receipt: what was read of it.
    """

    id: str | None
    title: str
    text: str
    vector: Float32
    blocks: BlockVectors | None
    receipt: Receipt


async def read_sources(
    engine: Engine, queries: Sequence[Query], *, strict: bool = False
) -> list[Source]:
    """Return each text with its vectors; only texts of the request are encoded.

    Raises:
        DocumentNotFoundError: a stored document is not there.
        ServiceError: the errors of `encode_texts`.
    """
    stored = [query for query in queries if isinstance(query, StoredQuery)]
    texts = [query for query in queries if isinstance(query, PointedText)]
    ids = [query.document_id for query in stored]
    found = await run_in(engine.readers, find_sources, engine.data, ids) if ids else {}
    for one in stored:
        if one.document_id not in found:
            raise DocumentNotFoundError(one.document_id, one.pointer)
    encoded = iter(await encode_texts(engine, texts, strict=strict))
    sources = []
    for query in queries:
        if isinstance(query, StoredQuery):
            sources.append(found[query.document_id])
        else:
            read = next(encoded)
            sources.append(Source(None, "", query.text, read.vector, read.blocks, read.receipt))
    return sources


def find_sources(data: DataDirectory, document_ids: Sequence[str]) -> dict[str, Source]:
    """Return the stored documents of these ids with their vectors; those not there are absent."""
    documents = data.store.find(document_ids)
    vector_ids = [document.vector_id for document in documents.values()]
    vectors = dict(zip(*data.store.vectors(vector_ids), strict=True))
    blocks = data.store.block_vectors(vector_ids)
    return {
        name: Source(
            id=name,
            title=found.document.title,
            text=found.document.text,
            vector=vectors[found.vector_id],
            blocks=blocks.get(found.vector_id),
            receipt=found.receipt,
        )
        for name, found in documents.items()
        if found.vector_id in vectors
    }


async def with_block_vectors(engine: Engine, sources: Sequence[Source]) -> list[Source]:
    """Encode those texts whose block vectors were not stored; one queue takes them all.

    Raises:
        ServiceError: the errors of `encode_texts`.
    """
    without = [source for source in sources if source.blocks is None]
    texts = [PointedText("#", source.text) for source in without]
    encoded = await encode_texts(engine, texts, strict=False)
    blocks = {id(one): read.blocks for one, read in zip(without, encoded, strict=True)}
    return [replace(source, blocks=blocks.get(id(source), source.blocks)) for source in sources]


def open_source(language: str, source: Source) -> ComparableText:
    """Find the words and sections of a text whose block vectors are there.

    Raises:
        ValueError: they are not.
    """
    if source.blocks is None:
        raise ValueError(f"document {source.id!r} has no block vectors")
    return prepare_text(
        source.text,
        source.vector,
        source.blocks.vectors,
        source.blocks.offsets,
        language=language,
    )
