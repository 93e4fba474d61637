"""The queries of a request, texts or stored documents, with their vectors."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from encoder.arrays import Float32
from encoder.comparison.sections import SectionReader
from encoder.comparison.text import ComparableText, prepare_text
from index.alignment.alignment_index import AlignableDocuments
from index.directory.data_directory import DataDirectory
from index.sqlite.block_vectors import as_stored
from index.store.records import StoredDocument
from service.encode import EncodedText, RequestText, encode_texts
from service.engine import Collection
from service.errors import DocumentNotFoundError
from service.threads import run_in


@dataclass(frozen=True, slots=True)
class StoredQuery:
    """A stored document, with the JSON pointer to its id in the body, None if it is in the path."""

    pointer: str | None
    document_id: str


Query = RequestText | StoredQuery


async def read_queries(
    collection: Collection, queries: Sequence[Query], *, strict: bool = False
) -> list[EncodedText]:
    """Return the queries with their vectors, in order; only texts of the request are encoded."""
    stored = [query for query in queries if isinstance(query, StoredQuery)]
    texts = [query for query in queries if isinstance(query, RequestText)]
    readers, data = collection.engine.readers, collection.data
    found = iter(await run_in(readers, find_all_stored, data, stored) if stored else [])
    encoded = iter(await encode_texts(collection, texts, strict=strict))
    return [next(found if isinstance(query, StoredQuery) else encoded) for query in queries]


def find_all_stored(data: DataDirectory, queries: Sequence[StoredQuery]) -> list[EncodedText]:
    """Return the stored documents of queries, in order, or raise DocumentNotFoundError.

    They are without block vectors.
    """
    found = find_stored(data, [query.document_id for query in queries])
    for query in queries:
        if query.document_id not in found:
            raise DocumentNotFoundError(query.document_id, query.pointer)
    return [found[query.document_id] for query in queries]


def find_stored(data: DataDirectory, document_ids: Sequence[str]) -> dict[str, EncodedText]:
    """Return stored documents by their ids, without block vectors; unknown ids are absent."""
    documents = data.store.find(document_ids)
    vector_ids = [document.vector_id for document in documents.values()]
    vectors = dict(zip(*data.store.vectors(vector_ids), strict=True))
    return {
        name: stored_text(found, vectors[found.vector_id])
        for name, found in documents.items()
        if found.vector_id in vectors
    }


def stored_text(stored: StoredDocument, vector: Float32) -> EncodedText:
    """Return a stored document with its vector Float32[dimension], without block vectors."""
    return EncodedText(
        text=stored.document.text,
        title=stored.document.title,
        vector=vector,
        receipt=stored.receipt,
        document_id=stored.document.id,
        vector_id=stored.vector_id,
    )


def add_stored_blocks(data: DataDirectory, texts: Sequence[EncodedText]) -> list[EncodedText]:
    """Return texts with their stored block vectors where they have none."""
    missing = [text.vector_id for text in texts if text.blocks is None]
    stored = data.store.block_vectors(missing) if missing else {}
    return [replace(text, blocks=text.blocks or stored.get(text.vector_id)) for text in texts]


async def add_blocks(collection: Collection, texts: Sequence[EncodedText]) -> list[EncodedText]:
    """Return texts with their block vectors: read from the store or, if missing there, encoded."""
    texts = await run_in(collection.engine.readers, add_stored_blocks, collection.data, texts)
    missing = [RequestText("#", text.text) for text in texts if text.blocks is None]
    encoded = iter(await encode_texts(collection, missing, strict=False))
    return [
        replace(text, blocks=next(encoded).blocks) if text.blocks is None else text
        for text in texts
    ]


def to_comparable(
    language: str,
    text: EncodedText,
    alignable: AlignableDocuments | None,
    reader: SectionReader | None,
) -> ComparableText:
    """Split a text into the words and sections that a comparison reads.

    Args:
        language: of the text, ISO 639-1.
        text: with its block vectors.
        alignable: the space of the texts that it is compared with, and the blocks that search
            aligns of those that are stored; None for a comparison without alignment.
        reader: of sections; None where the model has no vectors of them.

    Raises:
        ValueError: the text has no block vectors.
    """
    if text.blocks is None:
        raise ValueError(f"document {text.document_id!r} has no block vectors")
    blocks, aligned = text.blocks, None
    if alignable is not None:
        aligned = alignable.blocks.get(text.vector_id) or alignable.project(
            text.text, as_stored(blocks.vectors), blocks.offsets
        )
    return prepare_text(
        text.text,
        text.vector,
        blocks.vectors,
        blocks.offsets,
        aligned=aligned,
        reader=reader,
        language=language,
    )
