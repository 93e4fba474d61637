"""Judged queries and passages of documents, as they are searched for."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

from encoder.errors import EmptyTextError
from evaluation.fitting.feedback import SearchableQuery
from evaluation.fitting.judged_queries import JudgedQuery
from index.directory.data_directory import DataDirectory
from index.document import Document
from index.errors import StoreError
from index.progress import Progress
from index.search.records import EncodedQuery
from service.cli.opening import Loaded
from service.matching.queries import find_stored

_PASSAGE_WORDS = 20  # so few that the weights decide whether their document is found


def asked(
    loaded: Loaded, data: DataDirectory, judged: Sequence[JudgedQuery], progress: Progress
) -> list[SearchableQuery | None]:
    """Return queries as they are searched for: texts are encoded, documents have their vectors.

    Args:
        loaded: the checkpoint of the data directory.
        data: where they are searched for.
        judged: Q queries.
        progress: is notified of each.

    Returns:
        Q of them; None for a document that cannot be read, or a text without a token.

    Raises:
        StoreError: the store cannot be read.
    """
    progress.started("reading the queries", len(judged), unit="queries")
    found: list[SearchableQuery | None] = []
    for one in judged:
        query = _query(loaded, data, one)
        progress.advanced(1)
        found.append(None if query is None else SearchableQuery(query, one.grades, complete=False))
    return found


def passages(
    data: DataDirectory, judged: Sequence[JudgedQuery], number: int, seed: int, progress: Progress
) -> list[Document]:
    """Return documents whose texts are passages of stored ones, first of those without feedback.

    Raises:
        StoreError: no document can be read.
    """
    named = {name for one in judged for name in (one.document_id, *one.grades)}
    ids = data.store.changes_since(0).added.tolist()
    chosen = random.Random(seed).sample(ids, min(len(ids), 4 * number))  # noqa: S311  no secret
    summaries = data.store.get(chosen, skip_damaged=True).values()
    names = sorted((one.id for one in summaries), key=lambda name: name in named)[:number]
    progress.started("reading other documents", len(names))
    found = []
    for name in names:
        stored = data.store.find([name], skip_damaged=True).get(name)
        progress.advanced(1)
        if stored is not None:
            found.append(Document(name, _passage(stored.document)))
    if not found:
        raise StoreError(f"{data.path}: no document can be read")
    return found


def look_for(
    loaded: Loaded, known: Sequence[Document], progress: Progress
) -> list[SearchableQuery | None]:
    """Return passages as queries that each look for their document; None without a token."""
    progress.started("encoding passages", len(known), unit="passages")
    found: list[SearchableQuery | None] = []
    for one in known:
        query = _encoded(loaded, one.text)
        progress.advanced(1)
        found.append(None if query is None else SearchableQuery(query, {one.id: 1}, complete=True))
    return found


def described(what: str, found: Mapping[str, Any]) -> str:
    """Return in words what a report has of a comparison."""
    gain = found["difference"]
    return (
        f"{found['queries']} {what}: nDCG@10 {found['present']:.4f} -> {found['new']:.4f} "
        f"({gain['difference']:+.4f}, 95 % interval {gain['low']:+.4f} to {gain['high']:+.4f})"
    )


def _query(loaded: Loaded, data: DataDirectory, one: JudgedQuery) -> EncodedQuery | None:
    if one.document_id is None:
        return _encoded(loaded, one.text, one.title)
    stored = find_stored(data, [one.document_id], skip_damaged=True).get(one.document_id)
    if stored is None:
        return None
    return EncodedQuery(stored.text, stored.vector, stored.title, None, stored.vector_id)


def _encoded(loaded: Loaded, text: str, title: str = "") -> EncodedQuery | None:
    try:
        blocks = loaded.tokenizer(text)
    except EmptyTextError:
        return None
    made = loaded.encoder.encode([blocks])
    return EncodedQuery(text, made.document_vectors[0], title, made.block_vectors[0])


def _passage(document: Document) -> str:
    """Return some words from the middle of a text."""
    words = document.text.split()
    start = max(0, (len(words) - _PASSAGE_WORDS) // 2)
    return " ".join(words[start : start + _PASSAGE_WORDS])
